"""Reading arrays, tensors, memory maps and iterators of them as float32 blocks of bounded size."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor

Embeddings: TypeAlias = "np.ndarray | Tensor"
Corpus: TypeAlias = "Embeddings | Iterable[Embeddings]"


@runtime_checkable
class RowsOnDisk(Protocol):
    """A matrix that is read by slices, such as the embeddings of a cache, so that it is never in memory as a whole."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    def __len__(self) -> int:
        """Number of rows."""

    def __getitem__(self, rows: slice, /) -> Any:
        """Consecutive rows, as a NumPy array or a tensor."""


Rows: TypeAlias = "Embeddings | RowsOnDisk"


class UnitRows:
    """Rows divided by their lengths as they are read, as a corpus or as queries.

    Args:
        rows: Shape (n, d).
        name: What they are, for error messages.

    Example:
        >>> UnitRows(torch.tensor([[3.0, 4.0]]), "source")[0:1]
        tensor([[0.6000, 0.8000]])
    """

    ndim = 2

    def __init__(self, rows: Rows, name: str) -> None:
        self.rows = rows
        self.name = name
        self.shape = tuple(rows.shape)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> Tensor:
        """Consecutive rows, (rows, d) float32."""
        return unit_rows(self.rows[part], self.name, first_row=part.start or 0)

    def __iter__(self) -> Iterator[Tensor]:
        """All rows, in blocks."""
        for start in range(0, len(self), _UNIT_BLOCK):
            yield self[start : start + _UNIT_BLOCK]


_UNIT_BLOCK = 65_536


def check_rows(rows: Any, name: str) -> None:
    """Raise a ValueError unless this is a matrix in memory, or one that is read by slices."""
    in_memory = isinstance(rows, (np.ndarray, Tensor))
    if in_memory or not isinstance(rows, RowsOnDisk) or len(rows.shape) != 2:
        check_matrix(rows, name)


def check_matrix(embeddings: Any, name: str, dimension: int | None = None) -> None:
    """Raise a ValueError unless this is a matrix and, where a dimension is given, has that width."""
    if not isinstance(embeddings, (np.ndarray, Tensor)):
        raise ValueError(f"{name} must be a NumPy array or a tensor, got {type(embeddings).__name__}.")
    if embeddings.ndim != 2:
        raise ValueError(f"{name} must have shape (rows, dimension), got {tuple(embeddings.shape)}.")
    if dimension is not None and embeddings.shape[1] != dimension:
        raise ValueError(
            f"queries have dimension {dimension} and {name} has dimension {embeddings.shape[1]}: "
            "encode both with the same model."
        )


def require_finite(rows: Tensor, first_row: int, name: str) -> None:
    """Raise a ValueError that names the first row with NaN or infinite values, if there is one."""
    if bool(torch.isfinite(rows.sum())):  # a sum over values that are not all finite is not finite
        return
    finite = torch.isfinite(rows).all(dim=1)
    if not bool(finite.all()):
        raise ValueError(_not_finite(name, first_row + int((~finite).nonzero()[0, 0])))


def _not_finite(name: str, row: int) -> str:
    return (
        f"{name} row {row} holds NaN or infinite values (in float32), which cannot be searched or compared. "
        "Check the text and the model that produced this row, or drop it."
    )


def as_float32(rows: Embeddings, device: torch.device) -> Tensor:
    """The rows as a float32 tensor, without a copy where they are one already.

    Rows of a memory map are copied and the pages that were read are released, so that the memory of the process does
    not grow with the file.
    """
    if isinstance(rows, Tensor):
        return rows.detach().to(device=device, dtype=torch.float32)
    if rows.dtype == np.float32 and rows.flags.writeable and not isinstance(rows, np.memmap):
        return torch.from_numpy(rows).to(device)
    if rows.dtype == np.float16:  # torch converts half precision many times faster
        copied = torch.from_numpy(np.array(rows)).to(device=device, dtype=torch.float32)
    else:
        copied = torch.from_numpy(np.array(rows, dtype=np.float32)).to(device)
    _give_pages_back(rows)
    return copied


