"""Vectors in tables of Arrow, whose columns have the fields."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike

from st_xlret.stores.base import FIRST_ROWS, Change, Store
from st_xlret.stores.batches import first_vector_length, make_batch
from st_xlret.stores.fields import OF_SAMPLES, USUAL_FIELDS, Fields, find_field, named_field

_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
_IDS = ("id", "_id")


class TableStore(Store):
    """A table: a column of lists of floating-point numbers, and columns of languages and texts.

    Attributes:
        schema: Of the table.
        columns: What `find_columns` finds there.
    """

    schema: pa.Schema
    columns: dict[str, str]

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The rows in the order in which they were added, numbered from 0 if none has an id."""
        wanted = set(self.columns)
        if not texts:
            wanted &= {"id", "vector", *OF_SAMPLES}
        start = 0
        for batch in self._table_batches([self.columns[what] for what in wanted]):
            yield self._as_store_batch(batch, start)
            start += batch.num_rows

    @abstractmethod
    def _table_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows in the order of the table, in batches of at most `size`, with these columns.

        Callers take columns by their names: their order is free.
        """

    def vector_length(self) -> int:
        """Numbers in a vector, by the schema, else by the first vector, which is read."""
        column = self.columns["vector"]
        kind = self.schema.field(column).type
        if isinstance(kind, pa.FixedSizeListType):
            return int(kind.list_size)
        return first_vector_length(self._vectors_in(column))

    def _vectors_in(self, column: str) -> Iterator[list[float] | None]:
        """The vectors of a column, one after the other, read batch by batch."""
        for batch in self._table_batches([column]):
            for vector in batch.column(column):
                yield vector.as_py()

    def _as_store_batch(self, batch: pa.RecordBatch, start: int = 0) -> pa.RecordBatch:
        """The batch as `batches` gives it; rows without an id are numbered, from `start` on."""
        columns = {}
        for what, column in self.columns.items():
            if column in batch.schema.names:
                columns[what] = batch.column(column)
        vectors = columns.pop("vector")
        self._check_lengths(vectors, start)
        floats = vectors.cast(pa.list_(pa.float32(), self.dimension))
        return make_batch(range(start, start + batch.num_rows), floats, columns)

    def _check_lengths(self, vectors: pa.Array, start: int) -> None:
        """Refuse a vector of another length than the first one."""
        if isinstance(vectors.type, pa.FixedSizeListType):
            return
        lengths = pc.list_value_length(vectors)
        is_other = pc.fill_null(pc.not_equal(lengths, self.dimension), False)
        row = pc.index(is_other, True).as_py()
        if row >= 0:
            raise self.wrong_length(f"row {start + row}", lengths[row].as_py())

    def first_rows(self) -> list[Mapping[str, Any]]:
        """The columns of strings of the first rows."""
        names = [field.name for field in self.schema if pa.types.is_string(field.type)]
        for batch in self._table_batches(names):
            rows: list[Mapping[str, Any]] = batch[:FIRST_ROWS].to_pylist()
            return rows
        return []

    def _changed_batches(self, change: Change, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The whole table with changed vectors, in the columns and types of `schema`.

        That is the table's own, which may have other metadata.
        """
        place = schema.get_field_index(self.columns["vector"])
        for batch in self._table_batches(schema.names):
            changed = change(self._as_store_batch(batch)).column("vector")
            arrays = [batch.column(name) for name in schema.names]
            arrays[place] = changed.cast(schema.field(place).type)
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def find_columns(schema: pa.Schema, fields: Fields, where: str) -> dict[str, str]:
    """What a table has -> its column: "vector", and "id" and those of `USUAL_FIELDS` that it has.

    A `ValueError` lists the columns if none is one of vectors, or one that was named is not there;
    it begins with `where`, the name of the store.
    """
    kinds = ", ".join(f"{field.name} ({field.type})" for field in schema)
    lists = [field.name for field in schema if _is_vector(field.type)]
    vector = named_field(
        lists,
        fields.vector or "vector",
        f"{where}, of whose columns ({kinds}) lists of floating-point numbers are vectors,",
    )
    columns = {"vector": vector}
    own_id = find_field(schema.names, None, _IDS, where)
    if own_id:
        columns["id"] = own_id
    for what, usual in USUAL_FIELDS.items():
        column = find_field(schema.names, fields.named_for(what), usual, where)
        if column:
            columns[what] = column
    return columns


def number_type(schema: pa.Schema, column: str) -> DTypeLike:
    """The type of the numbers in a column of vectors."""
    numbers: DTypeLike = schema.field(column).type.value_type.to_pandas_dtype()
    return numbers


def _is_vector(kind: pa.DataType) -> bool:
    """Whether a type of Arrow is one of lists of floating-point numbers."""
    return isinstance(kind, _LISTS) and pa.types.is_floating(kind.value_type)
