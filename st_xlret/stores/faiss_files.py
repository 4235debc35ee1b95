"""Vectors in an index of faiss, `.faiss`."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from st_xlret.files import atomic_file
from st_xlret.marks import writer_of
from st_xlret.stores.base import Change
from st_xlret.stores.batches import Matrix, batch_vectors
from st_xlret.stores.descriptions import metric_of
from st_xlret.stores.fields import Fields
from st_xlret.stores.numbered import NumberedStore
from st_xlret.stores.reruns import RerunCounts

_PER_LIST = 64  # vectors by which the centre of a list of an IVF index is found


class FaissStore(NumberedStore):
    """A flat or IVF index that has whole vectors, `.faiss`, which is read into memory.

    Its rows are numbered from 0.
    """

    def __init__(self, path: str, fields: Fields) -> None:
        import faiss

        self.name = path
        self.name_in_store = path
        self.fields = fields
        file = Path(path).expanduser().resolve()
        with self.sanitize_errors():
            self.index = _read_index(file)
            self.origin = writer_of(file)
        self.is_ivf = isinstance(self.index, faiss.IndexIVFFlat)
        problem = self._problem_with_index()
        if problem:
            kind = type(self.index).__name__
            raise ValueError(f"{path} is a {kind} of {self.index.ntotal} vectors: {problem}")
        if self.is_ivf:
            self.index.make_direct_map()
        self.dimension = self.index.d
        names = {faiss.METRIC_INNER_PRODUCT: "dot", faiss.METRIC_L2: "l2"}
        number = self.index.metric_type
        self.metric = metric_of(names.get(number, f"faiss's metric {number}"), path)

    def __len__(self) -> int:
        return int(self.index.ntotal)

    def _problem_with_index(self) -> str | None:
        """Why its vectors cannot be read, in words; None if they can.

        `read_vectors` takes the ids to be the numbers from 0.
        """
        import faiss

        is_flat = isinstance(self.index, faiss.IndexFlat)
        if self.index.ntotal == 0 or not (self.is_ivf or is_flat):
            return "IndexFlat and IndexIVFFlat are read, for others map queries alone"
        if self.is_ivf:
            expected = np.arange(self.index.ntotal)
            if not np.array_equal(np.sort(self._ids_of_lists()), expected):
                return f"the ids of an IVF index have to be 0 to {expected[-1]}, each once"
        return None

    def _ids_of_lists(self) -> NDArray[np.int64]:
        """The ids of the vectors, list by list, as the index holds them."""
        import faiss

        lists = self.index.invlists
        ids = []
        for number in range(lists.nlist):
            size = lists.list_size(number)
            if size:
                ids.append(faiss.rev_swig_ptr(lists.get_ids(number), size))
        return np.concatenate(ids)

    def read_vectors(self, start: int, stop: int) -> Matrix:
        """The rows in the order in which they were added."""
        vectors: Matrix = self.index.reconstruct_n(start, stop - start)
        return vectors

    def write(self, into: str, origin: str, change: Change) -> RerunCounts:
        """A new index of the same kind; a row without a vector is a row of zeros.

        The writer that its mark names is the origin, which is read back from there.
        """
        import faiss

        path = self.new_file(into, ".faiss")
        with atomic_file(path, ours=origin) as temporary:
            mapped = [batch_vectors(change(batch)) for batch in self.batches()]
            vectors = np.nan_to_num(np.concatenate(mapped))
            index = self._empty_index(vectors)
            index.add(vectors)
            faiss.write_index(index, str(temporary))
        return RerunCounts()

    def _empty_index(self, vectors: Matrix) -> Any:
        """An index like this one, without vectors; the centres of its lists are from these."""
        import faiss

        old = self.index
        flat = faiss.IndexFlat(old.d, old.metric_type)
        if not self.is_ivf:
            return flat
        index = faiss.IndexIVFFlat(flat, old.d, old.nlist, old.metric_type)
        index.nprobe = old.nprobe
        shuffled = np.random.default_rng(0).permutation(len(vectors))
        index.train(vectors[shuffled[: _PER_LIST * old.nlist]])
        return index


def _read_index(file: Path) -> Any:
    import faiss

    return faiss.read_index(str(file))