def unit_rows(
    rows: Embeddings, name: str = "embeddings", *, first_row: int = 0, device: torch.device | None = None
) -> Tensor:
    """The rows divided by their lengths, so that dot products are cosines. Rows of zeros stay zeros.

    Args:
        rows: Shape (n, d), NumPy or torch, any floating dtype.
        name: What the rows are, for error messages.
        first_row: Number of the first row, for error messages.
        device: Where the result is. Default: where the rows are.

    Returns:
        (n, d) float32.

    Raises:
        ValueError: If the rows are no matrix, or a row holds NaN or infinite values.

    Example:
        >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
        [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    check_matrix(rows, name)
    vectors = as_float32(rows, default_device(rows) if device is None else device)
    lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    if not bool(torch.isfinite(lengths.sum())):
        # Squares of large finite numbers overflow: divided by the largest first, they do not.
        largest = vectors.abs().amax(dim=1, keepdim=True)
        broken = ~torch.isfinite(largest[:, 0])
        if bool(broken.any()):
            raise ValueError(_not_finite(name, first_row + int(broken.nonzero()[0, 0])))
        vectors = vectors / largest.clamp(min=1.0)
        lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return vectors / lengths.clamp(min=1e-30)


def default_device(*embeddings: Any) -> torch.device:
    """The accelerator on which the first of these tensors is, or the CPU if none is on one."""
    devices = [array.device for array in embeddings if isinstance(array, Tensor)]
    return next((device for device in devices if device.type != "cpu"), torch.device("cpu"))


def corpus_blocks(
    corpus: Corpus, size: int, dimension: int, device: torch.device, name: str = "corpus"
) -> Iterator[tuple[int, Tensor]]:
    """Yield the index of the first row and the rows of each block: float32, finite, 1 to `size` rows.

    Small chunks of an iterator are joined. The iterator may reuse the memory of a chunk for the next one.

    Raises:
        ValueError: If a chunk is not a matrix, has another width, or holds NaN or infinite values.
    """
    pending: list[Tensor] = []
    first_row = waiting = 0
    for chunk, is_kept in _chunks(corpus, name, dimension):
        for start in range(0, len(chunk), size):
            rows = as_float32(chunk[start : start + size], device)
            require_finite(rows, first_row + waiting, name)
            if waiting + len(rows) > size:
                yield first_row, _joined(pending)
                first_row, pending, waiting = first_row + waiting, [], 0
            if len(rows) == size:
                yield first_row, rows
                first_row += size
                continue
            pending.append(rows if is_kept else rows.clone())
            waiting += len(rows)
    if pending:
        yield first_row, _joined(pending)


def _chunks(corpus: Corpus, name: str, dimension: int) -> Iterator[tuple[Embeddings, bool]]:
    """The chunks, and whether their memory remains unchanged."""
    if isinstance(corpus, (np.ndarray, Tensor)):
        check_matrix(corpus, name, dimension)
        yield corpus, True
        return
    if isinstance(corpus, (str, bytes)) or not isinstance(corpus, Iterable):
        raise ValueError(f"{name} must be an array, a tensor or an iterable of them, got {type(corpus).__name__}.")
    for number, chunk in enumerate(corpus):
        check_matrix(chunk, f"chunk {number} of the {name}", dimension)
        yield chunk, False


def _joined(pieces: list[Tensor]) -> Tensor:
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _give_pages_back(rows: np.ndarray) -> None:
    """Release the pages of the read-only memory map that holds these rows.

    The whole map is released, as the kernel maps neighbouring pages too. Pages that are read again are mapped again.
    """
    owner: Any = rows
    while owner is not None and not isinstance(owner, mmap.mmap):
        if isinstance(owner, np.memmap) and owner.mode != "r":
            return  # a copy-on-write map would lose what was written to it
        owner = getattr(owner, "base", None)
    if owner is not None and hasattr(owner, "madvise"):
        owner.madvise(mmap.MADV_DONTNEED)
