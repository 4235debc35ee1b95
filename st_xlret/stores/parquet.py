"""Vectors in Parquet: a file, or a folder of files."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from st_xlret.columns import Role
from st_xlret.files import NEW_FILE, atomic_file
from st_xlret.folders import columns_of_folders, files_below
from st_xlret.stores.base import Change
from st_xlret.stores.descriptions import Metric, metric_of, model_name_in
from st_xlret.stores.fields import Fields
from st_xlret.stores.reruns import RerunCounts
from st_xlret.stores.tables import TableStore, find_columns, number_type

METADATA = b"st_xlret"
"""Key of `VectorsMetadata` in the metadata of a Parquet file, which `st-xlret index` writes."""


class VectorsMetadata(TypedDict, total=False):
    """What a file says of its vectors, as JSON has it."""

    model: str
    fingerprint: str
    metric: Metric
    prompts: dict[Role, str]
    map: str


_BUFFER = 2**20  # bytes of a file that are read at a time


class ParquetStore(TableStore):
    """A file, or a folder of files that have the same columns.

    Folders such as `language=fr` are a column.
    """

    def __init__(self, path: str, fields: Fields) -> None:
        self.name = path
        self.name_in_store = path
        self.fields = fields
        self.place = Path(path).expanduser()
        self.files = self._find_files() if self.place.is_dir() else [self.place]
        with self.sanitize_errors():
            footers = [pq.read_metadata(file) for file in self.files]
            schemas = [
                self._schema_of(file, footer)
                for file, footer in zip(self.files, footers, strict=True)
            ]
            metadata = [_metadata_in(schema) for schema in schemas]
        self._check_alike(schemas, metadata)
        self.schema = schemas[0]
        self.present = self.schema.names
        self.columns = find_columns(self.schema, fields, path)
        self.numbers = number_type(self.schema, self.columns["vector"])
        self.dimension = self.vector_length()
        self.metadata = metadata[0]
        self.rows = sum(footer.num_rows for footer in footers)
        self.metric = metric_of(self.metadata.get("metric"), path)
        self.origin = self.metadata.get("map")
        self.model = model_name_in(self.metadata)
        self.fingerprint = self.metadata.get("fingerprint")

    def __len__(self) -> int:
        return self.rows

    def write(self, into: str, origin: str, change: Change) -> RerunCounts:
        """A new file with all columns; a row without a vector has null."""
        metadata = json.dumps({**self.metadata, "map": origin}).encode()
        schema = self.schema.with_metadata({**(self.schema.metadata or {}), METADATA: metadata})
        # Neither statistics nor compression pay for vectors, whose numbers are all different.
        others = [name for name in schema.names if name != self.columns["vector"]]
        path = self.new_file(into, ".parquet")
        with (
            atomic_file(path, ours=NEW_FILE, inputs=[self.place]) as part,
            pq.ParquetWriter(
                part,
                schema,
                use_dictionary=others,
                write_statistics=others,
                compression=dict.fromkeys(others, "snappy"),
            ) as writer,
        ):
            for batch in self._changed_batches(change, schema):
                writer.write_batch(batch)
        return RerunCounts()

    def _find_files(self) -> list[Path]:
        """The files to read, in the order of their names; a warning names others.

        A folder without one is a `ValueError`, and so is one of a table with a log.
        """
        below = files_below(self.place)
        chosen = []
        others = []
        for file in sorted(below.every):
            is_parquet = file.suffix == ".parquet"
            belongs = file in below.belonging
            if is_parquet and belongs:
                chosen.append(file)
            elif is_parquet or belongs or file.is_dir():
                others.append(file)
        if others:
            some = ", ".join(str(file.relative_to(self.place)) for file in others[:3])
            warnings.warn(
                f"{self.name}: {len(others)} files are left out, such as {some}", stacklevel=4
            )
        if below.table_log:
            raise ValueError(
                f"{self.name} has a table's log, {below.table_log}: give a copy of its rows"
            )
        if not chosen:
            raise ValueError(f"{self.name} has no .parquet file")
        return chosen

    def _schema_of(self, file: Path, footer: pq.FileMetaData) -> pa.Schema:
        """The columns of a file, and those that the names of its folders are."""
        schema = footer.schema.to_arrow_schema()
        for name in columns_of_folders(file.relative_to(self.place)):
            if name not in schema.names:
                schema = schema.append(pa.field(name, pa.string()))
        return schema

    def _check_alike(
        self, schemas: Sequence[pa.Schema], metadata: Sequence[Mapping[str, Any]]
    ) -> None:
        """Refuse files that differ in columns, or in what made their vectors."""
        first_fields = set(schemas[0])
        first_makers = _makers_in(metadata[0])
        for file, schema, described in zip(self.files, schemas, metadata, strict=True):
            differ = {field.name for field in set(schema) ^ first_fields}
            differ |= {name for name, _ in _makers_in(described) ^ first_makers}
            if differ:
                names = ", ".join(sorted(differ))
                raise ValueError(f"{file} and {self.files[0]} differ in {names}")

    def _table_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            yield from self._batches_of_file(file, columns)

    def _batches_of_file(self, file: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a file, in their order, with these columns, some of its folders' names."""
        of_folders = columns_of_folders(file.relative_to(self.place))
        # Without these options pyarrow keeps what was read: 90 MB more for 307 MB of vectors; its
        # datasets keep 325 and more.
        with (
            self.sanitize_errors(),
            pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER) as opened,
        ):
            inside = [name for name in columns if name in opened.schema_arrow.names]
            for batch in opened.iter_batches(self.size, columns=inside):
                for name in set(columns) - set(inside):
                    values = [of_folders[name]] * batch.num_rows
                    batch = batch.append_column(name, pa.array(values, pa.string()))
                yield batch


def _metadata_in(schema: pa.Schema) -> dict[str, Any]:
    """The `VectorsMetadata` of a file; empty where none was written."""
    content = (schema.metadata or {}).get(METADATA, b"{}")
    return dict(json.loads(content))


def _makers_in(metadata: Mapping[str, Any]) -> set[tuple[str, str]]:
    """What made the vectors of a file: the model's weights, its metric and the map."""
    makers = set()
    for name in ("fingerprint", "metric", "map"):
        value = str(metadata.get(name)).partition(" ")[0]  # after the map stands its source
        makers.add((name, value))
    return makers
