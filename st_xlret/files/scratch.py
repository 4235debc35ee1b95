"""Long arrays of numbers in files without a name: they take no memory that the system cannot take back."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np

IN_MEMORY = 2**22
"""Bytes up to which an array stays in memory."""


def scratch_array(length: int, dtype: Any, folder: str | os.PathLike[str]) -> np.ndarray:
    """An array of unknown content: in memory if it is short, and mapped from a file that has no name if it is long.

    The file is gone when the array is, also if the program is killed.

    Args:
        length: Number of elements.
        dtype: Their type.
        folder: Where the file is; made if it is missing.

    Raises:
        OSError: If there is no space for it.

    Example:
        >>> numbers = scratch_array(3, np.int64, "unused")
        >>> numbers[:] = 7
        >>> numbers.tolist()
        [7, 7, 7]
    """
    size = length * np.dtype(dtype).itemsize
    if size <= IN_MEMORY:
        return np.empty(length, dtype=dtype)
    with _unnamed_file(folder) as file:
        # Writing to a mapped file on a full disk would end the program.
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                # Some file systems cannot set space aside.
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
        return np.memmap(file, dtype=dtype, mode="r+", shape=(length,)).view(np.ndarray)


class ScratchList:
    """A list of numbers that grows by arrays, and becomes one array.

    Args:
        dtype: Type of the numbers.
        folder: Where a file without a name is made once the list is long.

    Example:
        >>> numbers = ScratchList(np.int64, "unused")
        >>> numbers.extend(np.array([1, 2])); numbers.extend(np.array([3]))
        >>> numbers.finish().tolist()
        [1, 2, 3]
    """

    def __init__(self, dtype: Any, folder: str | os.PathLike[str]) -> None:
        self.dtype, self.folder = np.dtype(dtype), folder
        self._waiting: list[np.ndarray] = []
        self._bytes_waiting = self._length = 0
        self._file: IO[bytes] | None = None

    def __len__(self) -> int:
        return self._length

    def extend(self, numbers: np.ndarray) -> None:
        """Append numbers."""
        self._waiting.append(np.asarray(numbers, dtype=self.dtype))
        self._length += len(numbers)
        self._bytes_waiting += self._waiting[-1].nbytes
        if self._bytes_waiting > IN_MEMORY:
            self._write()

    def finish(self) -> np.ndarray:
        """All numbers. The list is empty afterwards."""
        if self._file is None:
            found = np.concatenate([np.empty(0, dtype=self.dtype), *self._waiting])
        else:
            self._write()
            self._file.flush()
            with self._file:
                mapped = np.memmap(self._file, dtype=self.dtype, mode="r+", shape=(self._length,))
            found = mapped.view(np.ndarray)
        self._waiting, self._bytes_waiting, self._length, self._file = [], 0, 0, None
        return found

    def _write(self) -> None:
        if self._file is None:
            self._file = _unnamed_file(self.folder)
        for numbers in self._waiting:
            self._file.write(numbers.tobytes())
        self._waiting, self._bytes_waiting = [], 0


def _unnamed_file(folder: str | os.PathLike[str]) -> Any:
    Path(folder).mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=folder)
