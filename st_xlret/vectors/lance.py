"""Vectors in a column of a LanceDB table."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from st_xlret.optional import import_optional
from st_xlret.vectors.address import parse_address
from st_xlret.vectors.base import Fields, Metric, VectorRows, VectorSource, VectorTarget, named_model, taken
from st_xlret.vectors.parquet import Columns

_MARK, _VERSION = b"st_xlret_map", ", version of "  # in the metadata of the mapped column
_MADE_BY = b"embedding_functions"  # LanceDB's own metadata of a table
_METRICS: dict[str, Metric] = {"cosine": "cosine", "dot": "dot", "l2": "euclidean"}


class LanceVectors(VectorSource):
    """A column of a table in a folder of LanceDB. Its rows are those that are there when it is opened."""

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
        self.called, self.mark = self.table.name, _mark_of(self.table, self.columns.vector)
        made_by = json.loads((self.table.schema.metadata or {}).get(_MADE_BY, b"[]"))
        self.model = next(
            (
                named_model(each.get("model") or {})
                for each in made_by
                if each.get("vector_column") == self.columns.vector
            ),
            None,
        )
        self.metric = next((_METRICS[kind] for kind in kinds if kind in _METRICS), None)
        if not len(self):
            raise ValueError(f"{self.name}: the table is empty")
        self.dimension = self.columns.dimension or next(self.read(256, False)).vectors.shape[1]

    def __len__(self) -> int:
        """With rows that were added since, which are not read."""
        with self.errors():
            return int(self.database.open_table(self.called).count_rows())

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

    def version(self) -> str:
        """When the version that is read was made. Its number would begin anew in a table that is made anew."""
        return next(time for number, time in self._versions() if number == self.table.version)

    def begins_as(self, version: str, rows: int) -> bool:
        """Whether its first rows are those of another version: whether rows were only added after them since."""
        number = next((number for number, time in self._versions() if time == version), None)
        if number is None:
            return False
        before = self.database.open_table(self.called)
        before.checkout(number)
        return _first_rows(before, rows) == _first_rows(self.table, rows)

    def _versions(self) -> list[tuple[int, str]]:
        return [(each["version"], each["timestamp"].isoformat()) for each in self.table.list_versions()]


class _Table(VectorTarget):
    continues = True
    everything = True

    def __init__(self, source: LanceVectors, name: str, mark: str) -> None:
        self.source, self.called, self.column = source, name, source.columns.vector
        self.name = f"the table {name}"
        self.switch, self.back = (f'table = database.open_table("{called}")' for called in (name, source.called))
        with source.errors():
            self.mark = f"{mark}{_VERSION}{source.version()}"
            self.is_new = name not in source.database.list_tables().tables
            if not self.is_new:
                known = source.database.open_table(name)
                made_by, _, version = (_mark_of(known, self.column) or "").rpartition(_VERSION)
                if made_by != mark:
                    raise taken(source.name, f"a table {name}")
                self.already = known.count_rows()
                if not source.begins_as(version, self.already):  # rows are continued by their number
                    raise FileExistsError(
                        f"{source.name}: rows were changed, deleted or moved since the table {name} was begun, so that "
                        "it cannot be continued: give another name, or drop it"
                    )

    def __enter__(self) -> VectorTarget:
        database, schema = self.source.database, self.source.table.schema
        with self.source.errors():
            if self.is_new:
                others = {name: value for name, value in (schema.metadata or {}).items() if name != _MADE_BY}
                place, field = schema.get_field_index(self.column), schema.field(self.column)
                field = field.with_metadata({**(field.metadata or {}), _MARK: self.mark})
                self.table = database.create_table(self.called, schema=schema.set(place, field).with_metadata(others))
            else:
                self.table = database.open_table(self.called)
                self.table.update_field_metadata({"path": self.column, "metadata": {_MARK.decode(): self.mark}})
        return self

    def missing(self, rows: VectorRows) -> NDArray[np.bool_]:
        """Rows are added in the order of the source: the first ones are there."""
        return np.asarray(rows.ids) >= self.already

    def write(self, rows: VectorRows) -> None:
        batch = self.source.columns.replaced(rows.records, rows.vectors)
        self.table.add(pa.Table.from_batches([batch]))


def _mark_of(table: Any, column: str) -> str | None:
    found = (table.schema.field(column).metadata or {}).get(_MARK) if column in table.schema.names else None
    return None if found is None else found.decode()


def _first_rows(table: Any, count: int) -> str:
    """What identifies the first rows: LanceDB's numbers of them, which change where a row is changed or moved."""
    digest = hashlib.sha256()
    for batch in table.search().select(["_rowid"]).with_row_id(True).limit(count).to_batches():
        digest.update(batch["_rowid"].to_numpy().tobytes())
    return digest.hexdigest()
