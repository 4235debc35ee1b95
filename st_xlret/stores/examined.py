"""Which rows of a batch can be used, and in which languages they are."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from st_xlret.languages import language_of_label
from st_xlret.stores.batches import Matrix, batch_vectors
from st_xlret.stores.left_out import LeftOut, Reason

# The square of the shortest length of which float32 has all digits.
_SHORTEST = np.finfo(np.float32).tiny


class ExaminedRows(NamedTuple):
    """The rows of a batch, as they can be used.

    Attributes:
        vectors: (n, d).
        is_usable: (n,), whether a row has a finite vector and, if it needs one, a language.
        codes: (n,), the languages, "" for none.
    """

    vectors: Matrix
    is_usable: NDArray[np.bool_]
    codes: NDArray[Any]


def examine_rows(
    batch: pa.RecordBatch,
    left_out: LeftOut,
    *,
    needs_language: bool,
    drawn: NDArray[np.bool_] | bool,
    identify: Callable[[str], str] | None,
) -> ExaminedRows:
    """See `Store.examine_rows`; `identify` is given where texts tell the language.

    Rows that cannot be used are added to `left_out`.
    """
    vectors = batch_vectors(batch)
    squares = np.einsum("nd,nd->n", vectors, vectors)
    is_usable = np.isfinite(squares) & (squares >= _SHORTEST)
    left_out.add(Reason.NO_VECTOR, int((~is_usable).sum()))
    labels, codes = _labels_and_codes(batch)
    if not needs_language:
        return ExaminedRows(vectors, is_usable, np.where(codes == "", labels, codes))
    if identify is not None:
        texts = batch.column("text")
        for row in np.flatnonzero(drawn & is_usable & (labels == "")).tolist():
            text = texts[row].as_py()
            codes[row] = identify(text) if text else ""
    is_lacking = drawn & is_usable & (codes == "")
    _count_lacking(labels[is_lacking].tolist(), left_out)
    return ExaminedRows(vectors, is_usable & (codes != ""), codes)


def _labels_and_codes(batch: pa.RecordBatch) -> tuple[NDArray[Any], NDArray[Any]]:
    """The label of each row and its language, texts (n,); empty where there is none."""
    labels = np.empty(batch.num_rows, object)
    codes = np.empty(batch.num_rows, object)
    for row, label in enumerate(batch.column("language").to_pylist()):
        labels[row], codes[row] = _label_and_code(label)
    return labels, codes


@lru_cache(maxsize=65_536)
def _label_and_code(label: str | None) -> tuple[str, str]:
    """A label and its code, both in normal form; "" for a missing one.

    A label that is no code stays, and its code is "".
    """
    try:
        code = language_of_label(label) or ""
    except ValueError:
        return label or "", ""
    return code, code


def _count_lacking(labels: Sequence[str], left_out: LeftOut) -> None:
    """Count rows without a language, and those with a label that is no code."""
    unreadable = [label for label in labels if label]
    left_out.add(Reason.NO_LANGUAGE, len(labels) - len(unreadable))
    if unreadable:
        left_out.add(Reason.NO_CODE, len(unreadable), unreadable[0][:40])
