"""Vectors in files: a NumPy array, a faiss index, and tables, which are Parquet files or in LanceDB."""

import json
import sys
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from st_xlret.files import atomic_file
from st_xlret.folders import columns_of_folders, files_below
from st_xlret.optional import import_optional
from st_xlret.stores import base
from st_xlret.stores.base import (
    USUAL_FIELDS,
    Change,
    Fields,
    Matrix,
    Store,
    batch_vectors,
    make_batch,
    vector_column,
)

METADATA = b"st_xlret"
"""Key of a Parquet file's metadata: JSON that may have "model", "fingerprint", "prompts", "metric" and "map"."""

_BUFFER = 2**20  # bytes of a Parquet file that are read at a time
_PER_LIST = 64  # vectors by which the centre of a list of an IVF index is found
_LANCE_MARK = b"st_xlret_map"  # in the metadata of a mapped table
_MADE_BY = b"embedding_functions"  # LanceDB's own metadata of a table


class NumberedStore(Store):
    """Rows that are numbered from 0 and have no fields; their languages are in a file, a code a line."""

    @abstractmethod
    def read_vectors(self, start: int, stop: int) -> Matrix:
        """The vectors of some rows."""

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The rows in their order."""
        codes: list[str | None] = [None] * len(self)
        if file := self.fields.languages_file:
            with open(file, encoding="utf-8-sig") as lines:
                codes = [sys.intern(line.strip()) or None for line in lines]
        if len(codes) != len(self):
            raise ValueError(
                f"{file} has {len(codes)} lines, and {self.name} has {len(self)} vectors"
            )
        for start in range(0, len(self), self.size):
            stop = min(start + self.size, len(self))
            column = vector_column(self.read_vectors(start, stop))
            yield make_batch(range(start, stop), column, {"language": codes[start:stop]})


class NumpyStore(NumberedStore):
    """An array (rows, dimension) of floating-point numbers, `.npy`, which stays on the disk."""

    def __init__(self, path: str, fields: Fields) -> None:
        self.name, self.name_in_store, self.fields = path, path, fields
        with self.sanitize_errors():
            self.array = np.load(Path(path).expanduser(), mmap_mode="c", allow_pickle=False)
        if (
            self.array.ndim != 2
            or not self.array.shape[1]
            or not np.issubdtype(self.array.dtype, np.floating)
        ):
            kind = f"{self.array.dtype} of the shape {self.array.shape}"
            raise ValueError(
                f"{path} has {kind}; vectors are floating-point numbers of the shape (rows, dimension)"
            )
        self.dimension, self.numbers = self.array.shape[1], self.array.dtype

    def __len__(self) -> int:
        return len(self.array)

    def read_vectors(self, start: int, stop: int) -> Matrix:
        """The rows as float32."""
        with np.errstate(
            over="ignore"
        ):  # a float64 that float32 does not hold becomes infinite: not usable
            return self.array[start:stop].astype(np.float32)

    def write(self, into: str, mark: str, change: Change) -> int:
        """A new `.npy` file; a row without a vector is a row of NaN."""
        with (
            atomic_file(new_file_path(self, into, ".npy"), ours="") as temporary,
            open(temporary, "wb") as file,
        ):
            header = {
                "descr": self.array.dtype.str,
                "fortran_order": False,
                "shape": self.array.shape,
            }
            np.lib.format.write_array_header_1_0(file, header)
            for batch in map(change, self.batches()):
                # Not `open_memmap`, which on a full disk kills the process.
                file.write(batch_vectors(batch).astype(self.array.dtype).data)
        return 0


class FaissStore(NumberedStore):
    """A flat or IVF index that has whole vectors, `.faiss`, which is read into memory; its rows are numbered from 0."""

    def __init__(self, path: str, fields: Fields) -> None:
        import faiss

        self.name, self.name_in_store, self.fields = path, path, fields
        with self.sanitize_errors():
            self.index: Any = faiss.read_index(str(Path(path).expanduser()))
        self.is_ivf = isinstance(self.index, faiss.IndexIVFFlat)
        is_read = self.index.ntotal > 0 and (self.is_ivf or isinstance(self.index, faiss.IndexFlat))
        problem = (
            None if is_read else "IndexFlat and IndexIVFFlat are read, for others map queries alone"
        )
        if is_read and self.is_ivf:
            lists = self.index.invlists  # type: ignore[attr-defined]
            sizes = [lists.list_size(number) for number in range(lists.nlist)]
            ids = [
                faiss.rev_swig_ptr(lists.get_ids(number), size)
                for number, size in enumerate(sizes)
                if size
            ]
            if not np.array_equal(np.sort(np.concatenate(ids)), np.arange(self.index.ntotal)):
                problem = (
                    f"the ids of an IVF index have to be 0 to {self.index.ntotal - 1}, each once"
                )
        if problem:
            raise ValueError(
                f"{path} is a {type(self.index).__name__} of {self.index.ntotal} vectors: {problem}"
            )
        if self.is_ivf:
            self.index.make_direct_map()  # type: ignore[attr-defined]
        self.dimension = self.index.d
        names = {faiss.METRIC_INNER_PRODUCT: "dot", faiss.METRIC_L2: "l2"}
        metric = names.get(self.index.metric_type, f"faiss's metric {self.index.metric_type}")
        self.metric = base.metric_of(metric, path)

    def __len__(self) -> int:
        return int(self.index.ntotal)

    def read_vectors(self, start: int, stop: int) -> Matrix:
        """The rows in the order in which they were added."""
        return self.index.reconstruct_n(start, stop - start)

    def write(self, into: str, mark: str, change: Change) -> int:
        """A new index of the same kind; a row without a vector is a row of zeros."""
        import faiss

        old = self.index
        with atomic_file(new_file_path(self, into, ".faiss"), ours="") as temporary:
            vectors = np.nan_to_num(
                np.concatenate([batch_vectors(batch) for batch in map(change, self.batches())])
            )
            index: Any = faiss.IndexFlat(old.d, old.metric_type)
            if self.is_ivf:
                index = faiss.IndexIVFFlat(index, old.d, old.nlist, old.metric_type)
                index.nprobe = old.nprobe
                index.train(
                    vectors[
                        np.random.default_rng(0).permutation(len(vectors))[: _PER_LIST * old.nlist]
                    ]
                )
            index.add(vectors)
            faiss.write_index(index, str(temporary))
        return 0


class TableStore(Store):
    """A table of Arrow: a column of lists of floating-point numbers, and columns of languages and texts."""

    schema: pa.Schema
    columns: dict[
        str, str
    ]  # "vector" and each of `USUAL_FIELDS` -> the column that has it, if there is one

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The rows in the order in which they were added, numbered from 0."""
        start = 0
        wanted = self.columns if texts else self.columns.keys() & {"vector", "language"}
        for batch in self._table_batches({self.columns[name] for name in wanted}):
            yield self._as_store_batch(batch, start)
            start += batch.num_rows

    @abstractmethod
    def _table_batches(self, columns: Any) -> Iterator[pa.RecordBatch]:
        """The batches of the table, with these columns."""

    def _set_columns_and_dimension(self, schema: pa.Schema) -> None:
        """Keep the schema, the columns that hold what is asked for, and how many numbers a vector has."""
        self.schema, self.present = schema, schema.names
        kinds_of_lists = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
        of_lists = [field for field in schema if isinstance(field.type, kinds_of_lists)]
        lists = [field.name for field in of_lists if pa.types.is_floating(field.type.value_type)]
        kinds = ", ".join(f"{field.name} ({field.type})" for field in schema)
        where = (
            f"{self.name}, of whose columns ({kinds}) lists of floating-point numbers are vectors,"
        )
        self.columns = {
            "vector": base.find_field(lists, self.fields.vector or "vector", (), where) or ""
        }
        for name, usual in USUAL_FIELDS.items():
            if column := base.find_field(
                schema.names, getattr(self.fields, name, None), usual, self.name
            ):
                self.columns[name] = column
        column = self.columns["vector"]
        kind = schema.field(column).type
        self.dimension, self.numbers = (
            getattr(kind, "list_size", 0),
            kind.value_type.to_pandas_dtype(),
        )
        if not self.dimension:
            vectors = (
                vector.as_py()
                for batch in self._table_batches([column])
                for vector in batch.column(column)
            )
            self.dimension = base.first_vector_length(vectors)

    def _as_store_batch(self, batch: pa.RecordBatch, start: int = 0) -> pa.RecordBatch:
        present = {
            name: column for name, column in self.columns.items() if column in batch.schema.names
        }
        columns = {name: batch.column(column) for name, column in present.items()}
        vectors = columns.pop("vector").cast(pa.list_(pa.float32(), self.dimension))
        return make_batch(range(start, start + batch.num_rows), vectors, columns)

    def _changed_batches(self, change: Change, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The whole table with changed vectors, in the types of its own columns."""
        place = schema.get_field_index(self.columns["vector"])
        for batch in self._table_batches(schema.names):
            arrays = batch.columns
            arrays[place] = (
                change(self._as_store_batch(batch)).column("vector").cast(schema.field(place).type)
            )
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class ParquetStore(TableStore):
    """A file, or a folder of files that have the same columns. Folders such as `language=fr` are a column."""

    def __init__(self, path: str, fields: Fields) -> None:
        self.name, self.name_in_store, self.fields = path, path, fields
        self.place = Path(path).expanduser()
        self.files = self._find_files() if self.place.is_dir() else [self.place]
        with self.sanitize_errors():
            footers = [pq.read_metadata(file) for file in self.files]
            schemas = [each.schema.to_arrow_schema() for each in footers]
            for number, file in enumerate(self.files):
                for name in columns_of_folders(file.relative_to(self.place)):
                    if name not in schemas[number].names:
                        schemas[number] = schemas[number].append(pa.field(name, pa.string()))
            metadata = [
                dict(json.loads((each.metadata or {}).get(METADATA, b"{}"))) for each in schemas
            ]
        self.metadata, makers = (
            metadata[0],
            ("fingerprint", "metric", "map"),
        )  # its first word; then comes its source
        made_by = [
            {(name, str(each.get(name)).partition(" ")[0]) for name in makers} for each in metadata
        ]
        for file, schema, made in zip(self.files, schemas, made_by, strict=True):
            if differ := {field.name for field in {*schema} ^ {*schemas[0]}} | {
                name for name, _ in made ^ made_by[0]
            }:
                raise ValueError(
                    f"{file} and {self.files[0]} differ in {', '.join(sorted(differ))}"
                )
        self.rows = sum(each.num_rows for each in footers)
        self.metric, self.mark = (
            base.metric_of(self.metadata.get("metric"), path),
            self.metadata.get("map"),
        )
        self.model, self.fingerprint = (
            base.model_name_in(self.metadata),
            self.metadata.get("fingerprint"),
        )
        self._set_columns_and_dimension(schemas[0])

    def __len__(self) -> int:
        return self.rows

    def write(self, into: str, mark: str, change: Change) -> int:
        """A new file with all columns; a row without a vector has null."""
        metadata = json.dumps({**self.metadata, "map": mark}).encode()
        schema = self.schema.with_metadata({**(self.schema.metadata or {}), METADATA: metadata})
        rest = [name for name in schema.names if name != self.columns["vector"]]
        # Neither pays for vectors, whose numbers are all different.
        options: Any = {
            "use_dictionary": rest,
            "write_statistics": rest,
            "compression": dict.fromkeys(rest, "snappy"),
        }
        path = new_file_path(self, into, ".parquet")
        with (
            atomic_file(path, ours="", inputs=[self.place]) as part,
            pq.ParquetWriter(part, schema, **options) as new,
        ):
            for batch in self._changed_batches(change, schema):
                new.write_batch(batch)
        return 0

    def _find_files(self) -> list[Path]:
        every, inside, log = files_below(self.place)
        chosen = sorted(file for file in inside if file.suffix == ".parquet")
        others = sorted(
            file
            for file in every
            if file.is_dir() or (file.suffix == ".parquet") != (file in inside)
        )
        if others:
            some = ", ".join(str(file.relative_to(self.place)) for file in others[:3])
            warnings.warn(
                f"{self.name}: {len(others)} files are left out, such as {some}", stacklevel=4
            )
        if log or not chosen:
            problem = (
                f"has a table's log, {log}: give a copy of its rows"
                if log
                else "has no .parquet file"
            )
            raise ValueError(f"{self.name} {problem}")
        return chosen

    def _table_batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            partitions = columns_of_folders(file.relative_to(self.place))
            # Otherwise pyarrow keeps what was read: 90 MB more for 307 MB of vectors; its datasets keep 325 and more.
            with (
                self.sanitize_errors(),
                pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER) as opened,
            ):
                inside = [name for name in columns if name in opened.schema_arrow.names]
                for batch in opened.iter_batches(self.size, columns=inside):
                    for name in set(columns) - set(inside):
                        batch = batch.append_column(
                            name, pa.array([partitions[name]] * batch.num_rows, pa.string())
                        )
                    yield batch.select(list(columns))


class LanceStore(TableStore):
    """A table in a folder of LanceDB. Its rows are those that are there when it is opened."""

    def __init__(self, address: str, fields: Fields) -> None:
        place, values, self.name, _ = base.parse_address(address, "table", optional=("column",))
        self.name_in_store, self.fields = (
            values["table"],
            fields._replace(vector=values.get("column", fields.vector)),
        )
        lancedb = import_optional("lancedb", extra="lance", needed_for="vectors in LanceDB")
        with self.sanitize_errors():
            self.database, self.place = lancedb.connect(place), Path(place)
            self.table = self.database.open_table(self.name_in_store)
            self._set_columns_and_dimension(self.table.schema)
            for index in self.table.list_indices():
                if self.columns["vector"] in index.columns:
                    self.metric = base.metric_of(
                        self.table.index_stats(index.name).distance_type, self.name
                    )
        metadata = self.schema.metadata or {}
        self.mark = metadata[_LANCE_MARK].decode() if _LANCE_MARK in metadata else None
        for function in json.loads(metadata.get(_MADE_BY, b"[]")):
            if function.get("vector_column") == self.columns["vector"]:
                self.model = base.model_name_in(function.get("model") or {})

    def __len__(self) -> int:
        return int(self.table.count_rows())

    def write(self, into: str, mark: str, change: Change) -> int:
        """A new table with all columns, committed once; a row without a vector has null."""
        # With its embedding function, new rows and queries would be embedded without the map.
        metadata = {
            name: value for name, value in (self.schema.metadata or {}).items() if name != _MADE_BY
        }
        schema = self.schema.with_metadata({**metadata, _LANCE_MARK: mark.encode()})
        with (
            self.sanitize_errors(),
            FileLock(self.place / ".st-xlret.lock", timeout=0),
        ):  # two would add to one table
            # A stopped run leaves a name that is listed and cannot be opened: it is free.
            with suppress(ValueError):
                self.database.open_table(into)
                self.refuse_taken(f"a table {into}", True)
            reader = pa.RecordBatchReader.from_batches(
                schema, self._changed_batches(change, schema)
            )
            table = self.database.create_table(into, reader, schema=schema, on_bad_vectors="null")
            return self.check_stored_rows(len(self), len(self), table.count_rows())

    def _table_batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return iter(self.table.search().select(list(columns)).to_batches(self.size))


def new_file_path(store: Store, into: str, suffix: str) -> Path:
    """The path of a file that is not there yet."""
    path = Path(into).expanduser()
    if path.suffix != suffix:
        raise ValueError(f"{into}: vectors of {store.name} go into another {suffix} file")
    store.refuse_taken(f"a file {into}", path.exists())
    return path
