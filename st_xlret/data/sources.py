"""What the `sources` of a reader are: files, folders of files, and collections of records."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import datasets
import pyarrow as pa
from datasets.fingerprint import generate_fingerprint

from st_xlret.data.reading import DataError
from st_xlret.files import PathLike
from st_xlret.folders import PACKED, files_below, unpacked_name

_logger = logging.getLogger(__name__)
_NOT_READ = (".bz2", ".zst", ".zip", ".7z")
_OF_RECORDS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")


def split_sources(sources: Any) -> tuple[list[PathLike], list[Iterable[Any]]]:
    """The paths of a `sources` argument, and its data sets and other collections of records."""
    paths = []
    collections = []
    for source in _listed(sources):
        if isinstance(source, str | os.PathLike):
            paths.append(source)
        else:
            collections.append(_records_of(source))
    for path in paths:
        if not os.fspath(path).strip():  # which would be the working folder
            raise DataError(f"a source has no name: {paths}")
    return paths, collections


def _listed(sources: Any) -> list[Any]:
    """A list of sources; one source, such as a list of records, is a list of one."""
    if not isinstance(sources, list | tuple):
        return [sources]
    if sources and all(isinstance(one, Mapping) for one in sources):
        return [sources]
    return list(sources)


def _records_of(source: Any) -> Iterable[Any]:
    """The records of a source that is no path.

    A data frame, an Arrow table or a dict of lists becomes a `Dataset`, by whose contents
    `records_identity` knows it again; others stay as they are. A `DataError` refuses another
    mapping.
    """
    if hasattr(source, "__arrow_c_stream__"):
        try:
            return datasets.Dataset(pa.table(source))
        except (pa.ArrowException, KeyError, ValueError) as error:
            kind = type(source).__name__
            raise DataError(f"a {kind} that is no table of records ({error})") from error
    if isinstance(source, Mapping):
        if source and all(isinstance(values, list) for values in source.values()):
            return datasets.Dataset.from_dict(dict(source))
        names = ", ".join(map(str, source))
        raise DataError(
            f"a {type(source).__name__} of {names} is no collection of records: put a record into a"
            " list, give columns as lists, or choose one of several data sets"
        )
    return source


def records_identity(records: Iterable[Any]) -> str:
    """What tells a collection of records from others.

    What can be read only once is never the same again.
    """
    if isinstance(records, datasets.Dataset):
        return str(generate_fingerprint(records))
    if isinstance(records, list | tuple):
        return repr(records)
    return uuid4().hex


def source_files(
    paths: Iterable[PathLike],
    is_wanted: Callable[[Path], bool],
    what: str,
    *,
    alone: Callable[[Path], bool] = lambda file: False,
    is_of_others: Callable[[Path], bool] = lambda file: False,
) -> list[Path]:
    """The files that are named, and those of folders that are wanted, resolved, once and sorted.

    A folder without any that is wanted is read whole if `alone` is true of all its files. A warning
    names files of records that are not wanted, unless they are known to hold other records.
    """
    files = set()
    for source in paths:
        path = Path(source).expanduser().resolve()
        if path.is_file():
            files.add(path)
        elif path.is_dir():
            files |= _files_of_folder(path, source, is_wanted, what, alone, is_of_others)
        else:
            raise DataError("there is no such file", source)
    packed = [file for file in files if file.suffix in PACKED]
    copies = {file for file in packed if file.with_suffix("") in files}  # of the same unpacked
    if copies:
        _logger.warning("not read: %d compressed copies, such as %s", len(copies), min(copies))
    return sorted(files - copies)


def _files_of_folder(
    folder: Path,
    source: PathLike,
    is_wanted: Callable[[Path], bool],
    what: str,
    alone: Callable[[Path], bool],
    is_of_others: Callable[[Path], bool],
) -> set[Path]:
    """The files of a folder that are read, and warnings of those that seem to be meant and are not.

    Where none is wanted, all are, if each may stand alone.
    """
    every, inside, log = files_below(folder)
    taken = set(filter(is_wanted, inside))
    if not taken and all(map(alone, inside)):
        taken = inside
    if log:
        raise DataError(f"{log} says which files of a table count: give a copy of its rows", source)
    if not taken:
        raise DataError(f"the folder holds no {what}", source)
    _warn_of_files_not_read(folder, source, every, inside, taken)
    others = [file for file in inside - taken if _holds_records(file) and not is_of_others(file)]
    if others:
        names = ", ".join(str(file.relative_to(folder)) for file in sorted(others)[:3])
        wanted = what.partition(":")[0]
        _logger.warning(
            "%s: %d files hold no %s that can be read, such as %s",
            source,
            len(others),
            wanted,
            names,
        )
    return taken


def _warn_of_files_not_read(
    folder: Path, source: PathLike, every: set[Path], inside: set[Path], taken: set[Path]
) -> None:
    """Name links and files of the kinds that are read, which do not belong, and unread archives."""
    kinds = {file.suffix for file in taken}
    not_read = []
    for file in every:
        suffixes = _NOT_READ if file in inside else kinds
        if file.is_dir() or file.suffix in suffixes:
            not_read.append(file)
    if not_read:
        not_read.sort(key=lambda file: (file not in inside, file))
        names = ", ".join(str(file.relative_to(folder)) for file in not_read[:3])
        _logger.warning("%s: not read: %d files, such as %s", source, len(not_read), names)


def _holds_records(file: Path) -> bool:
    return unpacked_name(file.name.lower()).endswith(_OF_RECORDS)


def find_file(folder: PathLike, *patterns: str) -> Path:
    """The file of a folder, plain or compressed, of the first pattern that any file matches.

    Several, such as two editions of a benchmark, are refused.
    """
    files = find_files(folder, *patterns)
    others = {file.with_name(unpacked_name(file)) for file in files}
    if len(others) > 1:
        names = ", ".join(str(file) for file in files[:3])
        raise DataError(f"{len(files)} files of one kind, and one is read: {names}", folder)
    return files[0]


def find_files(folder: PathLike, *patterns: str) -> list[Path]:
    """The files of a folder, plain or compressed, of the first pattern that any file matches.

    They are sorted; a `FileNotFoundError` lists what there is in their place.
    """
    for pattern in patterns:
        files = set(Path(folder).glob(pattern))
        for ending in PACKED:
            files.update(Path(folder).glob(f"{pattern}{ending}"))
        if files:
            return sorted(files)
    place = Path(folder, patterns[0])
    there = sorted(path.name for path in place.parent.glob("*"))
    raise FileNotFoundError(f"expected {place}, plain or compressed; the folder holds {there[:12]}")
