"""Vectors in a column of a LanceDB table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from st_xlret.optional import import_optional
from st_xlret.vectors.address import parse_address
from st_xlret.vectors.base import Fields, Metric, VectorRows, VectorSource, VectorTarget, taken
from st_xlret.vectors.parquet import Columns

_MARK, _VERSION = b"st_xlret_map", ", version "
_METRICS: dict[str, Metric] = {"cosine": "cosine", "dot": "dot", "l2": "euclidean"}


class LanceVectors(VectorSource):
    """A column of a table in a folder of LanceDB. It is read as it is when it is opened."""

    def __init__(self, source: str, fields: Fields) -> None:
        address = parse_address(source, "table", optional=("column",))
        self.name = address.shown
        self.fields = fields._replace(vector=address.values.get("column", fields.vector))
        lancedb = import_optional("lancedb", extra="lance", needed_for="vectors in LanceDB")
        if not os.path.isdir(address.place):
            raise FileNotFoundError(f"{self.name}: there is no such folder of LanceDB")
        with self.errors():
            self.database = lancedb.connect(address.place)
            self.table = self.database.open_table(address.values["table"])
            indexes = [
                each.name for each in self.table.list_indices() if self.fields.vector or "vector" in each.columns
            ]
            kinds = [self.table.index_stats(name).distance_type for name in indexes]
            self.table.checkout(self.table.version)
        self.columns = Columns(self.table.schema, self.fields, self.name)
        self.called, self.mark = self.table.name, _mark_of(self.table)
        self.metric = next((_METRICS[kind] for kind in kinds if kind in _METRICS), None)
        if not len(self):
            raise ValueError(f"{self.name}: the table is empty")
        self.dimension = self.columns.dimension or next(self.read(256, False)).vectors.shape[1]

    def __len__(self) -> int:
        with self.errors():
            return int(self.table.count_rows())

    def read(self, size: int, everything: bool) -> Iterator[VectorRows]:
        """The rows in the order in which they were added, numbered from 0."""
        start = 0
        columns = self.table.schema.names if everything else self.columns.needed
        for batch in self.table.search().select(columns).to_batches(size):
            yield self.columns.rows(batch, start, everything)
            start += batch.num_rows

    def target(self, name: str, mark: str) -> VectorTarget:
        """A new table with all columns; a row without a vector has null."""
        return _Table(self, name, mark)


class _Table(VectorTarget):
    continues = True
    everything = True

    def __init__(self, source: LanceVectors, name: str, mark: str) -> None:
        self.source, self.called = source, name
        version = str(source.table.version)
        self.schema = source.table.schema.with_metadata(
            {**(source.table.schema.metadata or {}), _MARK: f"{mark}{_VERSION}{version}"}
        )
        self.name = f"the table {name}"
        self.switch, self.back = (f'table = database.open_table("{called}")' for called in (name, source.called))
        with source.errors():
            if name in source.database.list_tables().tables:
                known = source.database.open_table(name)
                made_by, _, of_version = (_mark_of(known) or "").rpartition(_VERSION)
                if made_by != mark:
                    raise taken(source.name, f"a table {name}")
                if of_version != version:  # rows are continued by their number
                    raise FileExistsError(
                        f"{source.name} has changed since the table {name} was begun, so that it cannot be continued: "
                        "give another name, or drop it"
                    )
                self.already = known.count_rows()

    def __enter__(self) -> VectorTarget:
        with self.source.errors():
            self.table = self.source.database.create_table(self.called, schema=self.schema, exist_ok=True)
        return self

    def missing(self, rows: VectorRows) -> NDArray[np.bool_]:
        """Rows are added in the order of the source: the first ones are there."""
        return np.asarray(rows.ids) >= self.already

    def write(self, rows: VectorRows) -> None:
        batch = self.source.columns.replaced(rows.records, rows.vectors)
        self.table.add(pa.Table.from_batches([batch]))


def _mark_of(table: Any) -> str | None:
    found = (table.schema.metadata or {}).get(_MARK)
    return None if found is None else found.decode()
