"""Finding the files and data sets that a `sources` argument names, and streaming their records."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import datasets
from tqdm.auto import tqdm

from st_xlret.data.reading.jsonl import BadLines, DataError, read_jsonl, read_lines
from st_xlret.data.reading.text import normalise_text

JSONL = (".jsonl", ".jsonl.gz", ".jsonl.xz")
_FORMAT_VERSION = 1

Records = Iterable[Mapping[str, Any]]


class Place(NamedTuple):
    """Where reading has come to: the number of the source (files first), and of its last line or record.

    Attributes:
        source: Number of the file or collection.
        record: Number of the last line or record that was read, from 1; 0 before the first.
        state: The `state_dict` of a streamed data set, which finds its place by it.
    """

    source: int = 0
    record: int = 0
    state: dict[str, Any] | None = None


BEGINNING = Place()


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
    def find(cls, sources: Any, choose: Callable[[Path, bool], bool | None], *, nothing: str) -> Sources:
        """Sort out a `sources` argument.

        Args:
            sources: Files, folders (searched recursively), data sets, iterables of records, or lists of these.
            choose: Tells whether to read a file. It is called with the file, and with whether the user named the file
                itself instead of its folder; then it raises a `DataError` where it would return False. None is for
                files in folders that are not worth a mention.
            nothing: What to say of a folder without such a file; follows the folder's name.

        Raises:
            DataError: If a path does not exist or is an empty file, a folder contains no such file, or there are no
                sources.
        """
        files: set[str] = set()
        skipped: set[str] = set()
        paths, collections = split_sources(sources)
        for source in paths:
            path = existing_path(source)
            if not path.is_dir():
                require_content(path)
                choose(path, True)
                files.add(str(path))
                continue
            chosen = {str(file): choose(file, False) for file in sorted(path.rglob("*")) if file.is_file()}
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

    def records(
        self,
        bad_lines: BadLines,
        *,
        show_progress: bool,
        description: str,
        reader: Callable[..., Iterator[tuple[int, Any]]] = read_jsonl,
        start: Place = BEGINNING,
    ) -> Iterator[tuple[str, Place, Mapping[str, Any]]]:
        """Stream (file, place, record) of all files and collections (named `<source N>`).

        Args:
            bad_lines: What to do about a bad line.
            show_progress: Show progress bars.
            description: What the progress bars say.
            reader: Reads the records of a file: takes it and `on_bad_line`, `on_bytes_read` and `after`.
            start: Read on after this place.
        """

        def read_on(file: str, **options: Any) -> Iterator[tuple[int, Any]]:
            source = self.files.index(file)
            if source < start.source:
                options["on_bytes_read"](os.path.getsize(file))
                return iter(())
            return reader(file, **options, after=start.record if source == start.source else 0)

        opened = self.opened(read_on, bad_lines, show_progress=show_progress, description=description)
        for source, (file, read) in enumerate(opened):
            for number, record in read:
                yield file, Place(source, number), record
        for index, collection in enumerate(self.collections, start=1):
            source, name = len(self.files) + index - 1, f"<source {index}>"
            if source < start.source:
                continue
            begin = start if source == start.source else Place(source)
            rows = _from(collection, begin)
            total = getattr(collection, "total", None)
            shown = show_progress and total is not None
            with tqdm(total=total, initial=begin.record, desc=description, unit="record", disable=not shown) as bar:
                for number, record in enumerate(rows, start=begin.record + 1):
                    bar.update()
                    if isinstance(record, Mapping):
                        # The state is asked for where it is needed: it costs more than a record.
                        yield name, Place(source, number), record
                    else:
                        reason = f"expected a dict, found {type(record).__name__}"
                        bad_lines(DataError(reason, file=name, line=number))

    def state_at(self, place: Place) -> Place:
        """The place with the state of the streamed data set that is being read, if it is one."""
        collection = self.collections[place.source - len(self.files)] if place.source >= len(self.files) else None
        state = getattr(collection, "state", None)
        return place if state is None else place._replace(state=state())

    def opened(
        self,
        reader: Callable[..., Iterator[Any]],
        bad_lines: BadLines,
        *,
        show_progress: bool,
        description: str,
    ) -> Iterator[tuple[str, Iterator[Any]]]:
        """Yield (file, `reader` of it) under one progress bar over the bytes of all files."""
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

    def cache_key(self, options: Mapping[str, Any], *, other_files: Iterable[str] = ()) -> str | None:
        """Name what these unchanged sources and options give, or return None if a source has no identity.

        Args:
            options: Everything else that the result depends on.
            other_files: Files that are read beside those of `files`.
        """
        parts: list[Any] = [_FORMAT_VERSION, datasets.__version__, sorted(options.items())]
        for file in [*self.files, *other_files]:
            status = os.stat(file)
            parts.append((file, status.st_size, status.st_mtime_ns))
        parts.extend(getattr(collection, "_fingerprint", None) for collection in self.collections)
        if None in parts:
            return None
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _from(collection: Records, start: Place) -> Iterator[Mapping[str, Any]]:
    """The records of a collection after the one at which reading stopped."""
    read_on = getattr(collection, "after", None)
    return read_on(start) if read_on is not None else islice(collection, start.record, None)


def split_sources(sources: Any) -> tuple[list[str], list[Records]]:
    """The paths of a `sources` argument, and the collections of records."""
    listed = _listed(sources)
    paths = [os.fspath(source) for source in listed if isinstance(source, (str, os.PathLike))]
    return paths, [source for source in listed if not isinstance(source, (str, os.PathLike))]


def existing_path(path: str | os.PathLike[str]) -> Path:
    """The absolute form of a path.

    Raises:
        DataError: If there is no such file or folder.
    """
    found = Path(path).expanduser().resolve()
    if not found.exists():
        raise DataError(f"no such file or directory: {os.fspath(path)!r}")
    return found


def require_content(path: Path) -> Path:
    """The path of a file or folder that the user named.

    Raises:
        DataError: If it is an empty file.
    """
    if path.is_file() and not path.stat().st_size:
        raise DataError(f"{str(path)!r} is empty")
    return path


def texts_to_exclude(files: Iterable[str | os.PathLike[str]]) -> frozenset[str]:
    """The lines of text files, as `normalise_text` gives them.

    Raises:
        DataError: If a file does not exist or is not UTF-8.
    """
    lines = (line for file in files for _, line in read_lines(existing_path(file)))
    return frozenset(map(normalise_text, lines))


def first_record(file: str | os.PathLike[str]) -> Mapping[str, Any] | None:
    """The first record of a JSON lines file, an empty one if its first lines are all bad, or None if it is empty."""
    bad_lines = BadLines(skip=True)
    record = next((record for _, record in read_jsonl(file, on_bad_line=bad_lines)), None)
    return {} if record is None and bad_lines.count else record


def _listed(sources: Any) -> list[Any]:
    if isinstance(sources, datasets.DatasetDict):
        return list(sources.values())
    if not isinstance(sources, (list, tuple)) or (sources and all(isinstance(s, Mapping) for s in sources)):
        return [sources]
    return [part for source in sources for part in _listed(source)]
