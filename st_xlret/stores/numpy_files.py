"""Vectors in an array of NumPy, `.npy`."""

from pathlib import Path

import numpy as np

from st_xlret.files import atomic_file
from st_xlret.marks import writer_of
from st_xlret.stores.base import Change
from st_xlret.stores.batches import Matrix, batch_vectors
from st_xlret.stores.fields import Fields
from st_xlret.stores.numbered import NumberedStore
from st_xlret.stores.reruns import RerunCounts


class NumpyStore(NumberedStore):
    """An array (rows, dimension) of floating-point numbers, `.npy`, which stays on the disk."""

    def __init__(self, path: str, fields: Fields) -> None:
        self.name = path
        self.name_in_store = path
        self.fields = fields
        file = Path(path).expanduser().resolve()
        with self.sanitize_errors():
            self.array = np.load(file, mmap_mode="c", allow_pickle=False)
            self.origin = writer_of(file)
        is_matrix = self.array.ndim == 2 and self.array.shape[1] > 0
        if not is_matrix or not np.issubdtype(self.array.dtype, np.floating):
            raise ValueError(
                f"{path} has {self.array.dtype} of the shape {self.array.shape}; "
                "vectors are floating-point numbers of the shape (rows, dimension)"
            )
        self.dimension = self.array.shape[1]
        self.numbers = self.array.dtype

    def __len__(self) -> int:
        return len(self.array)

    def read_vectors(self, start: int, stop: int) -> Matrix:
        """The rows as float32."""
        # A float64 that float32 does not hold becomes infinite: not usable.
        with np.errstate(over="ignore"):
            return self.array[start:stop].astype(np.float32)

    def write(self, into: str, origin: str, change: Change) -> RerunCounts:
        """A new `.npy` file; a row without a vector is a row of NaN.

        The writer that its mark names is the origin, which is read back from there.
        """
        path = self.new_file(into, ".npy")
        header = {
            "descr": self.array.dtype.str,
            "fortran_order": False,
            "shape": self.array.shape,
        }
        with atomic_file(path, ours=origin) as temporary, open(temporary, "wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for batch in self.batches():
                mapped = batch_vectors(change(batch)).astype(self.array.dtype)
                # Not `open_memmap`, which on a full disk kills the process.
                file.write(mapped.data)
        return RerunCounts()
