"""Memory-mapped Arrow tables of what was read, which are used again while the sources stay the same."""

from __future__ import annotations

import atexit
import errno
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import datasets
import pyarrow as pa
from filelock import FileLock

from st_xlret.data.lines import Report

logger = logging.getLogger(__name__)

_ROWS_PER_BATCH = 100_000  # a batch of an open table takes memory
_FORMAT = 2


def cache_key(options: Any, files: Iterable[str | os.PathLike[str]] = ()) -> str:
    """A name for what options (as JSON can hold them) and unchanged files give."""
    files_as_they_are = [
        (os.path.abspath(file), status.st_size, status.st_mtime_ns) for file in files for status in [os.stat(file)]
    ]
    parts = json.dumps([_FORMAT, datasets.__version__, options, files_as_they_are], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()[:32]


def cached_dataset(
    kind: str,
    features: Mapping[str, str],
    rows: Iterable[tuple[Any, ...]],
    *,
    key: str | None,
    report: Report | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> datasets.Dataset:
    """Return the memory-mapped table that is kept under a key, or write it from rows.

    `Dataset.from_generator` does the same in three times the time.

    Args:
        kind: First part of the file's name.
        features: Columns with their types.
        rows: Read only if there is no such table. An error that they raise leaves nothing behind.
        key: What `cache_key` gave; None if the sources have no identity: the table is named after its content then.
        report: Filled by whoever yields the rows; kept with the table.
        cache_dir: By default `st_xlret` inside the cache of `datasets`; a temporary folder if it cannot be written to.

    Raises:
        OSError: If the disk is full; the folder is named.
    """
    folder = _writable(Path(cache_dir or Path(datasets.config.HF_DATASETS_CACHE) / "st_xlret").expanduser())
    schema = datasets.Features({name: datasets.Value(kind_of) for name, kind_of in features.items()}).arrow_schema
    name = f"{kind}-{key or uuid4().hex}"
    part = folder / f".{name}.part"
    with FileLock(folder / f".{name}.lock") if key else nullcontext():
        if key and (stored := _stored(folder / name)) is not None:
            if report is not None:
                report.restore({**stored, "reused": True})
            return datasets.Dataset.from_file(f"{folder / name}.arrow")
        try:
            _write(part, schema, rows)
            name = f"{kind}-{key or _content(part)}"
            about = {"bytes": part.stat().st_size, "report": {} if report is None else report.as_json()}
            part.replace(folder / f"{name}.arrow")
            (folder / f"{name}.json").write_text(json.dumps(about), encoding="utf-8")
        except OSError as error:
            if error.errno == errno.ENOSPC:
                way_out = "free some, or name another folder by HF_DATASETS_CACHE (or cache_dir=)"
                message = f"no space left for the data cache in {str(folder)!r}; {way_out}"
                raise OSError(errno.ENOSPC, message) from error
            raise
        finally:
            part.unlink(missing_ok=True)
    return datasets.Dataset.from_file(f"{folder / name}.arrow")


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        temporary = tempfile.mkdtemp(prefix="st_xlret-")
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        logger.warning(
            "the data cache %s cannot be written to (%s): %s is used until the end", folder, error, temporary
        )
        return Path(temporary)


def _stored(path: Path) -> dict[str, Any] | None:
    """The report beside a table that is whole."""
    try:
        about = json.loads(Path(f"{path}.json").read_text(encoding="utf-8"))
        return about["report"] if Path(f"{path}.arrow").stat().st_size == about["bytes"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> None:
    remaining = iter(rows)
    with open(path, "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        while batch := list(islice(remaining, _ROWS_PER_BATCH)):
            writer.write_batch(pa.record_batch([list(column) for column in zip(*batch, strict=True)], schema=schema))


def _content(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()[:32]
