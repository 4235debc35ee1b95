"""Checks of arguments and types that the equations share."""

from __future__ import annotations

import torch
from torch import Tensor

# At most this many logits are alive at a time in the chunked parts (4 bytes each).
CHUNK_ELEMENTS = 2**22


def at_least_float32(x: Tensor) -> Tensor:
    """16-bit floats become float32, others stay."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def without_autocast(x: Tensor) -> torch.autocast:
    """A context in which autocast of ``x``'s device is off."""
    return torch.autocast(device_type=x.device.type, enabled=False)


def check_temperature(temperature: float) -> None:
    """Raise a ValueError unless the temperature is positive."""
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}")


def check_matrix(name: str, x: Tensor) -> None:
    """Raise a ValueError unless ``x`` is a matrix of floats."""
    if x.ndim != 2:
        raise ValueError(f"{name} must have two axes (rows, features), got shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {x.dtype}")


def check_pair(x: Tensor, y: Tensor) -> None:
    """Raise a ValueError unless ``x`` and ``y`` are matrices of one shape."""
    check_matrix("x", x)
    check_matrix("y", y)
    if x.shape != y.shape:
        raise ValueError(f"x and y must be row-aligned, got shapes {tuple(x.shape)} and {tuple(y.shape)}")


def check_tag(name: str, tag: Tensor | None, rows: int) -> None:
    """Raise a ValueError unless ``tag`` is None or holds one integer per row."""
    if tag is None:
        return
    if tag.shape != (rows,):
        raise ValueError(f"{name} must have shape ({rows},), one per row, got {tuple(tag.shape)}")
    if tag.is_floating_point():
        raise ValueError(f"{name} must hold integers, got {tag.dtype}")
