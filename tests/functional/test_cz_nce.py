"""cz_nce_loss against Eq. 5 of ML-CTL, its limits and its edges."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from st_xlret.functional import cz_nce_loss, info_nce_loss
from tests.functional.oracles_parallel import naive_cz_nce


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    shape = (5, 4)
    return (
        torch.randn(shape, dtype=torch.float64, requires_grad=True),
        torch.randn(shape, dtype=torch.float64, requires_grad=True),
    )


@pytest.mark.parametrize("text", [None, [0, 1, 2, 3, 0, 5, 6, 5, 8, 9], [0, 1, 1, 3, 4, 3, 6, 7, 8, 9]])
def test_equals_the_papers_equation(pair: tuple[Tensor, Tensor], text: list[int] | None) -> None:
    loss = cz_nce_loss(*pair, temperature=0.2, text=None if text is None else torch.tensor(text))
    expected = naive_cz_nce(*pair, temperature=0.2, text=text)
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(torch.autograd.grad(loss, pair), torch.autograd.grad(expected, pair), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_default_temperature(pair: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(cz_nce_loss(*pair), naive_cz_nce(*pair, temperature=0.07))


def test_gradient(pair: tuple[Tensor, Tensor]) -> None:
    text = torch.tensor([0, 1, 2, 3, 0, 5, 6, 5, 8, 9])
    assert torch.autograd.gradcheck(lambda x, y: cz_nce_loss(x, y, temperature=0.5), pair)
    assert torch.autograd.gradcheck(lambda x, y: cz_nce_loss(x, y, temperature=0.5, text=text), pair)


@pytest.mark.parametrize("pairs, temperature", [(2, 0.07), (4, 0.1), (30, 1.0)])
def test_info_nce_is_the_softplus_of_cz_nce(pairs: int, temperature: float) -> None:
    # All anchors of orthogonal pairs are alike, so that the means can be compared.
    x = torch.eye(pairs, dtype=torch.float64)
    value = cz_nce_loss(x, x, temperature=temperature)
    torch.testing.assert_close(value.item(), math.log(2 * (pairs - 1)) - 1 / temperature)
    torch.testing.assert_close(info_nce_loss(x, x, temperature=temperature), torch.nn.functional.softplus(value))


def test_where_negatives_win_by_far_it_is_info_nce(pair: tuple[Tensor, Tensor]) -> None:
    # Two pairs whose sides are swapped: every anchor's best match is a negative.
    x = torch.eye(4, dtype=torch.float64)[:2].requires_grad_()
    y = x.detach()[[1, 0]].requires_grad_()
    ours, theirs = cz_nce_loss(x, y, temperature=0.02), info_nce_loss(x, y, temperature=0.02)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(torch.autograd.grad(ours, (x, y)), torch.autograd.grad(theirs, (x, y)), strict=True):
        torch.testing.assert_close(a, b)


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


def test_the_two_sides_are_alike(pair: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(cz_nce_loss(*pair), cz_nce_loss(*reversed(pair)))


def test_length_and_order_do_not_matter(pair: tuple[Tensor, Tensor]) -> None:
    x, y = pair
    order = torch.randperm(5)
    lengths = torch.logspace(-3, 3, 5, dtype=torch.float64)[:, None]
    torch.testing.assert_close(cz_nce_loss((x * lengths)[order], y[order] * 7), cz_nce_loss(x, y))


def test_a_batch_of_one_is_an_error(pair: tuple[Tensor, Tensor]) -> None:
    x, y = pair
    for pairs in (0, 1):
        with pytest.raises(ValueError, match=f"CZ-NCE needs at least 2 pairs in a batch, got {pairs}.*larger batch"):
            cz_nce_loss(x[:pairs], y[:pairs])


def test_anchors_without_negatives_count_as_zero(pair: tuple[Tensor, Tensor]) -> None:
    x, y = (side.detach().requires_grad_() for side in pair)
    alike = cz_nce_loss(x, y, text=torch.zeros(10, dtype=torch.long))
    alike.backward()
    assert alike == 0 and torch.equal(x.grad, torch.zeros_like(x)) and torch.equal(y.grad, torch.zeros_like(y))


def test_all_rows_equal(pair: tuple[Tensor, Tensor]) -> None:
    x = torch.ones(3, 4, requires_grad=True)
    loss = cz_nce_loss(x, torch.ones(3, 4))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(4)) and x.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_a_zero_row_has_no_direction_and_no_gradient(pair: tuple[Tensor, Tensor], dtype: torch.dtype) -> None:
    x = torch.cat([torch.zeros(1, 4), pair[0].detach()[1:]]).to(dtype).requires_grad_()
    loss = cz_nce_loss(x, pair[1].detach().to(dtype))
    loss.backward()
    assert loss.isfinite() and torch.equal(x.grad[0], torch.zeros(4, dtype=dtype)) and x.grad.isfinite().all()


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_types(pair: tuple[Tensor, Tensor], dtype: torch.dtype, autocast: bool) -> None:
    x, y = (side.detach().to(dtype).requires_grad_() for side in pair)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        loss = cz_nce_loss(x, y)
    loss.backward()
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert x.grad is not None and x.grad.dtype == dtype and x.grad.isfinite().all()
    torch.testing.assert_close(loss.double(), cz_nce_loss(x.double(), y.double()), rtol=1e-5, atol=1e-5)


def test_nan_stays_visible(pair: tuple[Tensor, Tensor]) -> None:
    x, y = (side.detach() for side in pair)
    x[2, 1] = torch.nan
    assert cz_nce_loss(x, y).isnan()


def test_wrong_arguments(pair: tuple[Tensor, Tensor]) -> None:
    x, y = pair
    with pytest.raises(ValueError, match=r"row-aligned, got shapes \(5, 4\) and \(3, 4\)"):
        cz_nce_loss(x, y[:3])
    with pytest.raises(ValueError, match="y must have two axes"):
        cz_nce_loss(x, y[0])
    with pytest.raises(ValueError, match="x must be floating point, got torch.int64"):
        cz_nce_loss(x.long(), y)
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        cz_nce_loss(x, y, temperature=0)
    with pytest.raises(ValueError, match=r"text must have shape \(10,\)"):
        cz_nce_loss(x, y, text=torch.arange(5))
