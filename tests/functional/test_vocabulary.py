"""chunked_cross_entropy against F.cross_entropy."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.functional import checks, chunked_cross_entropy, vocabulary

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


@pytest.mark.parametrize("chunk_size", [None, 1, 2, 7, 100])
@pytest.mark.parametrize("with_bias", [False, True])
def test_equals_the_cross_entropy_of_all_logits(
    inputs: tuple[Tensor, Tensor, Tensor], labels: Tensor, chunk_size: int | None, with_bias: bool
) -> None:
    hidden, weight, bias = inputs
    used = inputs if with_bias else inputs[:2]
    loss = chunked_cross_entropy(hidden, weight, bias if with_bias else None, labels, chunk_size=chunk_size)
    expected = reference(hidden, weight, bias if with_bias else None, labels)
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(torch.autograd.grad(loss, used), torch.autograd.grad(expected, used), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_gradients_of_what_is_not_frozen(inputs: tuple[Tensor, Tensor, Tensor], labels: Tensor, frozen: int) -> None:
    inputs[frozen].requires_grad_(False)
    chunked_cross_entropy(*inputs, labels, chunk_size=2).backward()
    assert [x.grad is None for x in inputs] == [i == frozen for i in range(3)]


def test_by_default_a_chunk_keeps_to_the_limit_of_logits(
    monkeypatch: pytest.MonkeyPatch, inputs: tuple[Tensor, Tensor, Tensor], labels: Tensor
) -> None:
    sizes = []
    chunk = vocabulary._chunk
    monkeypatch.setattr(vocabulary, "_chunk", lambda h, w, *rest: sizes.append(len(w)) or chunk(h, w, *rest))
    monkeypatch.setattr(checks, "CHUNK_ELEMENTS", 4 * ROWS)
    monkeypatch.setattr(vocabulary, "_NARROWEST_CHUNK", 1)
    chunked_cross_entropy(*inputs, labels)
    assert sizes == [4, 4, 3]


def test_no_rows_give_zero_with_a_graph(inputs: tuple[Tensor, Tensor, Tensor], labels: Tensor) -> None:
    hidden, weight, bias = inputs
    loss = chunked_cross_entropy(hidden[:0], weight, bias, labels[:0])
    loss.backward()
    assert loss == 0 and torch.equal(hidden.grad, torch.zeros_like(hidden))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_types(inputs: tuple[Tensor, Tensor, Tensor], labels: Tensor, dtype: torch.dtype) -> None:
    low = [x.detach().to(dtype).requires_grad_() for x in inputs]
    loss = chunked_cross_entropy(*low, labels, chunk_size=3)
    loss.backward()
    assert loss.dtype == torch.float32
    assert all(x.grad is not None and x.grad.dtype == dtype for x in low)
    exact = reference(*(x.double() for x in low), labels)
    torch.testing.assert_close(loss.double(), exact, rtol=2e-2, atol=2e-2)


def test_under_autocast_it_stays_close_to_full_precision(inputs: tuple[Tensor, Tensor, Tensor], labels: Tensor) -> None:
    single = [x.detach().float().requires_grad_() for x in inputs]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = chunked_cross_entropy(*single, labels, chunk_size=3)
    loss.backward()
    exact = reference(*inputs, labels)
    exact.backward()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), exact, rtol=2e-2, atol=2e-2)
    for x, y in zip(single, inputs, strict=True):
        torch.testing.assert_close(x.grad.double(), y.grad, rtol=5e-2, atol=1e-2)
