"""Vectors in a column of a Parquet file, or of a folder of them; and what is common to all tables of Arrow."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from st_xlret.files import atomic_file
from st_xlret.stores.base import LANGUAGE_FIELDS, Change, Fields, Store, field_among, first_length
from st_xlret.stores.files import new_file

METADATA = b"st_xlret"
"""Key of the file's metadata: JSON that may have "model", "fingerprint", "prompts", "metric" and "map"."""

_BUFFER = 2**20  # bytes that are read at a time


class TableStore(Store):
    """A table of Arrow: a column of lists of floating-point numbers, and columns of languages and texts.

    Attributes:
        schema: The schema of the table.
        columns: "vector", "language" and "text" -> the column that has it, if there is one.
    """

    schema: pa.Schema
    columns: dict[str, str]

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The rows in the order in which they were added, numbered from 0."""
        start = 0
        for batch in self._raw({column for name, column in self.columns.items() if texts or name != "text"}):
            yield self._rows(batch, start)
            start += batch.num_rows

    @abstractmethod
    def _raw(self, columns: Any) -> Iterator[pa.RecordBatch]:
        """The batches of the table, with these columns."""

    def _use(self, schema: pa.Schema) -> None:
        """Find what is asked for in the table."""
        self.schema, where = schema, f"{self.name}, among its columns of vectors,"
        lists = [field.name for field in schema if _is_vector(field.type)]
        columns = {
            "vector": field_among(lists, self.fields.vector or "vector", (), where),
            "language": field_among(schema.names, self.fields.language, LANGUAGE_FIELDS, self.name),
            "text": field_among(schema.names, self.fields.text, ("text",), self.name),
        }
        self.columns = {name: column for name, column in columns.items() if column}
        column = self.columns["vector"]
        vectors = (vector.as_py() for batch in self._raw([column]) for vector in batch.column(column))
        kind = schema.field(column).type
        is_fixed = pa.types.is_fixed_size_list(kind)
        self.dimension = kind.list_size if is_fixed else first_length(vectors, self.name)

    def _rows(self, batch: pa.RecordBatch, start: int = 0) -> pa.RecordBatch:
        """A batch of the table as `batches` gives it."""
        rows = {name: pa.nulls(batch.num_rows, pa.string()) for name in ("language", "text")}
        for name in rows.keys() & self.columns.keys():
            if self.columns[name] in batch.schema.names:
                rows[name] = batch.column(self.columns[name]).cast(pa.string())
        rows["vector"] = batch.column(self.columns["vector"]).cast(pa.list_(pa.float32(), self.dimension))
        rows["id"] = pa.array(range(start, start + batch.num_rows)).cast(pa.string())
        return pa.record_batch(rows)

    def _changed(self, change: Change, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The whole table with changed vectors, in the types of its own columns."""
        place = schema.get_field_index(self.columns["vector"])
        for batch in self._raw(schema.names):
            arrays = batch.columns
            arrays[place] = change(self._rows(batch)).column("vector").cast(schema.field(place).type)
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class ParquetStore(TableStore):
    """A file, or a folder of files that have the same columns."""

    def __init__(self, path: str, fields: Fields) -> None:
        self.name, self.called, self.fields = path, path, fields
        place = Path(path).expanduser()
        self.files = sorted(place.rglob("*.parquet")) if place.is_dir() else [place]
        with self.errors():
            metadata = [pq.read_metadata(file) for file in self.files]
            schemas = [each.schema.to_arrow_schema() for each in metadata]
            self.about = dict(json.loads((schemas[0].metadata or {}).get(METADATA, b"{}")))
        for file, schema in zip(self.files, schemas, strict=True):
            if differ := {field.name for field in {*schema} ^ {*schemas[0]}}:
                raise ValueError(f"{file} and {self.files[0]} differ in the columns {', '.join(sorted(differ))}")
        self.rows = sum(each.num_rows for each in metadata)
        self.metric, self.mark = self.about.get("metric"), self.about.get("map")
        self.model, self.fingerprint = self.about.get("model"), self.about.get("fingerprint")
        self._use(schemas[0])

    def __len__(self) -> int:
        return self.rows

    def write(self, into: str, mark: str, change: Change) -> None:
        """A new file with all columns; a row without a vector has null."""
        path = new_file(self, into, ".parquet")
        if Path(self.name).expanduser().resolve() in path.resolve().parents:
            raise ValueError(f"{into} is in {self.name}, and would be read as a part of it: give another folder")
        about = json.dumps({**self.about, "map": mark}).encode()
        schema = self.schema.with_metadata({**(self.schema.metadata or {}), METADATA: about})
        others = [name for name in schema.names if name != self.columns["vector"]]
        # Neither pays for vectors, whose numbers are all different.
        how: Any = {
            "use_dictionary": others,
            "compression": dict.fromkeys(others, "snappy"),
            "write_statistics": others,
        }
        with atomic_file(path) as temporary, pq.ParquetWriter(temporary, schema, **how) as writer:
            for batch in self._changed(change, schema):
                writer.write_batch(batch)

    def _raw(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            # Otherwise pyarrow keeps what was read: 90 MB more for 307 MB of vectors; its datasets keep 325 and more.
            with self.errors(), pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER) as opened:
                yield from opened.iter_batches(self.size, columns=list(columns))


def _is_vector(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return is_list and pa.types.is_floating(kind.value_type)
