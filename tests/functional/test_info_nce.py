"""info_nce_loss against Eq. 2 of lang-contrastive, its limits and its edges."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from st_xlret.functional import info_nce_loss
from tests.functional.oracles import naive_semantic_loss


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    shape = (5, 4)
    return (
        torch.randn(shape, dtype=torch.float64, requires_grad=True),
        torch.randn(shape, dtype=torch.float64, requires_grad=True),
    )


@pytest.mark.parametrize("text", [None, [0, 1, 2, 3, 0, 5, 6, 5, 8, 9]])
def test_equals_the_papers_equation(pair: tuple[Tensor, Tensor], text: list[int] | None) -> None:
    loss = info_nce_loss(*pair, temperature=0.2, text=None if text is None else torch.tensor(text))
    expected = naive_semantic_loss(*pair, temperature=0.2, text=text)
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(torch.autograd.grad(loss, pair), torch.autograd.grad(expected, pair), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_default_temperature(pair: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(info_nce_loss(*pair), naive_semantic_loss(*pair, temperature=0.07))


def test_gradient(pair: tuple[Tensor, Tensor]) -> None:
    assert torch.autograd.gradcheck(lambda x, y: info_nce_loss(x, y, temperature=0.5), pair)


def test_the_two_sides_are_alike(pair: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(info_nce_loss(*pair), info_nce_loss(*reversed(pair)))


def test_repeating_a_pair_does_nothing_where_its_texts_are_known(pair: tuple[Tensor, Tensor]) -> None:
    x, y = pair
    once = info_nce_loss(x[:2], y[:2], text=torch.tensor([0, 1, 2, 3]))
    twice = info_nce_loss(x[[0, 0]], y[[0, 0]], text=torch.tensor([0, 0, 2, 2]))
    assert once > 0
    # Each row keeps one positive and the other copy's other side as a negative of equal score: log 2.
    torch.testing.assert_close(twice, torch.tensor(2.0, dtype=torch.float64).log())


def test_one_pair_has_no_negatives(pair: tuple[Tensor, Tensor]) -> None:
    x, y = pair
    loss = info_nce_loss(x[:1], y[:1])
    loss.backward()
    assert loss == 0 and torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_types(pair: tuple[Tensor, Tensor], dtype: torch.dtype, autocast: bool) -> None:
    x, y = (side.detach().to(dtype).requires_grad_() for side in pair)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        loss = info_nce_loss(x, y)
    loss.backward()
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert x.grad is not None and x.grad.isfinite().all()
    torch.testing.assert_close(loss.double(), info_nce_loss(x.double(), y.double()), rtol=1e-5, atol=1e-5)


def test_wrong_arguments(pair: tuple[Tensor, Tensor]) -> None:
    x, y = pair
    with pytest.raises(ValueError, match=r"row-aligned, got shapes \(5, 4\) and \(3, 4\)"):
        info_nce_loss(x, y[:3])
    with pytest.raises(ValueError, match="y must have two axes"):
        info_nce_loss(x, y[0])
    with pytest.raises(ValueError, match="temperature must be positive, got -1"):
        info_nce_loss(x, y, temperature=-1)
    with pytest.raises(ValueError, match=r"text must have shape \(10,\)"):
        info_nce_loss(x, y, text=torch.arange(5))
    with pytest.raises(ValueError, match="no positive pair"):
        info_nce_loss(x[:0], y[:0])
