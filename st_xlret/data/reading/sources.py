"""Finding the files and datasets that a ``sources`` argument names, and streaming their records."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
from tqdm.auto import tqdm

from st_xlret.data.reading.jsonl import BadLines, DataError, read_jsonl

SUFFIXES = (".jsonl", ".jsonl.gz")
_FORMAT_VERSION = 1


@dataclass
class Sources:
    """The files and in-memory record collections that a ``sources`` argument names.

    Attributes:
        files: Files in sorted order, each once, so that numbering does not depend on the order given.
        collections: Datasets and other iterables of records, in the order given.
        skipped: Files found in directories that hold other kinds of records.
    """

    files: list[str]
    collections: list[Iterable[Mapping[str, Any]]]
    skipped: list[str]

    @classmethod
    def find(
        cls, sources: Any, is_wanted: Callable[[Mapping[str, Any]], bool], suffixes: Sequence[str] = SUFFIXES
    ) -> Sources:
        """Sort out ``sources``; directories are searched for files whose first record ``is_wanted``.

        Raises:
            DataError: If a path does not exist or has another suffix, or a directory holds no such file.
        """
        files: set[str] = set()
        skipped: set[str] = set()
        collections: list[Iterable[Mapping[str, Any]]] = []
        for source in _listed(sources):
            if not isinstance(source, (str, os.PathLike)):
                collections.append(source)
                continue
            path = Path(source).expanduser().resolve()
            if path.is_dir():
                found = sorted(str(p) for p in path.rglob("*") if p.name.endswith(tuple(suffixes)) and p.is_file())
                wanted = [file for file in found if _first_record_is(file, is_wanted)]
                if not wanted:
                    raise DataError(
                        f"directory {str(source)!r} holds no file of the kind that is read here "
                        f"({len(found)} files end in {' or '.join(suffixes)}, with other records)"
                    )
                files.update(wanted)
                skipped.update(set(found) - set(wanted))
            elif not path.is_file():
                raise DataError(f"no such file or directory: {str(source)!r}")
            elif not path.name.endswith(tuple(suffixes)):
                raise DataError(f"{str(source)!r} does not end in {' or '.join(suffixes)}")
            else:
                files.add(str(path))
        if not files and not collections:
            raise DataError("no sources given; pass files, directories or datasets")
        return cls(sorted(files), collections, sorted(skipped - files))

    def records(
        self, bad_lines: BadLines, *, show_progress: bool, description: str
    ) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
        """Stream (file, line number, record) over everything; collections are named ``<source N>``."""
        for file, read in self.opened(read_jsonl, bad_lines, show_progress=show_progress, description=description):
            for number, record in read:
                yield file, number, record
        for index, collection in enumerate(self.collections, start=1):
            name = f"<source {index}>"
            for number, record in enumerate(collection, start=1):
                if isinstance(record, Mapping):
                    yield name, number, record
                else:
                    reason = f"expected a dict, found {type(record).__name__}"
                    bad_lines(DataError(reason, file=name, line=number))

    def opened(
        self,
        reader: Callable[..., Iterator[Any]],
        bad_lines: BadLines,
        *,
        show_progress: bool,
        description: str,
    ) -> Iterator[tuple[str, Iterator[Any]]]:
        """Yield (file, ``reader`` of it) under one progress bar over the bytes of all files."""
        total = sum(os.path.getsize(file) for file in self.files)
        with tqdm(
            total=total,
            desc=description,
            unit="B",
            unit_scale=True,
            disable=not (show_progress and self.files),
        ) as bar:
            for file in self.files:
                yield file, reader(file, on_bad_line=bad_lines, on_bytes_read=bar.update)

    def cache_key(self, options: Mapping[str, Any]) -> str | None:
        """Name for what these unchanged sources and options give, or None if a source has no identity."""
        parts: list[Any] = [_FORMAT_VERSION, datasets.__version__, sorted(options.items())]
        for file in self.files:
            status = os.stat(file)
            parts.append((file, status.st_size, status.st_mtime_ns))
        parts.extend(getattr(collection, "_fingerprint", None) for collection in self.collections)
        if None in parts:
            return None
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _listed(sources: Any) -> list[Any]:
    if isinstance(sources, datasets.DatasetDict):
        return list(sources.values())
    if not isinstance(sources, (list, tuple)) or (sources and all(isinstance(s, Mapping) for s in sources)):
        return [sources]
    return [part for source in sources for part in _listed(source)]


def _first_record_is(file: str, is_wanted: Callable[[Mapping[str, Any]], bool]) -> bool:
    # A file whose first lines are all bad is taken: reading it then reports them.
    bad_lines = BadLines(skip=True)
    for _, record in read_jsonl(file, on_bad_line=bad_lines):
        return is_wanted(record)
    return bad_lines.count > 0
