"""The files and data sets that a `sources` argument names, and the records in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
from datasets.fingerprint import generate_fingerprint
from tqdm.auto import tqdm

from st_xlret.data.cache import cache_key
from st_xlret.data.lines import BadLines, DataError, PathLike, read_jsonl, read_lines
from st_xlret.data.text import normalise_text

JSONL = (".jsonl", ".jsonl.gz", ".jsonl.xz")

Records = Iterable[Mapping[str, Any]]
FileReader = Callable[[str, BadLines], Iterator[Any]]


@dataclass
class Sources:
    """The files and in-memory record collections that a `sources` argument names.

    Attributes:
        files: Files in sorted order, each once, so that numbering does not depend on the order given.
        collections: Data sets and other iterables of records, in the order given.
        skipped: Files found in folders that hold other kinds of records.
    """

    files: list[str]
    collections: list[Records] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @classmethod
    def find(
        cls,
        sources: Any,
        choose: Callable[[Path, bool], bool | None],
        *,
        alone: Callable[[Path], bool] = lambda file: False,
        nothing: str,
    ) -> Sources:
        """Sort out a `sources` argument: files, folders, data sets, iterables of records, or lists of these.

        `choose(file, is_named)` tells whether to read a file. It raises a `DataError` for one that the user named;
        None is for files in folders that are not worth a mention. A folder without a file to read is read whole if
        `alone` takes each of its files; else `nothing` is said of it.
        """
        files: set[str] = set()
        skipped: set[str] = set()
        paths, collections = split_sources(sources)
        for source in paths:
            path = existing_path(source)
            if path.is_file():
                require_content(path)
                choose(path, True)
                files.add(str(path))
                continue
            there = [file for file in sorted(path.rglob("*")) if file.is_file() and not file.name.startswith(".")]
            chosen = {str(file): choose(file, False) for file in there}
            if not any(chosen.values()) and all(map(alone, there)):
                chosen = dict.fromkeys(chosen, True)
            if not any(chosen.values()):
                raise DataError(f"the folder {str(source)!r} {nothing}")
            files.update(file for file, is_wanted in chosen.items() if is_wanted)
            skipped.update(file for file, is_wanted in chosen.items() if is_wanted is False)
        if not files and not collections:
            raise DataError("no sources given; pass files, folders or data sets")
        return cls(sorted(files), collections, sorted(skipped - files))

    def named(self) -> str:
        """The first files, for messages; empty if there are none."""
        more = ", ..." if len(self.files) > 3 else ""
        return f" in {', '.join(self.files[:3])}{more}" if self.files else ""

    def cache_key(self, options: Any, *, other_files: Iterable[str] = ()) -> str | None:
        """Name what these unchanged sources and options give, or return None if a source has no identity."""
        identities = [
            generate_fingerprint(one) if isinstance(one, datasets.Dataset) else getattr(one, "identity", None)
            for one in self.collections
        ]
        return None if None in identities else cache_key([options, identities], [*self.files, *other_files])

    def in_files(
        self, reader: FileReader, bad_lines: BadLines, *, show_progress_bar: bool, description: str
    ) -> Iterator[tuple[str, Any]]:
        """Stream (file, what `reader` yields) under one progress bar."""
        read = ((file, item) for file in self.files for item in reader(file, bad_lines))
        yield from tqdm(read, desc=description, unit=" records", disable=not (show_progress_bar and self.files))

    def in_collections(
        self, bad_lines: BadLines, *, show_progress_bar: bool, description: str
    ) -> Iterator[tuple[str, tuple[int, Mapping[str, Any]]]]:
        """Stream (`<source N>`, (number, record)) of all collections."""
        for index, collection in enumerate(self.collections, start=1):
            name = f"<source {index}>"
            rows = tqdm(collection, desc=description, unit=" records", disable=not show_progress_bar)
            for number, record in enumerate(rows, start=1):
                if isinstance(record, Mapping):
                    yield name, (number, record)
                else:
                    bad_lines(f"expected a dict, found {type(record).__name__}", name, number)


def split_sources(sources: Any) -> tuple[list[str], list[Records]]:
    """The paths of a `sources` argument, and the collections of records."""
    listed = _listed(sources)
    paths = [os.fspath(source) for source in listed if isinstance(source, (str, os.PathLike))]
    return paths, [source for source in listed if not isinstance(source, (str, os.PathLike))]


def _listed(sources: Any) -> list[Any]:
    if isinstance(sources, datasets.DatasetDict):
        return list(sources.values())
    if not isinstance(sources, (list, tuple)) or (sources and all(isinstance(s, Mapping) for s in sources)):
        return [sources]
    return [part for source in sources for part in _listed(source)]


def existing_path(path: PathLike) -> Path:
    """The absolute path of a file or folder; a DataError if there is none, or it is something else, such as a pipe."""
    try:
        found = Path(path).expanduser().resolve()
        exists = found.exists()
    except (OSError, RuntimeError) as error:  # links in a circle
        raise DataError(f"{os.fspath(path)!r} cannot be followed: {error}") from error
    if not exists:
        raise DataError(f"no such file or directory: {os.fspath(path)!r}")
    if not (found.is_file() or found.is_dir()):
        raise DataError(f"{os.fspath(path)!r} is neither a file nor a folder: write what it gives into a file")
    return found


def require_content(path: Path) -> None:
    """Refuse an empty file."""
    if path.is_file() and not path.stat().st_size:
        raise DataError(f"{str(path)!r} is empty")


def texts_to_exclude(files: Iterable[PathLike]) -> frozenset[str]:
    """The lines of text files, as `normalise_text` gives them."""
    lines = (line for file in files for _, line in read_lines(existing_path(file)))
    return frozenset(map(normalise_text, lines))


def first_record(file: PathLike) -> Mapping[str, Any] | None:
    """The first record of a JSON lines file, an empty one if its first lines are all bad, or None if it is empty."""
    bad_lines = BadLines(skip=True)
    record = next((record for _, record in read_jsonl(file, bad_lines)), None)
    return {} if record is None and bad_lines.bad_line_count else record
