"""cz_nce_loss and info_nce_loss against the equations of ML-CTL and lang-contrastive, their limits and their edges."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from st_xlret.functional import cz_nce_loss, info_nce_loss
from tests.functional.oracles import naive_context_loss
from tests.functional.oracles_parallel import naive_cz_nce

Pair = tuple[Tensor, Tensor]


@pytest.fixture
def pair() -> Pair:
    x, y = (torch.randn(5, 4, dtype=torch.float64, requires_grad=True) for _ in "xy")
    return x, y


def naive_info_nce(x: Tensor, y: Tensor, *, temperature: float, text: list[int] | None = None) -> Tensor:
    """Eq. 2 of lang-contrastive: windows of two rows, in one language."""
    tags: Any = [(0, None, None if text is None else text[row]) for row in range(2 * len(x))]
    return naive_context_loss(torch.cat([x, y]), [*range(len(x))] * 2, tags, temperature=temperature)


@pytest.mark.parametrize("text", [None, [0, 1, 2, 3, 0, 5, 6, 5, 8, 9], [0, 1, 1, 3, 4, 3, 6, 7, 8, 9]])
@pytest.mark.parametrize("options", [{"temperature": 0.2}, {}])
@pytest.mark.parametrize(("equation", "naive"), [(cz_nce_loss, naive_cz_nce), (info_nce_loss, naive_info_nce)])
def test_equals_the_papers_equation(equation: Any, naive: Any, options: Any, pair: Pair, text: Any) -> None:
    loss = equation(*pair, **options, text=None if text is None else torch.tensor(text))
    expected = naive(*pair, **{"temperature": 0.07, **options}, text=text)
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(torch.autograd.grad(loss, pair), torch.autograd.grad(expected, pair), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_one_pair_has_no_negatives(pair: Pair) -> None:
    x, y = pair
    loss = info_nce_loss(x[:1], y[:1])
    loss.backward()
    assert loss == 0 and torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize("pairs, temperature", [(2, 0.07), (4, 0.1), (30, 1.0)])
def test_info_nce_is_the_softplus_of_cz_nce(pairs: int, temperature: float) -> None:
    # All anchors of orthogonal pairs are alike, so that the means can be compared.
    x = torch.eye(pairs, dtype=torch.float64)
    value = cz_nce_loss(x, x, temperature=temperature)
    torch.testing.assert_close(value.item(), math.log(2 * (pairs - 1)) - 1 / temperature)
    torch.testing.assert_close(info_nce_loss(x, x, temperature=temperature), torch.nn.functional.softplus(value))


def test_it_crosses_zero_and_still_pulls() -> None:
    x = torch.tensor([[1.0, 0, 0, 0], [0, 0, 1.0, 0]], requires_grad=True)
    y = torch.tensor([[1.0, 0.1, 0, 0], [0, 0, 1.0, 0.1]])
    loss = cz_nce_loss(x, y)
    assert loss < -10
    # Only the positive lies along the second axis. InfoNCE has all but stopped there.
    pull = torch.autograd.grad(loss, x)[0][0, 1].item()
    other = torch.autograd.grad(info_nce_loss(x, y), x)[0][0, 1].item()
    assert pull == pytest.approx(-0.1 / math.hypot(1, 0.1) / 0.07 / 2, rel=1e-4)
    assert -1e-5 < other < 0


def test_anchors_without_negatives_count_as_zero(pair: Pair) -> None:
    x, y = (side.detach().requires_grad_() for side in pair)
    alike = cz_nce_loss(x, y, text=torch.zeros(10, dtype=torch.long))
    alike.backward()
    assert alike == 0 and torch.equal(x.grad, torch.zeros_like(x)) and torch.equal(y.grad, torch.zeros_like(y))
