"""What the equations share: checks of their arguments, types of numbers, rows of unit length."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# The largest number of logits that the chunked parts hold at a time (4 bytes each).
CHUNK_ELEMENTS = 2**22


def at_least_float32(x: Tensor) -> Tensor:
    """Convert 16-bit floats to float32 and leave wider ones as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def without_autocast(x: Tensor) -> torch.autocast:
    """Return a context in which autocast is off on the device of `x`."""
    return torch.autocast(device_type=x.device.type, enabled=False)


def unit_rows(x: Tensor) -> Tensor:
    """Scale each row to unit length.

    A row of zeros has no direction. It stays zero and gets no gradient, whereas `F.normalize` alone would give it
    one of 1e12.
    """
    zero = ~x.any(dim=1, keepdim=True)
    return F.normalize(x.masked_fill(zero, 1.0), dim=1).masked_fill(zero, 0.0)


def lowest_logit(x: Tensor) -> float:
    """A logit that weighs nothing, and whose differences are finite."""
    return torch.finfo(x.dtype).min / 4


def check_temperature(temperature: float) -> None:
    """Raise a ValueError unless the temperature is positive."""
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}")


def check_matrix(name: str, x: Tensor) -> None:
    """Raise a ValueError unless `x` is a matrix of floats."""
    if x.ndim != 2:
        raise ValueError(f"{name} must have two axes (rows, features), got shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {x.dtype}")


def check_pair(**sides: Tensor) -> None:
    """Raise a ValueError unless two sides, given by their names, are matrices of one shape."""
    for name, side in sides.items():
        check_matrix(name, side)
    x, y = (tuple(side.shape) for side in sides.values())
    if x != y:
        raise ValueError(f"{' and '.join(sides)} must be row-aligned, got shapes {x} and {y}")


def check_tag(name: str, tag: Tensor | None, rows: int) -> None:
    """Raise a ValueError unless `tag` is None or holds one integer per row."""
    if tag is None:
        return
    if tag.shape != (rows,):
        raise ValueError(f"{name} must have shape ({rows},), one per row, got {tuple(tag.shape)}")
    if tag.is_floating_point():
        raise ValueError(f"{name} must hold integers, got {tag.dtype}")
