"""Vectors in a column of a LanceDB table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

from st_xlret.optional import import_optional
from st_xlret.stores.base import METRICS, Change, Fields, named_model, parse_address
from st_xlret.stores.parquet import TableStore

_MARK = b"st_xlret_map"  # in the metadata of a mapped table
_MADE_BY = b"embedding_functions"  # LanceDB's own metadata of a table


class LanceStore(TableStore):
    """A table in a folder of LanceDB. Its rows are those that are there when it is opened."""

    def __init__(self, address: str, fields: Fields) -> None:
        place, values, self.name, _ = parse_address(address, "table", optional=("column",))
        self.called, self.fields = values["table"], fields._replace(vector=values.get("column", fields.vector))
        lancedb = import_optional("lancedb", extra="lance", needed_for="vectors in LanceDB")
        with self.errors():
            self.database = lancedb.connect(place)
            self.table = self.database.open_table(self.called)
            self._use(self.table.schema)
            for index in self.table.list_indices():
                if self.columns["vector"] in index.columns:
                    self.metric = METRICS.get(self.table.index_stats(index.name).distance_type)
        metadata = self.schema.metadata or {}
        self.mark = metadata[_MARK].decode() if _MARK in metadata else None
        for function in json.loads(metadata.get(_MADE_BY, b"[]")):
            if function.get("vector_column") == self.columns["vector"]:
                self.model = named_model(function.get("model") or {})

    def __len__(self) -> int:
        return int(self.table.count_rows())

    def write(self, into: str, mark: str, change: Change) -> None:
        """A new table with all columns, committed once; a row without a vector has null."""
        # A stopped run leaves a name that is listed and cannot be opened: it is free.
        with suppress(ValueError):
            self.database.open_table(into)
            self.refuse_taken(f"a table {into}", True)
        # With its embedding function, new rows and queries would be embedded without the map.
        metadata = {name: value for name, value in (self.schema.metadata or {}).items() if name != _MADE_BY}
        schema = self.schema.with_metadata({**metadata, _MARK: mark.encode()})
        with self.errors():
            reader = pa.RecordBatchReader.from_batches(schema, self._changed(change, schema))
            self.database.create_table(into, reader, schema=schema, on_bad_vectors="null")

    def _raw(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return iter(self.table.search().select(list(columns)).to_batches(self.size))
