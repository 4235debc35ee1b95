"""chunked_cross_entropy against F.cross_entropy."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.functional import chunked_cross_entropy, vocabulary

Inputs = list[Tensor]
LABELS = torch.tensor([0, 3, 10, 3, 5, 1, 9])


@pytest.fixture
def inputs() -> Inputs:
    """Hidden vectors, weight and bias."""
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((7, 4), (11, 4), (11,))]


def reference(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight, bias), labels)


@pytest.mark.parametrize("most_logits", [1, 25, 10_000])  # one row at a time, some, or all
@pytest.mark.parametrize("frozen", [None, 0, 1, 2])
@pytest.mark.parametrize("with_bias", [False, True])
def test_equals_the_cross_entropy_of_all_logits(
    monkeypatch: pytest.MonkeyPatch, inputs: Inputs, with_bias: bool, frozen: int | None, most_logits: int
) -> None:
    monkeypatch.setattr(vocabulary, "_MOST_LOGITS", most_logits)
    if frozen is not None:
        inputs[frozen].requires_grad_(False)
    learnt = [x for x in inputs[: 2 + with_bias] if x.requires_grad]
    arguments = [*inputs[:2], inputs[2] if with_bias else None, LABELS]
    loss, expected = chunked_cross_entropy(*arguments), reference(*arguments)
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(3 * loss, learnt, retain_graph=True)
    torch.testing.assert_close(gradients, torch.autograd.grad(3 * expected, learnt))
    with pytest.raises(RuntimeError):  # they are scaled in place, and serve once
        torch.autograd.grad(3 * loss, learnt)


def test_very_large_logits_and_no_rows(inputs: Inputs) -> None:
    large = [(1e4 * x).detach().requires_grad_() for x in inputs]
    values = [equation(*large, LABELS) for equation in (chunked_cross_entropy, reference)]
    ours, theirs = ((value, *torch.autograd.grad(value, large)) for value in values)
    assert all(x.isfinite().all() for x in ours)
    torch.testing.assert_close(ours, theirs)
    hidden, weight, bias = inputs
    nothing = chunked_cross_entropy(hidden[:0], weight, bias, LABELS[:0])
    nothing.backward()
    assert nothing == 0 and not hidden.grad.any()
