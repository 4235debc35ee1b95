"""Which rows can be used, and a sample of them in which every row has the same chance."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from st_xlret.languages import language_of_label, match_language
from st_xlret.stores.batches import Matrix, batch_vectors
from st_xlret.stores.left_out import LeftOut, Reason, counts_in_words

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


class StoredSample(NamedTuple):
    """Stored vectors of each language, in the order of the codes.

    Attributes:
        vectors: Language -> (n, d), float32.
        documents: Language -> (n,), the document of each, or the row's own id.
    """

    vectors: dict[str, Matrix]
    documents: dict[str, NDArray[Any]]


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


class Draw:
    """A draw of rows for each language, in one pass: each row has a lot, and the lowest stay.

    Attributes:
        left_out: How many rows could not be used, by the reason.
    """

    def __init__(self, per_language: int, wanted: frozenset[str] | None, seed: int) -> None:
        self.left_out = LeftOut()
        self._per_language = per_language
        self._wanted = wanted
        self._generator = np.random.default_rng(seed)
        self._lots: dict[str, NDArray[np.float64]] = {}
        self._vectors: dict[str, Matrix] = {}
        self._documents: dict[str, NDArray[Any]] = {}
        self._known = Counter[str]()

    def draw_lots(self, count: int) -> NDArray[np.float64]:
        """The lots of the next rows, from 0 to 1."""
        return self._generator.random(count)

    def add(self, lots: NDArray[np.float64], rows: ExaminedRows, documents: NDArray[Any]) -> None:
        """Draw from rows that have these lots, and are of these documents."""
        usable = np.flatnonzero(rows.is_usable)
        codes = rows.codes[usable].tolist()
        self._known.update(codes)
        names = np.array([match_language(code, self._wanted) or "" for code in codes], object)
        for name in set(names.tolist()) - {""}:
            chosen = usable[names == name]
            every_lot = np.append(self._lots.get(name, []), lots[chosen])
            vectors = rows.vectors[chosen]
            of_rows = documents[chosen]
            if name in self._vectors:
                vectors = np.concatenate([self._vectors[name], vectors])
                of_rows = np.concatenate([self._documents[name], of_rows])
            lowest = np.argsort(every_lot)[: self._per_language]
            self._lots[name] = every_lot[lowest]
            self._vectors[name] = vectors[lowest]
            self._documents[name] = of_rows[lowest]

    def result(self) -> StoredSample:
        """What was drawn."""
        in_order = sorted(self._vectors)
        return StoredSample(
            vectors={code: self._vectors[code] for code in in_order},
            documents={code: self._documents[code] for code in in_order},
        )

    def problem(self, total: int, present: Collection[str]) -> str | None:
        """Why the sample cannot be used, or None; `present` are the fields of the store."""
        missing = sorted((self._wanted or frozenset()) - set(self._vectors))
        if not missing and self._known and not self._are_most_labels_no_codes():
            return None
        lacking = ", ".join(missing) or "any"
        there_are = ", ".join(sorted(self._known)[:20]) or "none"
        left_out = counts_in_words(self.left_out.by_words()) or "no rows"
        alike = ", ".join(name for name in present if _looks_like_language(name)) or "none"
        return (
            f"of {total} rows none has a vector and a language ({lacking}); "
            f"there are {there_are}, left out are {left_out}. Languages come from a field "
            f"(--language_field; {alike} looks like one), a file with a code a line "
            "(--languages_file), or texts (--text_field)"
        )

    def _are_most_labels_no_codes(self) -> bool:
        return self.left_out.count_of(Reason.NO_CODE) > self._known.total()


def _looks_like_language(field: str) -> bool:
    return "lang" in field.lower() or "locale" in field.lower()
