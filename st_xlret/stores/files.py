"""Vectors in files that have nothing else: a NumPy array, or a faiss index. Their languages are in another file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from st_xlret.files import atomic_file, check_output_file
from st_xlret.stores.base import Change, Fields, Store, matrix, rows_batch

_PER_LIST = 64  # vectors by which the centre of a list of an IVF index is found


class NumpyStore(Store):
    """An array (rows, dimension) of floating-point numbers, `.npy`, which stays on the disk."""

    def __init__(self, path: str, fields: Fields) -> None:
        self.name, self.called, self.fields = path, path, fields
        with self.errors():
            self.array = np.load(Path(path).expanduser(), mmap_mode="c", allow_pickle=False)
        if self.array.ndim != 2 or not self.array.shape[1] or not np.issubdtype(self.array.dtype, np.floating):
            raise ValueError(
                f"{path} has the shape {self.array.shape} and the type {self.array.dtype}; vectors are an array "
                "(rows, dimension) of float16, float32 or float64"
            )
        self.dimension = self.array.shape[1]

    def __len__(self) -> int:
        return len(self.array)

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The rows, numbered from 0."""
        for start in range(0, len(self), self.size):
            with np.errstate(over="ignore"):  # a float64 that float32 does not hold becomes infinite: not usable
                vectors = self.array[start : start + self.size].astype(np.float32)
            yield rows_batch(range(start, start + len(vectors)), vectors)

    def write(self, into: str, mark: str, change: Change) -> None:
        """A new `.npy` file; a row without a vector is a row of NaN."""
        with atomic_file(new_file(self, into, ".npy")) as temporary, open(temporary, "wb") as file:
            header = {"descr": self.array.dtype.str, "fortran_order": False, "shape": self.array.shape}
            np.lib.format.write_array_header_1_0(file, header)
            for batch in map(change, self.batches()):
                # Not `open_memmap`, which on a full disk kills the process.
                file.write(matrix(batch).astype(self.array.dtype).data)


class FaissStore(Store):
    """A flat or IVF index that has whole vectors, `.faiss`, which is read into memory; its rows are numbered from 0."""

    def __init__(self, path: str, fields: Fields) -> None:
        import faiss

        self.name, self.called, self.fields = path, path, fields
        with self.errors():
            self.index: Any = faiss.read_index(str(Path(path).expanduser()))
            self.is_ivf = isinstance(self.index, faiss.IndexIVFFlat)
            if self.is_ivf:
                self.index.make_direct_map()  # type: ignore[attr-defined]
        if not (self.is_ivf or isinstance(self.index, faiss.IndexFlat)) or not self.index.ntotal:
            raise ValueError(
                f"{path} is a {type(self.index).__name__} of {self.index.ntotal} vectors, and vectors are read from "
                "IndexFlat and IndexIVFFlat, which hold them whole. For other indexes, map the queries alone"
            )
        self.dimension = self.index.d
        of_type = {faiss.METRIC_INNER_PRODUCT: "dot", faiss.METRIC_L2: "euclidean"}
        self.metric = of_type.get(self.index.metric_type)  # type: ignore[assignment]

    def __len__(self) -> int:
        return int(self.index.ntotal)

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The rows in the order in which they were added."""
        for start in range(0, len(self), self.size):
            vectors = self.index.reconstruct_n(start, min(self.size, len(self) - start))
            yield rows_batch(range(start, start + len(vectors)), vectors)

    def write(self, into: str, mark: str, change: Change) -> None:
        """A new index of the same kind; a row without a vector is a row of zeros."""
        import faiss

        path, old = new_file(self, into, ".faiss"), self.index
        vectors = np.nan_to_num(np.concatenate([matrix(batch) for batch in map(change, self.batches())]))
        index: Any = faiss.IndexFlat(old.d, old.metric_type)
        if self.is_ivf:
            index = faiss.IndexIVFFlat(index, old.d, old.nlist, old.metric_type)
            index.nprobe = old.nprobe
            index.train(vectors[np.random.default_rng(0).permutation(len(vectors))[: _PER_LIST * old.nlist]])
        index.add(vectors)
        with atomic_file(path) as temporary:
            faiss.write_index(index, str(temporary))


def new_file(store: Store, into: str, suffix: str) -> Path:
    """The path of a file that can be written, and is not there yet."""
    path = Path(into).expanduser()
    if path.suffix != suffix:
        raise ValueError(f"{into}: vectors of {store.name} go into another {suffix} file")
    store.refuse_taken(f"a file {into}", path.exists())
    return check_output_file(path)
