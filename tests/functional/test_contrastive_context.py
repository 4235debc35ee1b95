"""contrastive_context_loss against the paper's equation, its limits and its edges."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from st_xlret.functional import checks, contrastive_context_loss
from tests.functional.oracles import naive_context_loss

# Windows of one, two and three rows, two languages, documents that hold several windows, repeated texts.
WINDOW = torch.tensor([0, 0, 1, 1, 1, 2, 3, 3, 4, 4])
LANGUAGE = torch.tensor([7, 7, 7, 7, 7, 7, 9, 9, 9, 9])
DOCUMENT = torch.tensor([0, 0, 1, 1, 1, 0, 2, 2, 3, 3])
TEXT = torch.tensor([0, 1, 2, 3, 0, 4, 5, 6, 5, 7])
QUEUE_LANGUAGE = torch.tensor([7, 9, 7, 9, 11])
QUEUE_DOCUMENT = torch.tensor([0, 2, 5, 6, 7])
QUEUE_TEXT = torch.tensor([9, 9, 3, 7, 9])


@pytest.fixture
def z() -> Tensor:
    return torch.randn(10, 5, dtype=torch.float64, requires_grad=True)


@pytest.fixture
def queue() -> Tensor:
    return torch.randn(5, 5, dtype=torch.float64)


def queue_arguments(queue: Tensor, document: bool = False, text: bool = False) -> dict[str, Any]:
    given: dict[str, Any] = {"queue": queue, "queue_language": QUEUE_LANGUAGE}
    given |= {"queue_document": QUEUE_DOCUMENT} if document else {}
    return given | ({"queue_text": QUEUE_TEXT} if text else {})


def tag_rows(*tags: Tensor | None) -> list[tuple]:
    columns = [tag.tolist() if tag is not None else None for tag in tags]
    rows = len(next(column for column in columns if column is not None))
    return [tuple(None if column is None else column[i] for column in columns) for i in range(rows)]


@pytest.mark.parametrize("with_queue, document, text, cross", list(product([False, True], repeat=4)))
def test_equals_the_papers_equation(
    z: Tensor, queue: Tensor, with_queue: bool, document: bool, text: bool, cross: bool
) -> None:
    loss = contrastive_context_loss(
        z,
        WINDOW,
        LANGUAGE,
        temperature=0.3,
        document=DOCUMENT if document else None,
        text=TEXT if text else None,
        cross_language_negatives=cross,
        **(queue_arguments(queue, document, text) if with_queue else {}),
    )
    expected = naive_context_loss(
        z,
        WINDOW.tolist(),
        tag_rows(LANGUAGE, DOCUMENT if document else None, TEXT if text else None),
        temperature=0.3,
        queue=queue if with_queue else None,
        queue_tags=tag_rows(QUEUE_LANGUAGE, QUEUE_DOCUMENT, QUEUE_TEXT),
        cross_language_negatives=cross,
    )
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(loss, z) + torch.autograd.grad(expected, z)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("normalized_keys", [False, True])
def test_without_normalisation_it_is_the_equation_on_inner_products(
    z: Tensor, queue: Tensor, normalized_keys: bool
) -> None:
    # What is said of the keys makes no difference: they are taken as they are.
    loss = contrastive_context_loss(
        z,
        WINDOW,
        LANGUAGE,
        temperature=0.7,
        document=DOCUMENT,
        normalize=False,
        queue_is_normalized=normalized_keys,
        **queue_arguments(queue, document=True),
    )
    expected = naive_context_loss(
        z,
        WINDOW.tolist(),
        tag_rows(LANGUAGE, DOCUMENT, None),
        temperature=0.7,
        queue=queue,
        queue_tags=tag_rows(QUEUE_LANGUAGE, QUEUE_DOCUMENT, None),
        normalize=False,
    )
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(*torch.autograd.grad(loss, z), *torch.autograd.grad(expected, z))
    assert not torch.isclose(loss, contrastive_context_loss(z, WINDOW, LANGUAGE, temperature=0.7, document=DOCUMENT))


@pytest.mark.parametrize("with_queue", [False, True])
@pytest.mark.parametrize("elements", [2**22, 20, 1])
def test_gradient_with_the_queue_in_one_or_several_chunks(
    monkeypatch: pytest.MonkeyPatch, z: Tensor, queue: Tensor, with_queue: bool, elements: int
) -> None:
    monkeypatch.setattr(checks, "CHUNK_ELEMENTS", elements)
    options = queue_arguments(queue, document=True) if with_queue else {}
    assert torch.autograd.gradcheck(
        lambda z: contrastive_context_loss(z, WINDOW, LANGUAGE, temperature=0.5, document=DOCUMENT, **options),
        z,
    )


def test_the_queue_may_change_before_the_backward_pass(z: Tensor, queue: Tensor) -> None:
    kept = contrastive_context_loss(z, WINDOW, LANGUAGE, **queue_arguments(queue.clone()))
    loss = contrastive_context_loss(z, WINDOW, LANGUAGE, **queue_arguments(queue))
    queue.normal_()
    torch.testing.assert_close(torch.autograd.grad(loss, z), torch.autograd.grad(kept, z))


def test_an_empty_queue_is_no_queue(z: Tensor, queue: Tensor) -> None:
    empty = {"queue": queue[:0], "queue_language": QUEUE_LANGUAGE[:0]}
    assert contrastive_context_loss(z, WINDOW, LANGUAGE, **empty) == contrastive_context_loss(z, WINDOW, LANGUAGE)


def test_keys_of_absent_languages_are_not_read(z: Tensor, queue: Tensor) -> None:
    absent = queue.new_full((3, queue.shape[1]), torch.nan)
    expected = contrastive_context_loss(z, WINDOW, LANGUAGE, **queue_arguments(queue))
    found = contrastive_context_loss(
        z,
        WINDOW,
        LANGUAGE,
        queue=torch.cat([absent, queue]),
        queue_language=torch.cat([torch.full((3,), 99), QUEUE_LANGUAGE]),
    )
    assert torch.equal(found, expected)
    assert torch.equal(*(torch.autograd.grad(loss, z)[0] for loss in (found, expected)))


def test_a_row_whose_language_has_no_key_has_the_batch_alone(z: Tensor, queue: Tensor) -> None:
    other = {"queue": queue, "queue_language": torch.full_like(QUEUE_LANGUAGE, 99)}
    loss = contrastive_context_loss(z, WINDOW, LANGUAGE, **other)
    alone = contrastive_context_loss(z, WINDOW, LANGUAGE)
    torch.testing.assert_close(loss, alone)
    torch.testing.assert_close(*(torch.autograd.grad(value, z)[0] for value in (loss, alone)))


def test_no_gradient_flows_into_the_queue(z: Tensor, queue: Tensor) -> None:
    queue.requires_grad_()
    contrastive_context_loss(z, WINDOW, LANGUAGE, **queue_arguments(queue)).backward()
    assert queue.grad is None


def test_sixteen_bits_keep_the_gradient_that_the_usual_form_loses() -> None:
    rows = [[1.0, 0, 0, 0], [0.97, 0.25, 0, 0], [0, 0, 1, 0], [0, 0, 0.97, 0.25]]
    z = torch.tensor(rows, dtype=torch.bfloat16, requires_grad=True)
    window, positive = torch.tensor([0, 0, 1, 1]), torch.tensor([1, 0, 3, 2])
    logits = (z @ z.T / 0.07).masked_fill(torch.eye(4, dtype=torch.bool), -torch.inf)
    usual = (torch.logsumexp(logits, 1) - logits[torch.arange(4), positive]).mean()
    loss = contrastive_context_loss(z, window, torch.zeros_like(window), temperature=0.07)
    # Only the positive lies along the second axis: this is what pulls the first row towards it.
    assert torch.autograd.grad(usual, z)[0][0, 1] == 0
    assert torch.autograd.grad(loss, z)[0][0, 1] < 0


def test_one_window_alone_gives_zero_and_no_gradient(z: Tensor) -> None:
    loss = contrastive_context_loss(z[:2], torch.zeros(2, dtype=torch.long), LANGUAGE[:2])
    loss.backward()
    assert loss == 0 and torch.equal(z.grad, torch.zeros_like(z))


def test_a_row_whose_every_negative_is_left_out_counts_as_zero(z: Tensor, queue: Tensor) -> None:
    # Rows 0 and 1 have a language of their own: only the second window gives a loss.
    window, language = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([5, 5, 7, 7, 7, 7])
    loss = contrastive_context_loss(z[:6], window, language)
    rest = contrastive_context_loss(z[2:6], window[2:], language[2:])
    torch.testing.assert_close(loss, rest * 4 / 6)
    loss.backward()
    assert torch.equal(z.grad[:2], torch.zeros(2, 5, dtype=torch.float64)) and z.grad.isfinite().all()
