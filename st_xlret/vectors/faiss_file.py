"""Vectors in a faiss index on the disk, flat or IVF."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from st_xlret.files import atomic_file
from st_xlret.vectors.base import Fields, Metric, VectorRows, VectorSource, VectorTarget, existing_file
from st_xlret.vectors.numpy_file import new_file

_METRICS: dict[int, Metric] = {faiss.METRIC_INNER_PRODUCT: "dot", faiss.METRIC_L2: "euclidean"}
_PER_LIST = 64  # vectors by which the centre of a list is found


class FaissVectors(VectorSource):
    """A flat or IVF index that has whole vectors, which is read into memory; its rows are numbered from 0."""

    def __init__(self, path: str, fields: Fields) -> None:
        self.name, self.called, self.fields = path, path, fields
        with self.errors():
            self.index: Any = faiss.read_index(str(existing_file(path)))
        self.is_ivf = isinstance(self.index, faiss.IndexIVFFlat)
        if not self.is_ivf and not isinstance(self.index, faiss.IndexFlat):
            raise ValueError(
                f"{path} is a {type(self.index).__name__}, and vectors are read from IndexFlat and IndexIVFFlat, which "
                "hold them whole and number them. For other indexes, map the queries alone"
            )
        if not self.index.ntotal:
            raise ValueError(f"{path}: the index is empty")
        if self.is_ivf:
            with self.errors():
                self.index.make_direct_map()  # type: ignore[attr-defined]
        self.dimension = self.index.d
        self.metric = _METRICS.get(self.index.metric_type)

    def __len__(self) -> int:
        return int(self.index.ntotal)

    def read(self, size: int, everything: bool) -> Iterator[VectorRows]:
        """The rows in the order in which they were added."""
        for start in range(0, len(self), size):
            vectors = self.index.reconstruct_n(start, min(size, len(self) - start))
            nothing: list[str | None] = [None] * len(vectors)
            yield VectorRows(range(start, start + len(vectors)), vectors, nothing, nothing, nothing)

    def target(self, name: str, mark: str) -> VectorTarget:
        """A new index of the same kind; a row without a vector is a row of zeros."""
        return _FaissFile(self, new_file(name, ".faiss"))


class _FaissFile(VectorTarget):
    def __init__(self, source: FaissVectors, path: Path) -> None:
        self.source, self.path, self.name = source, path, str(path)
        self.switch, self.back = (f'index = faiss.read_index("{file}")' for file in (path, source.name))

    def __enter__(self) -> VectorTarget:
        self.written: list[NDArray[np.float32]] = []
        return self

    def write(self, rows: VectorRows) -> None:
        self.written.append(np.nan_to_num(rows.vectors))

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is not None:
            return
        old, vectors = self.source.index, np.concatenate(self.written)
        index: Any = faiss.IndexFlat(old.d, old.metric_type)
        if self.source.is_ivf:
            index = faiss.IndexIVFFlat(index, old.d, old.nlist, old.metric_type)
            index.nprobe = old.nprobe
            drawn = np.random.default_rng(0).permutation(len(vectors))[: _PER_LIST * old.nlist]
            index.train(vectors[drawn])
        index.add(vectors)
        with atomic_file(self.path) as temporary:
            faiss.write_index(index, str(temporary))
