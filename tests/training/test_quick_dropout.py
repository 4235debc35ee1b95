"""Dropout with random numbers of 16 bits."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from st_xlret.training.quick_dropout import quick_dropout, quick_dropout_layers
from tests import tiny


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_values_are_dropped_or_scaled(dtype: torch.dtype, share: float) -> None:
    torch.manual_seed(0)
    values = torch.full((7, 11, 1301), 3.0, dtype=dtype)
    dropped = quick_dropout(values, share)
    assert dropped.dtype == dtype and dropped.shape == values.shape
    kept = dropped[dropped != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 3 / (1 - share)), rtol=1e-2, atol=0)
    assert (dropped == 0).float().mean().item() == pytest.approx(share, abs=5e-3)


def test_each_of_the_values_that_share_a_number_is_dropped_as_often_and_by_itself() -> None:
    torch.manual_seed(0)
    dropped = (quick_dropout(torch.ones(200_000, 4), 0.3) == 0).float()
    torch.testing.assert_close(dropped.mean(0), torch.full((4,), 0.3), atol=5e-3, rtol=0)
    correlations = torch.corrcoef(dropped.T) - torch.eye(4)
    assert correlations.abs().max() < 0.01
    # Neighbours in other numbers, too.
    assert torch.corrcoef(torch.stack([dropped[:-1, 3], dropped[1:, 0]]))[0, 1].abs() < 0.01


@pytest.mark.parametrize("share", [2**-16, 0.1, 0.3333, 0.5, 0.999])
def test_of_all_bits_the_share_is_dropped_and_the_mean_is_kept(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    every = torch.arange(-(1 << 15), 1 << 15).to(torch.int16)
    monkeypatch.setattr(Tensor, "random_", lambda numbers, *_: numbers.copy_(every.view(torch.int64)))
    dropped = quick_dropout(torch.ones(1 << 16, dtype=torch.float64), share)
    assert int((dropped == 0).sum()) == round(share * (1 << 16))
    assert dropped.mean().item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_cannot_be(share: float) -> None:
    with pytest.raises(ValueError, match=r"in \[0, 1\], got"):
        quick_dropout(torch.ones(3), share)


def test_layers_in_place_and_other_kinds_of_dropout_are_left_to_pytorch() -> None:
    class Other(nn.Dropout):
        """A layer that may do something else."""

    model = nn.Sequential(nn.Dropout(0.5, inplace=True), Other(0.5), nn.Dropout(0.5))
    with quick_dropout_layers(model):
        assert ["forward" in vars(layer) for layer in model] == [False, False, True]


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (1e-6, 1.0), (1.0, 0.0)])
def test_the_ends(share: float, expected: float) -> None:
    assert torch.equal(quick_dropout(torch.ones(3, 5), share), torch.full((3, 5), expected))


@pytest.mark.parametrize("shape", [(), (1,), (0, 4), (3,), (5, 1)])
def test_shapes(shape: tuple[int, ...]) -> None:
    assert quick_dropout(torch.ones(shape), 0.5).shape == shape


def test_the_gradient_is_that_of_the_values_that_are_kept() -> None:
    values = torch.randn(9, 7, dtype=torch.float64).T.requires_grad_()
    dropped = quick_dropout(values, 0.4)
    (slope,) = torch.autograd.grad(dropped.sum(), values)
    torch.testing.assert_close(slope * values, dropped)


def test_the_generator_of_pytorch_decides() -> None:
    def draw() -> Tensor:
        return quick_dropout(torch.ones(100), 0.5)

    torch.manual_seed(3)
    first, then = draw(), draw()
    torch.manual_seed(3)
    assert torch.equal(draw(), first) and torch.equal(draw(), then) and not torch.equal(first, then)


def test_the_variance_is_that_of_pytorchs_dropout() -> None:
    torch.manual_seed(0)
    values = torch.randn(1000, 100)
    ours, theirs = (drop(values, 0.2).var().item() for drop in (quick_dropout, dropout))
    assert ours == pytest.approx(theirs, rel=0.02)


def test_layers_drop_in_training_alone_and_are_as_before_afterwards() -> None:
    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5))
    inputs = torch.randn(8, 4)
    with quick_dropout_layers(model):
        model.eval()
        assert torch.equal(model(inputs), model[0](inputs))
        model.train()
        torch.manual_seed(0)
        found = model(inputs)
        torch.manual_seed(0)
        torch.testing.assert_close(found, quick_dropout(model[0](inputs), 0.5))
        copied = copy.deepcopy(model)
    assert "forward" not in vars(model[1])
    # The copy drops as its own layer says.
    copied[1].p = 0.0
    assert torch.equal(copied(inputs), copied[0](inputs))


def test_an_encoder_learns_with_it() -> None:
    model = tiny.transformer(dropout=0.1).train()
    features = model.preprocess(["sun moon", "rain"])
    with quick_dropout_layers(model):
        values = [model(dict(features))["sentence_embedding"] for _ in range(2)]
    assert not torch.equal(*values)
    values[0].sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_compiled_functions_call_pytorchs_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.manual_seed(0)
    found = quick_dropout(torch.ones(50), 0.5)
    torch.manual_seed(0)
    assert torch.equal(found, dropout(torch.ones(50), 0.5))
