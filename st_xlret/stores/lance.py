"""Vectors in a column of a LanceDB table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from filelock import FileLock

from st_xlret.optional import import_optional
from st_xlret.stores.base import Change, Fields, metric_of, named_model, parse_address
from st_xlret.stores.files import TableStore

_MARK = b"st_xlret_map"  # in the metadata of a mapped table
_MADE_BY = b"embedding_functions"  # LanceDB's own metadata of a table


class LanceStore(TableStore):
    """A table in a folder of LanceDB. Its rows are those that are there when it is opened."""

    def __init__(self, address: str, fields: Fields) -> None:
        place, values, self.name, _ = parse_address(address, "table", optional=("column",))
        self.called, self.fields = values["table"], fields._replace(vector=values.get("column", fields.vector))
        lancedb = import_optional("lancedb", extra="lance", needed_for="vectors in LanceDB")
        with self.errors():
            self.database, self.place = lancedb.connect(place), Path(place)
            self.table = self.database.open_table(self.called)
            self._use(self.table.schema)
            for index in self.table.list_indices():
                if self.columns["vector"] in index.columns:
                    self.metric = metric_of(self.table.index_stats(index.name).distance_type, self.name)
        metadata = self.schema.metadata or {}
        self.mark = metadata[_MARK].decode() if _MARK in metadata else None
        for function in json.loads(metadata.get(_MADE_BY, b"[]")):
            if function.get("vector_column") == self.columns["vector"]:
                self.model = named_model(function.get("model") or {})

    def __len__(self) -> int:
        return int(self.table.count_rows())

    def write(self, into: str, mark: str, change: Change) -> int:
        """A new table with all columns, committed once; a row without a vector has null."""
        # With its embedding function, new rows and queries would be embedded without the map.
        metadata = {name: value for name, value in (self.schema.metadata or {}).items() if name != _MADE_BY}
        schema, sent = self.schema.with_metadata({**metadata, _MARK: mark.encode()}), 0

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal sent
            for batch in self._changed(change, schema):
                sent += batch.num_rows
                yield batch

        with self.errors(), FileLock(self.place / ".st-xlret.lock", timeout=0):  # two at once would add to one table
            # A stopped run leaves a name that is listed and cannot be opened: it is free.
            with suppress(ValueError):
                self.database.open_table(into)
                self.refuse_taken(f"a table {into}", True)
            reader = pa.RecordBatchReader.from_batches(schema, batches())
            table = self.database.create_table(into, reader, schema=schema, on_bad_vectors="null")
            return self.count_gone(sent, sent, table.count_rows())

    def _raw(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return iter(self.table.search().select(list(columns)).to_batches(self.size))
