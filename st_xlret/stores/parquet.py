"""Vectors in a column of a Parquet file, or of a folder of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
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


class ParquetStore(Store):
    """A column of lists of floating-point numbers, and columns of languages and texts."""

    def __init__(self, path: str, fields: Fields) -> None:
        self.name, self.called, self.fields = path, path, fields
        place = Path(path).expanduser()
        self.files = sorted(place.rglob("*.parquet")) if place.is_dir() else [place]
        with self.errors():
            metadata = {file: pq.read_metadata(file) for file in self.files}
            self.schema = next(iter(metadata.values())).schema.to_arrow_schema()
            self.about = dict(json.loads((self.schema.metadata or {}).get(METADATA, b"{}")))
        for file, each in metadata.items():
            differ = {field.name for field in {*each.schema.to_arrow_schema()} ^ {*self.schema}}
            if differ:
                raise ValueError(f"{file} and {self.files[0]} differ in the columns {', '.join(sorted(differ))}")
        self.columns = columns_of(self.schema, fields, path)
        self.rows = sum(each.num_rows for each in metadata.values())
        self.metric, self.mark = self.about.get("metric"), self.about.get("map")
        self.model, self.fingerprint = self.about.get("model"), self.about.get("fingerprint")
        self.dimension = width_of(self.schema, self.columns["vector"], self._raw([self.columns["vector"]]), path)

    def __len__(self) -> int:
        return self.rows

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The rows, numbered from 0 through all files."""
        needed = [column for name, column in self.columns.items() if texts or name != "text"]
        start = 0
        for batch in self._raw(needed):
            yield standardised(batch, self.columns, self.dimension, start)
            start += batch.num_rows

    def write(self, into: str, mark: str, change: Change) -> None:
        """A new file with all columns; a row without a vector has null."""
        path = new_file(into, ".parquet")
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
            for batch in self._raw():
                rows = standardised(batch, self.columns, self.dimension)
                writer.write_batch(replaced(batch, self.columns["vector"], change(rows), schema))

    def _raw(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            # Otherwise pyarrow keeps what was read: 90 MB more for 307 MB of vectors; its datasets keep 325 and more.
            with self.errors(), pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER) as opened:
                yield from opened.iter_batches(self.size, columns=columns and list(dict.fromkeys(columns)))


def columns_of(schema: pa.Schema, fields: Fields, where: str) -> dict[str, str]:
    """`vector`, `language` and `text` -> the column of a table that has it, if there is one."""
    lists = [field.name for field in schema if _is_vector(field.type)]
    columns = {
        "vector": field_among(lists, fields.vector or "vector", (), f"{where}, among its columns of vectors,"),
        "language": field_among(schema.names, fields.language, LANGUAGE_FIELDS, where),
        "text": field_among(schema.names, fields.text, ("text",), where),
    }
    return {name: column for name, column in columns.items() if column}


def standardised(batch: pa.RecordBatch, columns: dict[str, str], dimension: int, start: int = 0) -> pa.RecordBatch:
    """A batch as `Store.batches` gives them, of a table's batch whose rows are numbered from `start`."""
    nothing = pa.nulls(batch.num_rows, pa.string())
    strings = {
        name: batch.column(columns[name]).cast(pa.string()) if columns.get(name) in batch.schema.names else nothing
        for name in ("language", "text")
    }
    vectors = batch.column(columns["vector"]).cast(pa.list_(pa.float32(), dimension))
    ids = pa.array(range(start, start + batch.num_rows)).cast(pa.string())
    return pa.record_batch({"id": ids, "vector": vectors, **strings})


def replaced(batch: pa.RecordBatch, column: str, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A table's batch with the vectors of other rows in a column, in the column's own type."""
    place = schema.get_field_index(column)
    vectors = rows.column("vector").cast(schema.field(place).type)
    arrays = [vectors if number == place else array for number, array in enumerate(batch.columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def width_of(schema: pa.Schema, column: str, batches: Iterator[pa.RecordBatch], where: str) -> int:
    """Numbers in a vector; of lists of any length, in the first one."""
    kind = schema.field(column).type
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    return first_length((vector.as_py() for batch in batches for vector in batch.column(column)), where)


def _is_vector(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return is_list and pa.types.is_floating(kind.value_type)
