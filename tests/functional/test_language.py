"""The language contrastive loss against a loop over its terms, and where it is least."""

import math

import pytest
import torch

from st_xlret import functional as f
from st_xlret.functional.language import Reduction
from tests.functional.checks import assert_same, vectors
from tests.functional.oracles import naive_language_terms


@pytest.mark.parametrize("elements", [2**22, 30, 1])
@pytest.mark.parametrize("others", [None, 0, 1, 3])
@pytest.mark.parametrize("reduction", ["mean", "sum", "paper"])
def test_equals_the_equation(
    monkeypatch: pytest.MonkeyPatch, reduction: Reduction, others: int | None, elements: int
) -> None:
    monkeypatch.setattr(f.tensors, "MOST_LOGITS", elements)
    x = vectors(5)
    y = vectors(5, seed=1)
    z = None if others is None else vectors(others, seed=2)
    rows = 10 + (others or 0)
    terms = naive_language_terms(x, y, z)
    assert len(terms) == 5 * (rows - 2)
    expected = {
        "mean": terms.mean(),
        "sum": terms.sum(),
        "paper": terms.sum() / (rows * (rows - 2)),
    }
    inputs = [x, y]
    if z is not None and len(z):
        inputs.append(z)
    loss = f.language_contrastive_loss(x, y, z, reduction=reduction)
    assert_same(loss, expected[reduction], inputs)


def test_it_is_least_where_the_two_sides_cannot_be_told_apart() -> None:
    x = vectors(5)
    y = vectors(5, seed=1)
    z = vectors(5, seed=2)
    least = f.language_contrastive_loss(x, x * 3, z)
    torch.testing.assert_close(least.item(), 2 * math.log(2))
    assert f.language_contrastive_loss(x, y, z) > least
    for gradient in torch.autograd.grad(least, (x, z)):
        assert gradient.abs().max() < 1e-12
