"""Vectors in a NumPy file, `.npy`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from st_xlret.files import atomic_file, check_output_file
from st_xlret.vectors.base import Fields, VectorRows, VectorSource, VectorTarget, cast, existing_file


class NumpyVectors(VectorSource):
    """An array (rows, dimension) of floating-point numbers, which stays on the disk."""

    def __init__(self, path: str, fields: Fields) -> None:
        self.name, self.called, self.fields = path, path, fields
        try:
            self.array = np.load(existing_file(path), mmap_mode="c", allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"{path} is no NumPy file of numbers: {error}") from error
        if self.array.ndim != 2 or not self.array.shape[1] or not np.issubdtype(self.array.dtype, np.floating):
            raise ValueError(
                f"{path} has the shape {self.array.shape} and the type {self.array.dtype}; vectors are an array "
                "(rows, dimension) of float16, float32 or float64"
            )
        self.dimension = self.array.shape[1]

    def __len__(self) -> int:
        return len(self.array)

    def read(self, size: int, everything: bool) -> Iterator[VectorRows]:
        """The rows, numbered from 0."""
        for start in range(0, len(self.array), size):
            vectors = cast(self.array[start : start + size], np.float32)
            nothing: list[str | None] = [None] * len(vectors)
            yield VectorRows(range(start, start + len(vectors)), vectors, nothing, nothing, nothing)

    def target(self, name: str, mark: str) -> VectorTarget:
        """A new `.npy` file; a row without a vector is a row of NaN."""
        return _NumpyFile(self, new_file(name, ".npy"))


class _NumpyFile(VectorTarget):
    def __init__(self, source: NumpyVectors, path: Path) -> None:
        self.path, self.name = path, str(path)
        self.shape, self.dtype = source.array.shape, source.array.dtype
        self.switch, self.back = (f'vectors = np.load("{file}", mmap_mode="r")' for file in (path, source.name))

    def __enter__(self) -> VectorTarget:
        self.stack = ExitStack()
        self.file = self.stack.enter_context(open(self.stack.enter_context(atomic_file(self.path)), "wb"))
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(self.file, header)
        return self

    def write(self, rows: VectorRows) -> None:
        self.file.write(np.ascontiguousarray(cast(rows.vectors, self.dtype)).data)

    def __exit__(self, *error: Any) -> Any:
        return self.stack.__exit__(*error)


def new_file(name: str, suffix: str) -> Path:
    """The path of a file that can be written, and is not there yet."""
    path = Path(name).expanduser()
    if path.suffix != suffix:
        raise ValueError(f"{name}: vectors of a {suffix} file go into another; name a {suffix} file")
    if path.exists():
        raise FileExistsError(f"{name} exists, and nothing is overwritten: give another name")
    return check_output_file(path)
