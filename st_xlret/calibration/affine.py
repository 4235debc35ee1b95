"""Affine maps and the moments of point clouds under them, in float64."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Affine(NamedTuple):
    """``x -> W x + b`` on rows.

    Attributes:
        weight: W, (d, d).
        bias: b, (d,).

    Example:
        >>> half = Affine(torch.eye(2) / 2, torch.ones(2))
        >>> half(torch.tensor([[4.0, 0.0]]))
        tensor([[3., 1.]])
        >>> half.then(half)(torch.tensor([[4.0, 0.0]]))
        tensor([[2.5000, 1.5000]])
    """

    weight: Tensor
    bias: Tensor

    @classmethod
    def identity(cls, dimension: int) -> Affine:
        """The map that changes nothing, in float64."""
        return cls.linear(torch.eye(dimension, dtype=torch.float64))

    @classmethod
    def linear(cls, weight: Tensor) -> Affine:
        """``x -> W x``."""
        return cls(weight, torch.zeros_like(weight[0]))

    @classmethod
    def translation(cls, offset: Tensor) -> Affine:
        """``x -> x + offset``."""
        return cls(torch.eye(len(offset), dtype=offset.dtype, device=offset.device), offset)

    def then(self, following: Affine) -> Affine:
        """This map first, the other one after it."""
        return Affine(following.weight @ self.weight, following.weight @ self.bias + following.bias)

    def __call__(self, rows: Tensor) -> Tensor:
        """Map rows (n, d), in their own dtype and on their device."""
        return rows @ self.weight.T.to(rows) + self.bias.to(rows)
