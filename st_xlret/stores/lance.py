"""Vectors in a table of LanceDB."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from filelock import FileLock

from st_xlret.optional import import_optional
from st_xlret.stores.address import parse_address
from st_xlret.stores.base import Change
from st_xlret.stores.descriptions import metric_of, model_name_in
from st_xlret.stores.fields import Fields
from st_xlret.stores.reruns import RerunCounts
from st_xlret.stores.tables import TableStore, find_columns, number_type

_ORIGIN = b"st_xlret_map"  # in the metadata of a mapped table
_EMBEDDING_FUNCTIONS = b"embedding_functions"  # LanceDB's own metadata of a table


class LanceStore(TableStore):
    """A table in a folder of LanceDB. Its rows are those that are there when it is opened."""

    def __init__(self, address: str, fields: Fields) -> None:
        parsed = parse_address(address, "table", optional=("column",))
        lancedb = import_optional("lancedb", extra="lance", needed_for="vectors in LanceDB")
        self.name = parsed.shown
        self.name_in_store = parsed.options["table"]
        self.fields = replace(fields, vector=parsed.options.get("column", fields.vector))
        self.place = Path(parsed.place)
        with self.sanitize_errors():
            self.database = lancedb.connect(parsed.place)
            self.table = self.database.open_table(self.name_in_store)
            self.schema = self.table.schema
            self.present = self.schema.names
            self.columns = find_columns(self.schema, self.fields, self.name)
            self.numbers = number_type(self.schema, self.columns["vector"])
            self.dimension = self.vector_length()
            for index in self.table.list_indices():
                if self.columns["vector"] in index.columns:
                    metric = self.table.index_stats(index.name).distance_type
                    self.metric = metric_of(metric, self.name)
        metadata = self.schema.metadata or {}
        if _ORIGIN in metadata:
            self.origin = metadata[_ORIGIN].decode()
        for function in json.loads(metadata.get(_EMBEDDING_FUNCTIONS, b"[]")):
            if function.get("vector_column") == self.columns["vector"]:
                self.model = model_name_in(function.get("model") or {})

    def __len__(self) -> int:
        return int(self.table.count_rows())

    def write(self, into: str, origin: str, change: Change) -> RerunCounts:
        """A new table with all columns, committed once; a row without a vector has null."""
        metadata = dict(self.schema.metadata or {})
        # With its embedding function, new rows and queries would be embedded without the map.
        metadata.pop(_EMBEDDING_FUNCTIONS, None)
        metadata[_ORIGIN] = origin.encode()
        schema = self.schema.with_metadata(metadata)
        # Two programs would add to one table.
        with self.sanitize_errors(), FileLock(self.place / ".st-xlret.lock", timeout=0):
            self._refuse_table(into)
            batches = self._changed_batches(change, schema)
            reader = pa.RecordBatchReader.from_batches(schema, batches)
            table = self.database.create_table(into, reader, schema=schema, on_bad_vectors="null")
            self.check_all_stored(len(self), table.count_rows())
        return RerunCounts()

    def _refuse_table(self, name: str) -> None:
        """Refuse a name under which a table can be opened."""
        # A stopped run leaves a name that is listed and cannot be opened: it is free.
        with suppress(ValueError):
            self.database.open_table(name)
            raise self.name_taken(f"a table {name}")

    def _table_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        return iter(self.table.search().select(columns).to_batches(self.size))
