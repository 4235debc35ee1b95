"""Vectors in a column of a Parquet file, or of a folder of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from st_xlret.files import atomic_file
from st_xlret.vectors.base import (
    LANGUAGE_FIELDS,
    Fields,
    VectorRows,
    VectorSource,
    VectorTarget,
    cast,
    existing_file,
    field_among,
)
from st_xlret.vectors.numpy_file import new_file

METADATA = b"st_xlret"
"""Key of the file's metadata: JSON that may have "model", "fingerprint", "prompts", "metric" and "map"."""

_GROUP = 32_768  # rows that are written at a time
_BUFFER = 2**20  # bytes that are read at a time


class ParquetVectors(VectorSource):
    """A column of lists of floating-point numbers, and columns of languages and texts."""

    def __init__(self, path: str, fields: Fields) -> None:
        self.name, self.called, self.fields = path, path, fields
        found = existing_file(path)
        self.files = sorted(found.rglob("*.parquet")) if found.is_dir() else [found]
        with self.errors():
            about = [pq.read_metadata(file) for file in self.files]
            schemas = [each.schema.to_arrow_schema() for each in about]
        self.schema, self.rows = schemas[0], sum(each.num_rows for each in about)
        for file, schema in zip(self.files, schemas, strict=True):
            if not schema.equals(self.schema):
                differ = {field.name for field in {*schema} ^ {*self.schema}}
                raise ValueError(f"{file} and {self.files[0]} differ in the columns {', '.join(sorted(differ))}")
        self.columns = Columns(self.schema, fields, path)
        try:
            self.about = dict(json.loads((self.schema.metadata or {}).get(METADATA, b"{}")))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: its metadata {METADATA.decode()!r} are no JSON mapping: {error}") from error
        self.metric, self.mark = self.about.get("metric"), self.about.get("map")
        self.model, self.fingerprint = self.about.get("model"), self.about.get("fingerprint")
        self.dimension = self.columns.dimension or next(
            (rows.vectors.shape[1] for rows in self.read(256, False) if rows.usable().any()), 0
        )
        if not self.dimension:
            raise ValueError(f"{path}: the column {self.columns.vector!r} is empty")

    def __len__(self) -> int:
        return self.rows

    def read(self, size: int, everything: bool) -> Iterator[VectorRows]:
        """The rows, numbered from 0 through all files."""
        start = 0
        for file in self.files:
            with pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER) as opened:  # else it keeps what was read
                for batch in opened.iter_batches(size, columns=None if everything else self.columns.needed):
                    yield self.columns.rows(batch, start, everything)
                    start += batch.num_rows

    def target(self, name: str, mark: str) -> VectorTarget:
        """A new file with all columns; a row without a vector has null."""
        path, folder = new_file(name, ".parquet").resolve(), Path(self.name).expanduser().resolve()
        if folder in path.parents:
            raise ValueError(f"{name} is in {self.name}, and would be read as a part of it: give another folder")
        return _ParquetFile(self, Path(name).expanduser(), mark)


