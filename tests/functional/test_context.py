"""The equation of CCP against a loop over its terms, its queue, and 16 bits."""

from typing import Any

import pytest
import torch
from torch import Tensor

from st_xlret import functional as f
from tests.functional.checks import assert_same, assert_zero_without_gradient, vectors
from tests.functional.oracles import naive_context_loss

# Windows of one, two and three rows, two languages, documents of several windows, repeated texts.
WINDOW = torch.tensor([0, 0, 1, 1, 1, 2, 3, 3, 4, 4])
LANGUAGE = torch.tensor([7, 7, 7, 7, 7, 7, 9, 9, 9, 9])
TAGS = {
    "document": torch.tensor([0, 0, 1, 1, 1, 0, 2, 2, 3, 3]),
    "text": torch.tensor([0, 1, 2, 3, 0, 4, 5, 6, 5, 7]),
}
QUEUE_LANGUAGE = torch.tensor([7, 9, 7, 9, 11])
QUEUE_TAGS = {
    "document": torch.tensor([0, 2, 5, 6, 7]),
    "text": torch.tensor([9, 9, 3, 7, 9]),
}


def queue_arguments(queue: Tensor, *names: str) -> dict[str, Any]:
    arguments = {"queue": queue, "queue_language": QUEUE_LANGUAGE}
    for name in names:
        arguments[f"queue_{name}"] = QUEUE_TAGS[name]
    return arguments


@pytest.mark.parametrize("names", [(), ("document",), ("text",), ("document", "text")])
@pytest.mark.parametrize("chunk_of_queue", [None, 2**22, 20, 1])
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_equals_the_papers_equation(
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
    chunk_of_queue: int | None,
    cross: bool,
    normalize: bool,
) -> None:
    z = vectors(10)
    options: dict[str, Any] = {name: TAGS[name] for name in names}
    options["temperature"] = 0.5
    options["normalize"] = normalize
    options["cross_language_negatives"] = cross
    if chunk_of_queue:
        monkeypatch.setattr(f.tensors, "MOST_LOGITS", chunk_of_queue)
        options |= queue_arguments(vectors(5, seed=1).detach(), *names)
    loss = f.contrastive_context_loss(z, WINDOW, LANGUAGE, **options)
    expected = naive_context_loss(z, WINDOW, LANGUAGE, **options)
    assert_same(loss, expected, [z])


def test_the_queue_gets_no_gradient_and_may_change_before_the_backward_pass() -> None:
    z = vectors(10)
    queue = vectors(5, seed=1)
    of_copy = queue.detach().clone().requires_grad_()
    unchanged = f.contrastive_context_loss(z, WINDOW, LANGUAGE, **queue_arguments(queue))
    loss = f.contrastive_context_loss(z, WINDOW, LANGUAGE, **queue_arguments(of_copy))
    of_copy.data.normal_()
    gradient = torch.autograd.grad(loss, z, retain_graph=True)
    torch.testing.assert_close(gradient, torch.autograd.grad(unchanged, z))
    assert torch.autograd.grad(loss, of_copy, allow_unused=True) == (None,)


def test_an_empty_queue_is_none() -> None:
    z = vectors(10)
    empty = f.contrastive_context_loss(
        z, WINDOW, LANGUAGE, queue=vectors(0), queue_language=QUEUE_LANGUAGE[:0]
    )
    assert empty == f.contrastive_context_loss(z, WINDOW, LANGUAGE)


def test_windows_each_in_a_language_of_its_own_have_no_negatives() -> None:
    x = vectors(4)
    in_pairs = torch.tensor([0, 0, 1, 1])
    assert_zero_without_gradient(f.contrastive_context_loss(x, in_pairs, in_pairs), x)


def test_sixteen_bits_keep_the_gradient_that_the_usual_form_loses() -> None:
    rows = [[1.0, 0, 0, 0], [0.97, 0.25, 0, 0], [0, 0, 1, 0], [0, 0, 0.97, 0.25]]
    z = torch.tensor(rows, dtype=torch.bfloat16, requires_grad=True)
    window = torch.tensor([0, 0, 1, 1])
    positive = torch.tensor([1, 0, 3, 2])
    itself = torch.eye(4, dtype=torch.bool)
    logits = (z @ z.T / 0.07).masked_fill(itself, -torch.inf)
    usual = (torch.logsumexp(logits, 1) - logits[torch.arange(4), positive]).mean()
    ours = f.contrastive_context_loss(z, window, torch.zeros_like(window), temperature=0.07)
    of_retrieval = f.retrieval_contrastive_loss(z[::2], z[1::2], temperature=0.05)
    # Only the positive lies along the second axis: this is what pulls the first row towards it.
    assert torch.autograd.grad(usual, z)[0][0, 1] == 0
    assert torch.autograd.grad(ours, z)[0][0, 1] < 0
    assert torch.autograd.grad(of_retrieval, z)[0][0, 1] < 0
