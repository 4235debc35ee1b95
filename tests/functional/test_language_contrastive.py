"""language_contrastive_loss against Eq. 3 of lang-contrastive, its minimum and its edges."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.functional import checks, language_contrastive_loss
from tests.functional.oracles_parallel import naive_language_terms

Rows = tuple[Tensor, Tensor, Tensor]


@pytest.fixture
def rows() -> Rows:
    def draw(count: int) -> Tensor:
        return torch.randn(count, 4, dtype=torch.float64, requires_grad=True)

    return draw(5), draw(5), draw(3)


def used(rows: Rows, others: int | None) -> Any:
    return (*rows[:2], None if others is None else rows[2][:others])


@pytest.mark.parametrize("elements", [2**22, 30, 1])
@pytest.mark.parametrize("others", [None, 0, 1, 3])
@pytest.mark.parametrize("reduction", ["mean", "sum", "paper"])
def test_equals_the_papers_equation(
    monkeypatch: pytest.MonkeyPatch, rows: Rows, reduction: Any, others: int | None, elements: int
) -> None:
    monkeypatch.setattr(checks, "CHUNK_ELEMENTS", elements)
    x, y, z = used(rows, others)
    loss = language_contrastive_loss(x, y, z, reduction=reduction)
    terms, count = naive_language_terms(x, y, z), 10 + (others or 0)
    assert len(terms) == 5 * (count - 2)
    expected = {"mean": terms.mean(), "sum": terms.sum(), "paper": terms.sum() / (count * (count - 2))}[reduction]
    torch.testing.assert_close(loss, expected)
    leaves = rows if others else rows[:2]
    for ours, theirs in zip(torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("elements", [2**22, 30])
@pytest.mark.parametrize("reduction", ["mean", "sum", "paper"])
def test_gradient(monkeypatch: pytest.MonkeyPatch, rows: Rows, reduction: Any, elements: int) -> None:
    monkeypatch.setattr(checks, "CHUNK_ELEMENTS", elements)
    assert torch.autograd.gradcheck(lambda x, y, z: language_contrastive_loss(x, y, z, reduction=reduction), rows)
    assert torch.autograd.gradcheck(lambda x, y: language_contrastive_loss(x, y, reduction=reduction), rows[:2])


def test_it_is_least_where_the_two_sides_cannot_be_told_apart(rows: Rows) -> None:
    x, y, z = rows
    least = language_contrastive_loss(x, x * 3, z)
    torch.testing.assert_close(least.item(), 2 * math.log(2))
    assert language_contrastive_loss(x, y, z) > least
    for gradient in torch.autograd.grad(least, (x, z)):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient))


def test_rows_at_equal_distances_give_the_least_too() -> None:
    # The sides differ, and the third row cannot tell them apart.
    x, y, z = torch.tensor([[1.0, 0, 0]]), torch.tensor([[0, 1.0, 0]]), torch.tensor([[1.0, 1, 1]])
    torch.testing.assert_close(language_contrastive_loss(x, y, z).item(), 2 * math.log(2))


def test_a_pair_does_not_look_at_itself(rows: Rows) -> None:
    x, y, z = rows
    loss = language_contrastive_loss(x[:1], y[:1], z)
    d = F.cosine_similarity(x[:1], z) - F.cosine_similarity(y[:1], z)
    torch.testing.assert_close(loss, (F.softplus(d) + F.softplus(-d)).mean())


def test_length_order_and_sides_do_not_matter(rows: Rows) -> None:
    x, y, z = rows
    order = torch.randperm(5)
    changed = language_contrastive_loss(y[order] * 7, x[order] * 0.01, z[[2, 0, 1]])
    torch.testing.assert_close(changed, language_contrastive_loss(x, y, z))


def test_no_gradient_is_worked_out_where_none_is_wanted(rows: Rows) -> None:
    with torch.no_grad():
        assert not language_contrastive_loss(*rows).requires_grad
    (gradient,) = torch.autograd.grad(language_contrastive_loss(*(r.detach() for r in rows[:2]), rows[2]), rows[2])
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("pairs, others, message", [(1, 0, "got 1 pairs and 0 others"), (0, 3, "got 0 pairs and 3")])
def test_nothing_to_compare_is_an_error(rows: Rows, pairs: int, others: int, message: str) -> None:
    x, y, z = rows
    with pytest.raises(ValueError, match=message):
        language_contrastive_loss(x[:pairs], y[:pairs], z[:others])


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_types(rows: Rows, dtype: torch.dtype, autocast: bool) -> None:
    x, y, z = (side.detach().to(dtype).requires_grad_() for side in rows)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        loss = language_contrastive_loss(x, y, z)
    loss.backward()
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    for side in (x, y, z):
        assert side.grad is not None and side.grad.dtype == dtype and side.grad.isfinite().all()
    torch.testing.assert_close(
        loss.double(), language_contrastive_loss(x.double(), y.double(), z.double()), rtol=1e-6, atol=1e-6
    )


def test_a_zero_row_has_no_direction_and_no_gradient(rows: Rows) -> None:
    x, y, z = rows
    zero = torch.cat([torch.zeros(1, 4), x.detach()[1:]]).requires_grad_()
    loss = language_contrastive_loss(zero, y, z)
    loss.backward()
    assert torch.equal(zero.grad[0], torch.zeros(4, dtype=torch.float64)) and zero.grad.isfinite().all()


def test_nan_stays_visible(rows: Rows) -> None:
    x, y, z = (side.detach() for side in rows)
    z[2, 1] = torch.nan
    assert language_contrastive_loss(x, y, z).isnan()


def test_wrong_arguments(rows: Rows) -> None:
    x, y, z = rows
    with pytest.raises(ValueError, match=r"row-aligned, got shapes \(5, 4\) and \(3, 4\)"):
        language_contrastive_loss(x, y[:3])
    with pytest.raises(ValueError, match="others must have two axes"):
        language_contrastive_loss(x, y, z[0])
    with pytest.raises(ValueError, match="others has 3 features and x has 4"):
        language_contrastive_loss(x, y, z[:, :3])
    with pytest.raises(ValueError, match="reduction must be 'mean', 'sum' or 'paper', got 'median'"):
        language_contrastive_loss(x, y, reduction="median")  # type: ignore[arg-type]
