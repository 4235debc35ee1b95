"""Passages as memory-mapped columns, which are read once from their files and then kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, overload

import datasets
import pyarrow as pa
from tqdm.auto import tqdm

from st_xlret.data.reading.arrow_cache import ArrowCache
from st_xlret.data.reading.jsonl import DataError
from st_xlret.evaluation.retrieval.data import TextCollection

Passage: TypeAlias = tuple[str, str, str]
"""Id, title and text."""
ReadPassages: TypeAlias = Callable[[Path, Callable[[int], None]], Iterator[Passage]]

_COLUMNS = ("id", "title", "text")
_FORMAT_VERSION = 1


class ArrowColumn(Sequence[str]):
    """A column of strings in a memory-mapped table that behaves like a list.

    Args:
        column: The strings, in any number of chunks.

    Example:
        >>> column = ArrowColumn(pa.chunked_array([["a", "b"], ["c"]]))
        >>> len(column), column[2], column[1:], list(column)
        (3, 'c', ['b', 'c'], ['a', 'b', 'c'])
    """

    def __init__(self, column: pa.ChunkedArray) -> None:
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    @overload
    def __getitem__(self, rows: int) -> str: ...
    @overload
    def __getitem__(self, rows: slice) -> list[str]: ...
    def __getitem__(self, rows: int | slice) -> str | list[str]:
        if isinstance(rows, slice):
            return self.column[rows].to_pylist()
        return self.column[rows].as_py()

    def __iter__(self) -> Iterator[str]:
        for chunk in self.column.chunks:
            yield from chunk.to_pylist()


def load_passages(
    file: str | os.PathLike[str],
    read: ReadPassages,
    language: str,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress_bar: bool = False,
) -> TextCollection:
    """Load a file of passages as a collection that is memory-mapped.

    The first time, the file is read from end to end and its columns are written to the data cache. Later they are taken
    from there, unless the file has changed.

    Args:
        file: The file, plain or gzip.
        read: Function `read(file, on_bytes_read)` that yields id, title and text.
        language: Language of the passages.
        cache_dir: Folder for the columns. Default: `st_xlret` in the cache of Hugging Face Datasets.
        show_progress_bar: Whether to show a bar over the bytes of the file.

    Raises:
        DataError: If the file has no passages, or `read` raises it.
        OSError: If the disk is full.
    """
    path = Path(file)
    status = path.stat()
    identity = [_FORMAT_VERSION, read.__qualname__, os.path.abspath(path), status.st_size, status.st_mtime_ns]
    key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]
    cache = ArrowCache("passages", datasets.Features(dict.fromkeys(_COLUMNS, datasets.Value("string"))), cache_dir)
    with cache.lock(key):
        stored = cache.load(key)
        table = stored[0] if stored else _read_into(cache, key, path, read, show_progress_bar)
    ids, titles, texts = (ArrowColumn(table.data.column(name)) for name in _COLUMNS)
    return TextCollection(ids, texts, language, titles, source=str(path))


def _read_into(cache: ArrowCache, key: str, path: Path, read: ReadPassages, show_progress_bar: bool) -> Any:
    count = 0

    def rows(on_bytes_read: Callable[[int], None]) -> Iterator[Passage]:
        nonlocal count
        for passage in read(path, on_bytes_read):
            count += 1
            yield passage

    def report() -> dict[str, Any]:
        if not count:
            raise DataError("there are no passages", file=str(path), line=1)
        return {"file": str(path), "passages": count}

    with tqdm(
        total=path.stat().st_size, unit="B", unit_scale=True, desc=f"Reading {path.name}", disable=not show_progress_bar
    ) as bar:
        return cache.store(key, rows(bar.update), report)
