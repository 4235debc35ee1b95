"""What the tests of the equations share."""

from collections.abc import Sequence

import torch
from torch import Tensor


def vectors(rows: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 5, generator=generator, dtype=torch.float64).requires_grad_()


def assert_same(loss: Tensor, expected: Tensor, inputs: Sequence[Tensor]) -> None:
    """Equal values, and equal gradients with respect to the inputs."""
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(loss, inputs)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, inputs))


def assert_zero_without_gradient(loss: Tensor, *inputs: Tensor) -> None:
    loss.backward()
    assert loss == 0
    for matrix in inputs:
        assert matrix.grad is None or not matrix.grad.any()