class Columns:
    """Which columns of an Arrow table have vectors, languages and texts.

    Args:
        schema: The schema of the table.
        fields: What was asked for.
        where: The source, for messages.
    """

    def __init__(self, schema: pa.Schema, fields: Fields, where: str) -> None:
        self.where = where
        lists = [field.name for field in schema if _is_vector(field.type)]
        if fields.vector in schema.names and fields.vector not in lists:
            raise ValueError(
                f"{where}: the column {fields.vector!r} is of {schema.field(fields.vector).type}, not of lists of "
                "floating-point numbers"
            )
        vector = field_among(lists, fields.vector, ("vector",), f"{where}, among its columns of vectors,")
        if vector is None:
            raise ValueError(f"{where} has no column 'vector'; name one (--vector_field): {', '.join(lists) or 'none'}")
        self.vector, self.type = vector, schema.field(vector).type
        self.language = field_among(schema.names, fields.language, LANGUAGE_FIELDS, where)
        self.text = field_among(schema.names, fields.text, ("text",), where)
        self.document = field_among(schema.names, fields.document, (), where)
        self.needed = list(dict.fromkeys(name for name in (vector, self.language, self.document) if name))
        for name in self.needed[1:]:
            if pa.types.is_nested(schema.field(name).type):
                raise ValueError(f"{where}: the column {name!r} is of {schema.field(name).type}, not of single values")
        self.dimension = self.type.list_size if pa.types.is_fixed_size_list(self.type) else None

    def rows(self, batch: pa.RecordBatch, start: int, everything: bool) -> VectorRows:
        """A batch of the table, whose rows are numbered from `start`."""

        def strings(name: str | None) -> list[str | None]:
            return _strings(batch.column(name)) if name in batch.schema.names else [None] * batch.num_rows

        return VectorRows(
            range(start, start + batch.num_rows),
            self._vectors(batch.column(self.vector), start),
            strings(self.language),
            strings(self.text),
            strings(self.document),
            batch if everything else None,
        )

    def replaced(self, batch: pa.RecordBatch, vectors: NDArray[np.float32]) -> pa.RecordBatch:
        """The batch with other vectors, of the same type; rows of NaN become null."""
        there = ~np.isnan(vectors[:, 0])
        mask = None if there.all() else pa.array(~there)
        numbers = cast(vectors, self.type.value_type.to_pandas_dtype())
        if pa.types.is_fixed_size_list(self.type):
            column = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), type=self.type, mask=mask)
        else:
            is_large = pa.types.is_large_list(self.type)
            lists = pa.LargeListArray if is_large else pa.ListArray
            ends = np.append(0, np.cumsum(there) * vectors.shape[1]).astype(np.int64 if is_large else np.int32)
            numbers = numbers if mask is None else numbers[there]
            column = lists.from_arrays(pa.array(ends), pa.array(numbers.ravel()), type=self.type, mask=mask)
        place = batch.schema.get_field_index(self.vector)
        return batch.set_column(place, batch.schema.field(place), column)

    def _vectors(self, column: Any, start: int) -> NDArray[np.float32]:
        lengths = pc.unique(pc.drop_null(pc.list_value_length(column))).to_pylist()
        dimension = self.dimension or (lengths[0] if lengths else 1)
        if set(lengths) - {dimension}:
            wrong = pc.index(pc.not_equal(pc.list_value_length(column), dimension), True).as_py()
            raise ValueError(
                f"{self.where}: the vector of row {start + wrong} has {len(column[wrong])} numbers, those before it "
                f"{dimension}"
            )
        if not pa.types.is_fixed_size_list(self.type) and lengths:
            self.dimension = dimension
        full = column if not column.null_count else column.drop_null()
        numbers = cast(full.flatten().to_numpy(zero_copy_only=False), np.float32).reshape(-1, dimension)
        if not column.null_count:
            return numbers
        vectors = np.full((len(column), dimension), np.nan, np.float32)
        vectors[column.is_valid().to_numpy(zero_copy_only=False)] = numbers
        return vectors


class _ParquetFile(VectorTarget):
    everything = True

    def __init__(self, source: ParquetVectors, path: Path, mark: str) -> None:
        self.path, self.name, self.columns = path, str(path), source.columns
        about = json.dumps({**source.about, "map": mark}).encode()
        self.schema = source.schema.with_metadata({**(source.schema.metadata or {}), METADATA: about})
        self.switch, self.back = (f'table = pq.read_table("{file}")' for file in (path, source.name))

    def __enter__(self) -> VectorTarget:
        self.stack = ExitStack()
        temporary = self.stack.enter_context(atomic_file(self.path))
        others = [name for name in self.schema.names if name != self.columns.vector]
        how = {"use_dictionary": others, "write_statistics": others, "compression": dict.fromkeys(others, "snappy")}
        self.writer = self.stack.enter_context(pq.ParquetWriter(temporary, self.schema, **how))
        self.thread = self.stack.enter_context(ThreadPoolExecutor(1))
        self.written: Future[None] | None = None
        self.batches: list[pa.RecordBatch] = []
        return self

    def write(self, rows: VectorRows) -> None:
        """A row group at a time, in a thread, while the next rows are mapped."""
        self.batches.append(self.columns.replaced(rows.records, rows.vectors))
        if sum(batch.num_rows for batch in self.batches) >= _GROUP:
            self._write()

    def __exit__(self, kind: Any, *error: Any) -> Any:
        with self.stack:
            if kind is None:
                self._write()
                self._wait()
            return self.stack.pop_all().__exit__(kind, *error)

    def _write(self) -> None:
        self._wait()
        group, self.batches = pa.Table.from_batches(self.batches, self.schema), []
        self.written = self.thread.submit(self.writer.write_table, group)

    def _wait(self) -> None:
        if self.written is not None:
            self.written.result()


def _is_vector(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return is_list and pa.types.is_floating(kind.value_type)


def _strings(column: Any) -> list[str | None]:
    encoded = column.dictionary_encode()
    names = [str(value) if value not in (None, "") else None for value in encoded.dictionary.to_pylist()]
    return [None if number is None else names[number] for number in encoded.indices.to_pylist()]
