"""Map the vectors of a store into something new beside them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from tqdm.auto import tqdm

from st_xlret.stores.base import Store, vector_column

if TYPE_CHECKING:
    from st_xlret import VectorCalibration


class RowCounts(NamedTuple):
    """How many rows `apply_calibration` has written, in this run, and how many not, by the reason."""

    written: int
    left_out: Counter[str]


def apply_calibration(
    calibration: VectorCalibration, store: Store, into: str, *, show_progress_bar: bool = False
) -> RowCounts:
    """Write the mapped vectors of a store into something new. Nothing that is there is changed.

    In a database but LanceDB every batch counts: the same call continues a run that was interrupted, and maps rows that
    were added since. A file or a table of LanceDB is written whole or not at all.

    `into` is the name of the new file, named vector or collection (Qdrant), column (PostgreSQL), table (LanceDB) or
    collection (Chroma). An `OSError` says that the name is taken, or that the store has not taken all rows; a
    `ValueError` that the map is of other vectors, or of queries alone, or that the vectors are mapped already.

    Example:
        >>> import tempfile
        >>> from st_xlret import VectorCalibration
        >>> from st_xlret.stores import open_store
        >>> vectors = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
        >>> calibration = VectorCalibration.fit(vectors, ["en", "fr"] * 60)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/vectors.npy", vectors)
        ...     with open_store(f"{folder}/vectors.npy") as store:
        ...         apply_calibration(calibration, store, f"{folder}/mapped.npy").written
        120
    """
    if calibration.queries_only:
        raise ValueError(
            "this calibration maps queries alone: there is nothing to write, the stored vectors stay"
        )
    store.refuse_mapped()
    calibration.check(
        dimension=store.dimension, metric=store.metric, model=store.model, name=store.name
    )
    left_out, written = Counter[str](), 0

    def map_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal written
        vectors, is_usable, codes = store.check_rows(
            batch, left_out, needs_language=bool(calibration.languages)
        )
        if calibration.languages:
            for code in sorted(set(codes[is_usable].tolist()) - set(calibration.languages)):
                left_out[f"in {code}, for which there is no map"] += int(
                    (is_usable & (codes == code)).sum()
                )
                is_usable &= codes != code
        mapped = np.full_like(vectors, np.nan)
        parts = [np.flatnonzero(is_usable)]
        while parts:
            rows = parts.pop()
            languages = codes[rows].tolist() if calibration.languages else None
            try:
                mapped[rows] = calibration.transform(vectors[rows], "document", languages)
            except ValueError:  # of a vector that is the mean itself, nothing is left
                parts += np.array_split(rows, 2) if len(rows) > 1 else []
        has_vector = (np.abs(mapped) <= np.finfo(store.numbers).max).all(axis=1)
        mapped[~has_vector] = np.nan
        left_out["of which the map leaves nothing to store"] += int((is_usable & ~has_vector).sum())
        written += int(has_vector.sum())
        bar.update(batch.num_rows)
        return batch.set_column(
            batch.schema.get_field_index("vector"), "vector", vector_column(mapped)
        )

    mark = f"{calibration.fingerprint} of {store.name_in_store}"
    with tqdm(total=len(store), unit=" rows", disable=not show_progress_bar) as bar:
        left_out["deleted meanwhile"] = gone = store.write(into, mark, map_batch)
    return RowCounts(written - gone, +left_out)
