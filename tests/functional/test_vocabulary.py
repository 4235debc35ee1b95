"""chunked_cross_entropy against F.cross_entropy."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.functional import chunked_cross_entropy, vocabulary

ROWS, FEATURES, VOCABULARY = 7, 4, 11


@pytest.fixture
def inputs() -> tuple[Tensor, Tensor, Tensor]:
    shapes = [(ROWS, FEATURES), (VOCABULARY, FEATURES), (VOCABULARY,)]
    hidden, weight, bias = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    return hidden, weight, bias


@pytest.fixture
def labels() -> Tensor:
    return torch.tensor([0, 3, 10, 3, 5, 1, 9])


def reference(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight, bias), labels)


@pytest.fixture(params=[1, 25, 10_000])
def most_logits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """One row at a time, some, or all."""
    monkeypatch.setattr(vocabulary, "_MOST_LOGITS", request.param)
    return request.param


@pytest.mark.usefixtures("most_logits")
@pytest.mark.parametrize("with_bias", [False, True])
def test_equals_the_cross_entropy_of_all_logits(
    inputs: tuple[Tensor, Tensor, Tensor], labels: Tensor, with_bias: bool
) -> None:
    hidden, weight, bias = inputs
    used = inputs if with_bias else inputs[:2]
    loss = chunked_cross_entropy(hidden, weight, bias if with_bias else None, labels)
    expected = reference(hidden, weight, bias if with_bias else None, labels)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(3 * loss, used), torch.autograd.grad(3 * expected, used))


def test_the_gradients_are_scaled_in_place_and_serve_once(
    inputs: tuple[Tensor, Tensor, Tensor], labels: Tensor
) -> None:
    loss = chunked_cross_entropy(*inputs, labels)
    torch.autograd.grad(3 * loss, inputs, retain_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(3 * loss, inputs)


@pytest.mark.usefixtures("most_logits")
def test_gradients_are_those_of_finite_differences(inputs: tuple[Tensor, Tensor, Tensor], labels: Tensor) -> None:
    assert torch.autograd.gradcheck(lambda *inputs: chunked_cross_entropy(*inputs, labels), inputs)


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_gradients_of_what_is_not_frozen(inputs: tuple[Tensor, Tensor, Tensor], labels: Tensor, frozen: int) -> None:
    inputs[frozen].requires_grad_(False)
    chunked_cross_entropy(*inputs, labels).backward()
    assert [x.grad is None for x in inputs] == [i == frozen for i in range(3)]


def test_very_large_logits(inputs: tuple[Tensor, Tensor, Tensor], labels: Tensor) -> None:
    large = [(1e4 * x).detach().requires_grad_() for x in inputs]
    values = [equation(*large, labels) for equation in (chunked_cross_entropy, reference)]
    ours, theirs = ((value, *torch.autograd.grad(value, large)) for value in values)
    assert all(x.isfinite().all() for x in ours)
    torch.testing.assert_close(ours, theirs)


def test_no_rows_give_zero_with_a_graph(inputs: tuple[Tensor, Tensor, Tensor], labels: Tensor) -> None:
    hidden, weight, bias = inputs
    loss = chunked_cross_entropy(hidden[:0], weight, bias, labels[:0])
    loss.backward()
    assert loss == 0 and torch.equal(hidden.grad, torch.zeros_like(hidden))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_types(inputs: tuple[Tensor, Tensor, Tensor], labels: Tensor, dtype: torch.dtype) -> None:
    low = [x.detach().to(dtype).requires_grad_() for x in inputs]
    loss = chunked_cross_entropy(*low, labels)
    loss.backward()
    assert loss.dtype == torch.float32
    assert all(x.grad is not None and x.grad.dtype == dtype for x in low)
    exact = reference(*(x.double() for x in low), labels)
    torch.testing.assert_close(loss.double(), exact, rtol=2e-2, atol=2e-2)


def test_under_autocast_it_stays_close_to_full_precision(inputs: tuple[Tensor, Tensor, Tensor], labels: Tensor) -> None:
    single = [x.detach().float().requires_grad_() for x in inputs]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = chunked_cross_entropy(*single, labels)
    loss.backward()
    exact = reference(*inputs, labels)
    exact.backward()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), exact, rtol=2e-2, atol=2e-2)
    for x, y in zip(single, inputs, strict=True):
        torch.testing.assert_close(x.grad.double(), y.grad, rtol=5e-2, atol=1e-2)
