"""Keeping what was read as memory-mapped Arrow tables, to be reused while the sources stay the same."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

import datasets
import pyarrow as pa
from filelock import FileLock

from st_xlret.data.reading.report import Report
from st_xlret.files import atomic_file, write_text_atomically

logger = logging.getLogger(__name__)

AnyReport = TypeVar("AnyReport", bound=Report)

Columns = Sequence[Sequence[Any]]
"""Some consecutive rows of a table, as their columns."""

ROWS_PER_PART = 5_000_000
"""Rows after which a table that can be resumed is continued in another file."""

# Each batch of a table that is open takes a kilobyte or two of memory: a table of billions of rows has few enough.
_ROWS_PER_BATCH = 100_000


class Progress(Protocol):
    """How far the making of a table has come, for a table that is continued where a killed program stopped."""

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as JSON."""

    def restore(self, state: dict[str, Any]) -> None:
        """Take up the work after a state; called before the first row is read."""


class ArrowCache:
    """A folder of memory-mapped Arrow tables, each beside the JSON report of how it was made.

    Args:
        kind: What the tables contain: the first part of their names.
        features: Their columns.
        cache_dir: The folder. By default `st_xlret` inside the cache of `datasets`.
    """

    def __init__(self, kind: str, features: datasets.Features, cache_dir: str | os.PathLike[str] | None) -> None:
        self.kind = kind
        self.features = features
        self.folder = Path(cache_dir or Path(datasets.config.HF_DATASETS_CACHE) / "st_xlret").expanduser()

    def load(self, key: str | None) -> tuple[datasets.Dataset, dict[str, Any]] | None:
        """Return the table and report stored under `key`, if there are any that are whole.

        A table that is damaged, as by a full disk or a power cut, is named in a warning; it will be made anew.
        """
        report = self._path(key or "", ".json")
        if key is None or not self._part(key, 0).exists() or not report.exists():
            return None
        file = report
        try:
            stored = json.loads(report.read_text(encoding="utf-8"))
            sizes = stored.pop("table_bytes")
            sizes = sizes if isinstance(sizes, list) else [sizes]
            for part, expected in enumerate(sizes):
                file = self._part(key, part)
                if (found := file.stat().st_size) != expected:
                    raise ValueError(f"{found} bytes instead of {expected}")
            return self._open(key, len(sizes)), stored
        except (OSError, ValueError, KeyError, AttributeError, TypeError, pa.ArrowException) as error:
            logger.warning("the cached data in %s is damaged and is made anew: %r", file, error)
            return None

    def lock(self, key: str | None) -> AbstractContextManager[Any]:
        """Lock under which to look for `key` and store it, so that ranks do not do the work twice.

        What killed programs left of this key is removed.
        """
        if key is None:
            return nullcontext()
        self.folder.mkdir(parents=True, exist_ok=True)
        return self._locked(key)

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        with FileLock(self._path(key, ".lock")):
            for leftover in self.folder.glob(f".{self.kind}-{key}.*.tmp.*"):
                leftover.unlink(missing_ok=True)
            yield

    def take_or_make(
        self,
        key: str | None,
        rows: Iterable[tuple[Any, ...]] | Iterable[Columns],
        report: AnyReport,
        check: Callable[[], None],
        progress: Progress | None = None,
    ) -> tuple[datasets.Dataset, AnyReport]:
        """Return the table and report stored under `key`, or make them.

        Args:
            key: Name of the table; None to make it in any case.
            rows: The rows to write, in the order of the features. They are only read if there is no such table.
            report: Filled while the rows are read.
            check: Called after the last row. Nothing is stored if it raises an error.
            progress: How far the work has come. Then `rows` yields the columns of some rows at a time, and after
                `ROWS_PER_PART` rows these are kept: a program that is killed and started again reads on from there.
        """
        with self.lock(key):
            stored = self.load(key)
            if stored is not None:
                try:
                    return stored[0], type(report).from_json(stored[1])
                except (KeyError, TypeError, ValueError) as error:
                    logger.warning(
                        "%s is of another version and is made anew: %r", self._path(key or "", ".json"), error
                    )

            def finish() -> dict[str, Any]:
                check()
                return asdict(report)

            blocks = _batches(rows, len(self.features)) if progress is None else rows
            return self._store(key, blocks, finish, progress if key else None), report

    def store(
        self, key: str | None, rows: Iterable[tuple[Any, ...]], make_report: Callable[[], Mapping[str, Any]]
    ) -> datasets.Dataset:
        """Write `rows` (in the order of the features) as they come, then the report; return the table.

        Without a `key` the table is named by its content. Nothing half-written stays behind.

        Raises:
            OSError: If the disk is full; the folder is named.
        """
        return self._store(key, _batches(rows, len(self.features)), make_report, None)

    def _store(
        self,
        key: str | None,
        blocks: Iterable[Any],
        make_report: Callable[[], Mapping[str, Any]],
        progress: Progress | None,
    ) -> datasets.Dataset:
        name = key or f".{uuid.uuid4().hex}"
        content = hashlib.sha256() if key is None else None
        sizes: list[int] = []
        if key is not None and progress is not None:
            sizes, state = self._kept_parts(key)
            if state is not None:
                logger.info("reading on after the %d parts that are in %s", len(sizes), self.folder)
                progress.restore(state)
        remaining = iter(blocks)
        with self._name_full_disk():
            while True:
                table = self._part(name, len(sizes))
                limit = None if progress is None else ROWS_PER_PART
                with atomic_file(table) as temporary:
                    ended = self._write(temporary, remaining, limit, content)
                    sizes.append(os.path.getsize(temporary))
                    if ended:
                        report = {**make_report(), "table_bytes": sizes if len(sizes) > 1 else sizes[0]}
                if ended:
                    break
                assert progress is not None
                state_file = self._path(name, f".part{len(sizes) - 1:05}.json")
                write_text_atomically(state_file, json.dumps({"table_bytes": sizes[-1], "state": progress.state()}))
            text = json.dumps(report, ensure_ascii=True)
            if content is not None:
                name = hashlib.sha256(content.digest() + text.encode()).hexdigest()[:32]
                table.replace(self._part(name, 0))
            write_text_atomically(self._path(name, ".json"), text)
            for part in range(len(sizes)):
                self._path(name, f".part{part:05}.json").unlink(missing_ok=True)
        return self._open(name, len(sizes))

    def _write(self, path: Path, blocks: Iterator[Columns], limit: int | None, content: Any) -> bool:
        """Write rows to a file, as many as there are or up to about the limit; returns whether there are no more."""
        schema, written = self.features.arrow_schema, 0
        with open(path, "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            columns: list[list[Any]] = [[] for _ in schema]
            for block in blocks:
                for column, values in zip(columns, block, strict=True):
                    column.extend(values)
                if len(columns[0]) < _ROWS_PER_BATCH:
                    continue
                writer.write_batch(pa.record_batch(columns, schema=schema))
                if content is not None:
                    content.update(repr(columns).encode("utf-8", "surrogatepass"))
                written += len(columns[0])
                columns = [[] for _ in schema]
                if limit is not None and written >= limit:
                    return False
            writer.write_batch(pa.record_batch(columns, schema=schema))
            if content is not None:
                content.update(repr(columns).encode("utf-8", "surrogatepass"))
        return True

    def _kept_parts(self, key: str) -> tuple[list[int], dict[str, Any] | None]:
        """The sizes of the whole parts of a table that a killed program left, and the state after the last of them."""
        sizes: list[int] = []
        state: dict[str, Any] | None = None
        while True:
            file = self._path(key, f".part{len(sizes):05}.json")
            try:
                stored = json.loads(file.read_text(encoding="utf-8"))
                if self._part(key, len(sizes)).stat().st_size != stored["table_bytes"]:
                    return sizes, state
                sizes.append(stored["table_bytes"])
                state = stored["state"]
            except (OSError, ValueError, KeyError, TypeError):
                return sizes, state

    def _open(self, key: str, parts: int) -> datasets.Dataset:
        tables = [datasets.Dataset.from_file(str(self._part(key, part))) for part in range(parts)]
        return tables[0] if parts == 1 else datasets.concatenate_datasets(tables)

    def _part(self, key: str, part: int) -> Path:
        return self._path(key, f".part{part:05}.arrow" if part else ".arrow")

    @contextmanager
    def _name_full_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            message = (
                f"no space left for the data cache in {str(self.folder)!r}; free some, or name another folder by the "
                "environment variable HF_DATASETS_CACHE (cache_dir= in Python)"
            )
            raise OSError(errno.ENOSPC, message) from error

    def _path(self, key: str, suffix: str) -> Path:
        return self.folder / f"{self.kind}-{key}{suffix}"


def _batches(rows: Iterable[Any], width: int) -> Iterator[list[list[Any]]]:
    columns: list[list[Any]] = [[] for _ in range(width)]
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            column.append(value)
        if len(columns[0]) == _ROWS_PER_BATCH:
            yield columns
            columns = [[] for _ in range(width)]
    yield columns
