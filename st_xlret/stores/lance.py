"""Vectors in a column of a LanceDB table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from st_xlret.optional import import_optional
from st_xlret.stores.base import METRICS, Change, Fields, Store, check_folder, check_name, named_model, parse_address
from st_xlret.stores.parquet import columns_of, replaced, standardised, width_of

_MARK = b"st_xlret_map"  # in the metadata of a mapped table
_MADE_BY = b"embedding_functions"  # LanceDB's own metadata of a table


class LanceStore(Store):
    """A column of a table in a folder of LanceDB. Its rows are those that are there when it is opened."""

    def __init__(self, address: str, fields: Fields) -> None:
        place, values, self.name, _ = parse_address(address, "table", optional=("column",))
        self.called, self.fields = values["table"], fields._replace(vector=values.get("column", fields.vector))
        lancedb = import_optional("lancedb", extra="lance", needed_for="vectors in LanceDB")
        check_folder(place, self.name)
        with self.errors():
            self.database = lancedb.connect(place)
            self.table = self.database.open_table(self.called)
            self.schema = self.table.schema
            indices = [(each.name, each.columns) for each in self.table.list_indices()]
        self.columns = columns_of(self.schema, self.fields, self.name)
        column, metadata = self.columns["vector"], self.schema.metadata or {}
        self.mark = metadata[_MARK].decode() if _MARK in metadata else None
        for function in json.loads(metadata.get(_MADE_BY, b"[]")):
            if function.get("vector_column") == column:
                self.model = named_model(function.get("model") or {})
        with self.errors():
            for name, columns in indices:
                if column in columns:
                    self.metric = METRICS.get(self.table.index_stats(name).distance_type)
            self.dimension = width_of(self.schema, column, self._raw([column]), self.name)

    def __len__(self) -> int:
        return int(self.table.count_rows())

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The rows in the order in which they were added, numbered from 0."""
        needed = {column for name, column in self.columns.items() if texts or name != "text"}
        start = 0
        for batch in self._raw(list(needed)):
            yield standardised(batch, self.columns, self.dimension, start)
            start += batch.num_rows

    def write(self, into: str, mark: str, change: Change) -> None:
        """A new table with all columns, committed once; a row without a vector has null."""
        # A stopped run leaves a name that is listed and cannot be opened: it is free.
        with suppress(ValueError):
            self.database.open_table(into)
            check_name(self.name, f"a table {into}", is_taken=True)
        # With its embedding function, new rows and queries would be embedded without the map.
        metadata = {name: value for name, value in (self.schema.metadata or {}).items() if name != _MADE_BY}
        schema = self.schema.with_metadata({**metadata, _MARK: mark.encode()})

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in self._raw(self.schema.names):
                rows = standardised(batch, self.columns, self.dimension)
                yield replaced(batch, self.columns["vector"], change(rows), schema)

        with self.errors():
            reader = pa.RecordBatchReader.from_batches(schema, batches())
            self.database.create_table(into, reader, schema=schema, on_bad_vectors="null")

    def _raw(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        return iter(self.table.search().select(columns).to_batches(self.size))
