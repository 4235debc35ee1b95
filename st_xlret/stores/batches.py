"""Batches of rows as Arrow has them: what every store gives, and takes back with other vectors."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from st_xlret.stores.fields import USUAL_FIELDS

Matrix = NDArray[np.float32]


def make_batch(
    ids: Iterable[Any], vectors: pa.Array, beside: Mapping[str, Any] | None = None
) -> pa.RecordBatch:
    """A batch as `Store.batches` gives them; columns that are not `beside` the vectors are null.

    The vectors are those of `vector_column`. An `id` beside them is taken instead of `ids`.
    """
    columns: dict[str, Any] = dict.fromkeys(USUAL_FIELDS, pa.nulls(len(vectors)))
    columns["id"] = [str(one) for one in ids]
    columns.update(beside or {})
    batch = {name: _string_column(pa.array(values)) for name, values in columns.items()}
    batch["vector"] = vectors
    return pa.record_batch(batch)


def _string_column(column: pa.Array) -> pa.Array:
    """A column as text.

    Where Arrow refuses a value, such as bytes that are no UTF-8, each is as Python writes it.
    """
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        return pa.array([_as_text(value) for value in column.to_pylist()], pa.string())


def _as_text(value: Any) -> str | None:
    """A value of a store as text; None stays."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)


def batch_vectors(batch: pa.RecordBatch) -> Matrix:
    """The vectors of a batch, (n, d), with NaN in rows that have none."""
    column = batch.column("vector")
    width = column.type.list_size
    numbers = column.values.slice(column.offset * width, len(column) * width)
    rows: Matrix = numbers.to_numpy(zero_copy_only=False).reshape(len(column), width)
    if column.null_count:
        rows = rows.copy()
        rows[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return rows


def vector_column(vectors: Matrix) -> pa.FixedSizeListArray:
    """Vectors (n, d) as an Arrow column; rows that begin with NaN are null."""
    is_missing = np.isnan(vectors[:, 0])
    mask = pa.array(is_missing) if is_missing.any() else None
    numbers = pa.array(np.ascontiguousarray(vectors).ravel())
    return pa.FixedSizeListArray.from_arrays(numbers, vectors.shape[1], mask=mask)


def vector_matrix(vectors: Sequence[Any], dimension: int) -> Matrix:
    """Vectors as a database gives them, or None for none, as (n, d) with NaN in these rows."""
    rows = np.full((len(vectors), dimension), np.nan, np.float32)
    for row, vector in enumerate(vectors):
        if vector is not None:
            rows[row] = vector
    return rows


def first_vector_length(vectors: Iterable[Any]) -> int:
    """Numbers in the first vector that there is; 0 if there is none."""
    for vector in vectors:
        if vector is not None:
            return len(vector)
    return 0
