"""Map the vectors of a store into something new beside them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tqdm.auto import tqdm

from st_xlret.calibration.rows import NoDirectionError
from st_xlret.stores.base import Origin, Store
from st_xlret.stores.batches import Matrix, vector_column
from st_xlret.stores.left_out import LeftOut, Reason

if TYPE_CHECKING:
    from st_xlret import VectorCalibration


class RowCounts(NamedTuple):
    """What `apply_calibration` has done with the rows, in this run.

    Attributes:
        written: How many were written.
        left_out: How many were not, by the reason. Those that are mapped already are not counted.
        changed: How many of those written had another mapped vector before.
    """

    written: int
    left_out: Counter[str]
    changed: int = 0


def apply_calibration(
    calibration: VectorCalibration, store: Store, into: str, *, show_progress_bar: bool = False
) -> RowCounts:
    """Write the mapped vectors of a store into something new. Nothing that is there is changed.

    In a store that `StoreKind.is_continued` every batch counts: the same call continues a run that
    was interrupted, maps rows that were added since, and maps those again whose vector has changed.
    Another store is written whole or not at all.

    `into` is the name of what is written: a file or, in a database, a named vector, a column, a
    table or a collection, as the guide of stored vectors has it for each store. An `OSError` says
    that the name is taken, or that the store has not taken all rows; a `ValueError` that the map is
    of other vectors, or of queries alone, or that the vectors are mapped already.

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
            "this calibration maps queries alone: there is nothing to write, "
            "the stored vectors stay"
        )
    store.refuse_mapped()
    calibration.check(
        dimension=store.dimension, metric=store.metric, model=store.model, name=store.name
    )
    origin = Origin(calibration.fingerprint, store.name_in_store)
    with tqdm(total=len(store), unit=" rows", disable=not show_progress_bar) as bar:
        mapping = _Mapping(calibration, store, bar)
        counts = store.write(into, str(origin), mapping.map_batch)
    mapping.left_out.add(Reason.DELETED, counts.gone)
    written = mapping.mapped - counts.gone - counts.kept
    return RowCounts(written, mapping.left_out.counts_by_words(), counts.changed)


class _Mapping:
    """Maps batch after batch, and counts which rows have a mapped vector and which have none."""

    def __init__(self, calibration: VectorCalibration, store: Store, bar: tqdm) -> None:
        self.mapped = 0
        self.left_out = LeftOut()
        self._calibration = calibration
        self._store = store
        self._bar = bar

    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with mapped vectors; null where there is none, as `Store.write` takes it.

        Each row is given once, as they are counted.
        """
        needs_language = bool(self._calibration.languages)
        vectors, is_usable, codes = self._store.examine_rows(
            batch, self.left_out, needs_language=needs_language
        )
        if needs_language:
            has_map = np.isin(codes, self._calibration.languages)
            for code in sorted(codes[is_usable & ~has_map]):
                self.left_out.add(Reason.NO_MAP, 1, code)
            is_usable = is_usable & has_map
        mapped = self._map_rows(vectors, is_usable, codes)
        has_vector = (np.abs(mapped) <= np.finfo(self._store.numbers).max).all(axis=1)
        mapped[~has_vector] = np.nan
        self.left_out.add(Reason.NOTHING_TO_STORE, int((is_usable & ~has_vector).sum()))
        self.mapped += int(has_vector.sum())
        self._bar.update(batch.num_rows)
        place = batch.schema.get_field_index("vector")
        return batch.set_column(place, "vector", vector_column(mapped))

    def _map_rows(
        self, vectors: Matrix, is_usable: NDArray[np.bool_], codes: NDArray[np.object_]
    ) -> Matrix:
        """The mapped vectors, NaN where a row is not usable, or the map leaves it no direction."""
        mapped = np.full_like(vectors, np.nan)
        parts = [np.flatnonzero(is_usable)]
        while parts:
            rows = parts.pop()
            languages = codes[rows].tolist() if self._calibration.languages else None
            try:
                mapped[rows] = self._calibration.transform(vectors[rows], "document", languages)
            except NoDirectionError:  # of a vector that is the mean itself, nothing is left
                if len(rows) > 1:
                    parts += np.array_split(rows, 2)
        return mapped
