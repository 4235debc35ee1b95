"""language_contrastive_loss against Eq. 3 of lang-contrastive, its minimum and its edges."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from st_xlret.functional import checks, language_contrastive_loss
from tests.functional.oracles import naive_language_terms

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
