"""ProjectionHead: its layers, and which statistics it uses when."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from st_xlret.modules import ProjectionHead


def test_equals_its_layers_one_after_another() -> None:
    head = ProjectionHead(6, 10, 4).double()
    layers = nn.Sequential(
        nn.Linear(6, 10, bias=False),
        nn.BatchNorm1d(10),
        nn.ReLU(),
        nn.Linear(10, 4, bias=False),
        nn.BatchNorm1d(4, affine=False),
    ).double()
    layers.load_state_dict(dict(zip(layers.state_dict(), head.state_dict().values(), strict=True)))
    x = torch.randn(7, 6, dtype=torch.float64)
    for _ in range(2):
        torch.testing.assert_close(head(x), layers(x))
    for one, other in zip(head.state_dict().values(), layers.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(head.eval()(x), layers.eval()(x))


def test_gradient() -> None:
    head = ProjectionHead(3, 4).double()
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: head(x) + 0, (x,))


def test_without_gradients_the_running_statistics_are_used_and_kept() -> None:
    head = ProjectionHead(6)
    head(torch.randn(8, 6))
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    x = torch.randn(3, 6)
    with torch.no_grad():
        assert head.training
        torch.testing.assert_close(head(x)[:1], head(x[:1]))
    assert all(torch.equal(tensor, before[name]) for name, tensor in head.state_dict().items())


def test_statistics_of_one_row_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 rows to take statistics from, got 1"):
        ProjectionHead(6)(torch.randn(1, 6))
