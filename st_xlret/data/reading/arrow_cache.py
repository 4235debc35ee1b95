"""Keeping what was read as memory-mapped Arrow tables, to be reused while the sources stay the same."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import datasets
import pyarrow as pa
from filelock import FileLock

from st_xlret.data.reading.report import Report
from st_xlret.files import atomic_file, write_text_atomically

logger = logging.getLogger(__name__)

AnyReport = TypeVar("AnyReport", bound=Report)

_ROWS_PER_BATCH = 10_000


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
        table, report = self._path(key or "", ".arrow"), self._path(key or "", ".json")
        if key is None or not table.exists() or not report.exists():
            return None
        file = report
        try:
            stored = json.loads(report.read_text(encoding="utf-8"))
            found, expected = table.stat().st_size, stored.pop("table_bytes")
            file = table
            if found != expected:
                raise ValueError(f"{found} bytes instead of {expected}")
            return datasets.Dataset.from_file(str(table)), stored
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
        self, key: str | None, rows: Iterable[tuple[Any, ...]], report: AnyReport, check: Callable[[], None]
    ) -> tuple[datasets.Dataset, AnyReport]:
        """Return the table and report stored under `key`, or make them.

        Args:
            key: Name of the table; None to make it in any case.
            rows: The rows to write, in the order of the features. They are only read if there is no such table.
            report: Filled while the rows are read.
            check: Called after the last row. Nothing is stored if it raises an error.
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

            return self.store(key, rows, finish), report

    def store(
        self, key: str | None, rows: Iterable[tuple[Any, ...]], make_report: Callable[[], Mapping[str, Any]]
    ) -> datasets.Dataset:
        """Write `rows` (in the order of the features) as they come, then the report; return the table.

        Without a `key` the table is named by its content. Nothing half-written stays behind.

        Raises:
            OSError: If the disk is full; the folder is named.
        """
        table = self._path(key or f".{uuid.uuid4().hex}", ".arrow")
        content = hashlib.sha256()
        schema = self.features.arrow_schema
        with self._name_full_disk():
            with atomic_file(table) as temporary:
                with open(temporary, "wb") as file, pa.ipc.new_stream(file, schema) as writer:
                    for columns in _batches(rows, len(schema)):
                        writer.write_batch(pa.record_batch(columns, schema=schema))
                        if key is None:
                            content.update(repr(columns).encode("utf-8", "surrogatepass"))
                size = os.path.getsize(temporary)
                report = json.dumps({**make_report(), "table_bytes": size}, ensure_ascii=True)
            if key is None:
                key = hashlib.sha256(content.digest() + report.encode()).hexdigest()[:32]
                table = table.replace(self._path(key, ".arrow"))
            write_text_atomically(self._path(key, ".json"), report)
        return datasets.Dataset.from_file(str(table))

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


def _batches(rows: Iterable[tuple[Any, ...]], width: int) -> Iterator[list[list[Any]]]:
    columns: list[list[Any]] = [[] for _ in range(width)]
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            column.append(value)
        if len(columns[0]) == _ROWS_PER_BATCH:
            yield columns
            columns = [[] for _ in range(width)]
    yield columns
