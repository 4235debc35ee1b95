"""Folders that are read: which files belong to the data, and what names say."""

import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

UNPACKERS: dict[str, Callable[[str | os.PathLike[str]], Any]] = {".gz": gzip.open, ".xz": lzma.open}
"""What opens a compressed file, by its ending: no others are read."""

PACKED = tuple(UNPACKERS)

UNFINISHED = ".st-xlret-"
"""In the names of what a program is writing, or replacing: what is read has none in its name."""

# Of tables that say which of their files count: Delta, Hudi, Spark's streams, Iceberg.
_TABLE_LOGS = ("_delta_log", ".hoodie", "_spark_metadata", "metadata/*.metadata.json")


def unpacked_name(path: str | os.PathLike[str]) -> str:
    """The name of a file without the ending of a compressed one."""
    file = Path(path)
    return file.stem if file.suffix in PACKED else file.name


class FilesBelow(NamedTuple):
    """All files and links below a folder, those that belong to it, and the log of a table.

    The log says which of the files count.
    """

    every: set[Path]
    belonging: set[Path]
    table_log: str | None


def files_below(folder: Path) -> FilesBelow:
    """What is below a folder; what is hidden, or of work that is not done, does not belong."""
    paths = list(folder.rglob("*"))
    every = {path for path in paths if path.is_file() or path.is_symlink()}  # to folders, too
    belonging = {file for file in every if file.is_file() and _belongs(file, folder)}
    table_log = None
    for path in paths:
        if _is_table_log(path) and _belongs(path.parent, folder):
            table_log = path.name
            break
    return FilesBelow(every, belonging, table_log)


def columns_of_folders(file: Path) -> dict[str, str | None]:
    """The columns that the names of folders are, such as `language=fr`; None for Hive's null."""
    columns = {}
    for part in file.parts[:-1]:
        name, equals, value = part.partition("=")
        if equals:
            columns[name] = None if "__HIVE_" in value else unquote(value)
    return columns


def _belongs(path: Path, folder: Path) -> bool:
    """Whether nothing on the way from a folder to a path is hidden or unfinished."""
    for part in path.relative_to(folder).parts:
        is_hidden = part.startswith((".", "_"))
        if is_hidden or UNFINISHED in part:
            return False
    return True


def _is_table_log(path: Path) -> bool:
    """Whether a path is that of a log, by its name."""
    return any(path.match(log) for log in _TABLE_LOGS)
