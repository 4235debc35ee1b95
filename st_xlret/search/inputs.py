"""What search is given: checked, and rows as float32 on one device, finite, of unit length."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

Embeddings: TypeAlias = "np.ndarray | Tensor"
"""A matrix in memory, or a memory map."""

Device: TypeAlias = "str | torch.device | None"

# Between these, the square of a length neither under- nor overflows.
_SHORTEST = 1e-15
_LONGEST = 1e18


def check_matrix(rows: Any, name: str, width: int | None = None) -> None:
    """Refuse what is no matrix, or one whose rows have another length than those searched for."""
    shape = tuple(getattr(rows, "shape", ()))
    if len(shape) != 2:
        kind = type(rows).__name__
        raise ValueError(f"{name} is no matrix (rows, numbers), but a {kind} of the shape {shape}")
    if width not in (None, shape[1]):
        raise ValueError(f"{name} has {shape[1]} numbers in a row, and not {width}")


def check_k(k: int, rows: int | None = None) -> None:
    """Refuse a number of neighbours that is no whole number from 1 to the rows that there are."""
    if not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k={k!r} is no whole number from 1")
    if rows is not None and k > rows:
        raise ValueError(f"k={k} is larger than the corpus of {rows} rows")


def unit_rows(rows: Embeddings, name: str = "embeddings") -> Tensor:
    """The rows (n, d) divided by their lengths, float32, to search by cosine.

    Rows of zeros stay, NaN is refused.

    Example:
        >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    check_matrix(rows, name)
    return finite_unit_rows(rows, name, computing_device(None, rows))


def finite_unit_rows(
    rows: Embeddings, name: str, device: torch.device, first_row: int = 0
) -> Tensor:
    """`unit_rows` of a block that begins at `first_row` of its matrix.

    That is what an error counts from.
    """
    vectors = finite_float32(rows, name, device, first_row)
    lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    has_exact_length = (lengths > _SHORTEST) & (lengths < _LONGEST)
    if not bool(has_exact_length.all()):
        tiny = torch.finfo(torch.float32).tiny
        largest = vectors.abs().amax(dim=1, keepdim=True)
        vectors = vectors / largest.clamp(min=tiny)
        lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return vectors / lengths.clamp(min=1e-30)


def finite_float32(rows: Embeddings, name: str, device: torch.device, first_row: int = 0) -> Tensor:
    """The rows as float32 on the device.

    A `ValueError` names the first not finite, counted from `first_row`.
    """
    vectors = as_float32(rows, device)
    if not bool(vectors.sum().isfinite()):  # as is a sum over values that are not all finite
        refuse_not_finite(vectors, name, first_row)
    return vectors


def refuse_not_finite(vectors: Tensor, name: str, first_row: int) -> None:
    """Raise a `ValueError` that names the first row which is not finite, if there is one."""
    is_finite = vectors.isfinite().all(dim=1)
    if bool(is_finite.all()):
        return
    row = first_row + int((~is_finite).nonzero()[0])
    raise ValueError(f"{name} row {row} holds NaN or infinite values: drop it, or its text")


def as_float32(rows: Embeddings, device: torch.device) -> Tensor:
    """The rows as float32 on the device; a copy where PyTorch cannot take them as they are.

    Else it shares their memory, see `is_read_in_place`, and is not written to.
    """
    if isinstance(rows, np.ndarray):
        if rows.dtype != np.float16:  # which PyTorch converts faster
            rows = rows.astype(np.float32, copy=False)
        rows = torch.from_numpy(rows if _can_be_shared(rows) else rows.copy())
    return rows.detach().to(device=device, dtype=torch.float32)


def is_read_in_place(rows: Embeddings, device: torch.device) -> bool:
    """Whether `as_float32` takes no memory: what it gives is then the memory of the rows."""
    if isinstance(rows, np.ndarray):
        return device.type == "cpu" and rows.dtype == np.float32 and _can_be_shared(rows)
    return rows.device == device and rows.dtype == torch.float32


def _can_be_shared(rows: np.ndarray) -> bool:
    """Whether PyTorch takes an array without a copy: it warns of files that are read only."""
    return rows.flags.writeable and min(rows.strides) >= 0


def computing_device(device: Device, *inputs: Any) -> torch.device:
    """The device that is asked for, else the accelerator that an input is on, else the CPU."""
    if device is not None:
        return torch.device(device)
    for each in inputs:
        if isinstance(each, Tensor) and each.device.type != "cpu":
            return each.device
    return torch.device("cpu")
