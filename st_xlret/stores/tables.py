"""Vectors in tables of Arrow, whose columns have the fields."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from st_xlret.stores.base import FIRST_ROWS, Change, Store
from st_xlret.stores.batches import first_vector_length, make_batch
from st_xlret.stores.fields import OF_SAMPLES, USUAL_FIELDS, find_field

_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
_IDS = ("id", "_id")


class TableStore(Store):
    """A table: a column of lists of floating-point numbers, and columns of languages and texts.

    Attributes:
        schema: Of the table.
        columns: "vector", and "id" and each of `USUAL_FIELDS` that is there -> the column that has
            it.
    """

    schema: pa.Schema
    columns: dict[str, str]

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The rows in the order in which they were added, numbered from 0 if none has an id."""
        wanted = set(self.columns)
        if not texts:
            wanted &= {"id", "vector", *OF_SAMPLES}
        start = 0
        for batch in self._table_batches({self.columns[what] for what in wanted}):
            yield self._as_store_batch(batch, start)
            start += batch.num_rows

    @abstractmethod
    def _table_batches(self, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
        """The batches of the table, in its order, with these columns."""

    def _set_columns_and_dimension(self, schema: pa.Schema) -> None:
        """Set the schema, the columns that hold what is asked for, and what vectors are like.

        Without a length in the schema, the first vector is read.
        """
        self.schema = schema
        self.present = schema.names
        self.columns = self._find_columns()
        column = self.columns["vector"]
        kind = schema.field(column).type
        self.numbers = kind.value_type.to_pandas_dtype()
        self.dimension = kind.list_size if isinstance(kind, pa.FixedSizeListType) else 0
        if not self.dimension:
            self.dimension = first_vector_length(self._vectors_in(column))

    def _find_columns(self) -> dict[str, str]:
        """What is asked for -> its column, for what the table has: `vector` it always has."""
        kinds = ", ".join(f"{field.name} ({field.type})" for field in self.schema)
        where = (
            f"{self.name}, of whose columns ({kinds}) lists of floating-point numbers are vectors,"
        )
        lists = [field.name for field in self.schema if _is_vector(field.type)]
        vector = find_field(lists, self.fields.vector or "vector", (), where)
        columns = {"vector": vector or ""}
        own_id = find_field(self.schema.names, None, _IDS, self.name)
        if own_id:
            columns["id"] = own_id
        for what, usual in USUAL_FIELDS.items():
            named = self.fields.named_for(what)
            column = find_field(self.schema.names, named, usual, self.name)
            if column:
                columns[what] = column
        return columns

    def _vectors_in(self, column: str) -> Iterator[list[float] | None]:
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
        """The whole table with changed vectors, in the types of its own columns."""
        place = schema.get_field_index(self.columns["vector"])
        for batch in self._table_batches(schema.names):
            changed = change(self._as_store_batch(batch)).column("vector")
            arrays = batch.columns
            arrays[place] = changed.cast(schema.field(place).type)
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_vector(kind: pa.DataType) -> bool:
    return isinstance(kind, _LISTS) and pa.types.is_floating(kind.value_type)
