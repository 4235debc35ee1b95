"""Shards of embeddings on disk, which are written atomically and checked when they are found."""

from __future__ import annotations

import errno
import hashlib
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from st_xlret.files import atomic_file

Item: TypeAlias = "str | tuple[str, str] | tuple[str, str, str]"
"""A text, an id with its text, or an id with its text and its language."""

HEADER_BYTES = 128
_BYTES_AT_A_TIME = 2**24
_ABANDONED_AFTER_SECONDS = 3_600


@dataclass(frozen=True)
class Shard:
    """Consecutive texts of a corpus that are encoded and stored together.

    Attributes:
        index: Number of the shard, from 0.
        first_row: Row of its first text in the corpus.
        ids: Ids of the texts, for messages; the rows if the corpus has no ids.
        texts: The texts.
        languages: Language of each text; empty strings if unknown.
    """

    index: int
    first_row: int
    ids: list[str]
    texts: list[str]
    languages: list[str]

    @property
    def key(self) -> str:
        """Hash of the texts and their languages, equal for equal shards of different corpora."""
        digest = hashlib.sha256()
        for text, language in zip(self.texts, self.languages, strict=True):
            content = text.encode("utf-8", "surrogatepass")
            digest.update(f"{len(content)} {language}\n".encode())
            digest.update(content)
        return digest.hexdigest()[:32]


def cut_into_shards(items: Iterable[Item], size: int) -> Iterator[Shard]:
    """Cut a stream of texts into shards of `size` texts; the last may be smaller.

    Raises:
        ValueError: If an item is not a text, (id, text) or (id, text, language).

    Example:
        >>> [(shard.first_row, shard.ids) for shard in cut_into_shards([("a", "x"), ("b", "y"), ("c", "z")], 2)]
        [(0, ['a', 'b']), (2, ['c'])]
    """
    shard = Shard(0, 0, [], [], [])
    for row, item in enumerate(items):
        parts: Any = (str(row), item) if isinstance(item, str) else item
        if (
            not isinstance(parts, (tuple, list))
            or len(parts) not in (2, 3)
            or not all(isinstance(part, str) for part in parts)
        ):
            raise ValueError(f"text {row} must be a string, (id, text) or (id, text, language), got {item!r}.")
        if len(shard.texts) == size:
            yield shard
            shard = Shard(shard.index + 1, row, [], [], [])
        shard.ids.append(parts[0])
        shard.texts.append(parts[1])
        shard.languages.append(parts[2] if len(parts) == 3 else "")
    if shard.texts:
        yield shard


class ShardFolder:
    """The folder of the float16 `.npy` files of one model and its options, named by content and checksum.

    Args:
        path: The folder, which need not exist.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     shards = ShardFolder(Path(folder))
        ...     written = shards.write("abc", np.ones((2, 3)))
        ...     shards.find("abc", rows=2) == written, shards.find("abc", rows=3)
        (True, None)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn = 0
        self._files: dict[str, list[Path]] = {}
        for file in path.glob("*.npy") if path.is_dir() else ():
            self._files.setdefault(file.name.partition("-")[0], []).append(file)

    def find(self, key: str, rows: int) -> Path | None:
        """The file of a shard, if it exists and is intact. A damaged file is removed and counted in `torn`."""
        for file in self._files.get(key, []):
            if _is_whole(file, rows):
                return file
            with suppress(OSError):
                file.unlink()
            self.torn += 1
        return None

    def write(self, key: str, embeddings: np.ndarray) -> Path:
        """Store the embeddings of a shard as float16; returns the file.

        Raises:
            OSError: If the disk is full. Existing shards are unchanged.
        """
        array = np.ascontiguousarray(embeddings, dtype=np.float16)
        target = self.path / f"{key}-{_checksum(array):08x}.npy"
        try:
            with atomic_file(target) as temporary:
                np.save(temporary, array, allow_pickle=False)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            message = (
                f"the disk of {self.path} is full: another program has taken the space. The shards written so "
                "far are valid: make room and run again, and the run continues from there"
            )
            raise OSError(errno.ENOSPC, message) from error
        self._files.setdefault(key, []).append(target)
        return target

    def remove_abandoned(self) -> None:
        """Delete the unfinished files of interrupted runs."""
        for file in self.path.glob(".*.tmp.npy"):
            with suppress(OSError):
                if time.time() - file.stat().st_mtime > _ABANDONED_AFTER_SECONDS:
                    file.unlink()

    def require_space(self, needed: int, what: str) -> None:
        """Raise an OSError if fewer than `needed` bytes are free on the disk."""
        there = self.path
        while not there.exists():
            there = there.parent
        free = shutil.disk_usage(there).free
        if needed > free:
            raise OSError(
                errno.ENOSPC,
                f"{what} need {readable_bytes(needed)} ({needed} bytes) in {self.path}, where "
                f"{readable_bytes(free)} ({free} bytes) are free: nothing was written. Make room, or give a cache "
                "folder on another disk",
            )


def readable_bytes(count: int) -> str:
    """A number of bytes in readable form.

    Example:
        >>> readable_bytes(900), readable_bytes(3 * 2**30)
        ('900 B', '3.0 GiB')
    """
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def open_shard(file: Path) -> np.ndarray:
    """The embeddings of one shard, (rows, d) float16, memory-mapped."""
    return np.load(file, mmap_mode="r", allow_pickle=False)


def _is_whole(file: Path, rows: int) -> bool:
    try:
        array = open_shard(file)
    except (OSError, ValueError, EOFError):  # shorter than its header says, or no header
        return False
    if array.ndim != 2 or len(array) != rows or array.dtype != np.float16:
        return False
    return f"{_checksum(array):08x}" == file.stem.partition("-")[2]


def _checksum(array: np.ndarray) -> int:
    """CRC-32 of the values, which are read piece by piece."""
    rows = max(1, _BYTES_AT_A_TIME // max(1, array.shape[1] * array.itemsize))
    checksum = 0
    for start in range(0, len(array), rows):
        checksum = zlib.crc32(np.ascontiguousarray(array[start : start + rows]).data, checksum)
    return checksum
