"""contrastive_context_loss against the paper's equation, its limits and its edges."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.functional import checks, contrastive_context_loss, info_nce_loss
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


def test_the_default_temperature_is_the_papers(z: Tensor) -> None:
    expected = naive_context_loss(z, WINDOW.tolist(), tag_rows(LANGUAGE, None, None), temperature=0.1)
    torch.testing.assert_close(contrastive_context_loss(z, WINDOW, LANGUAGE), expected)


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


def test_two_views_without_a_queue_are_info_nce(z: Tensor) -> None:
    window = torch.arange(5).repeat(2)
    loss = contrastive_context_loss(z, window, torch.zeros_like(window), temperature=0.07)
    torch.testing.assert_close(loss, info_nce_loss(z[:5], z[5:], temperature=0.07))


def test_queue_rows_act_as_rows_that_are_negatives_only(z: Tensor, queue: Tensor) -> None:
    loss = contrastive_context_loss(z, WINDOW, LANGUAGE, document=DOCUMENT, **queue_arguments(queue, document=True))
    together = contrastive_context_loss(
        torch.cat([z, queue]),
        torch.cat([WINDOW, torch.arange(100, 105)]),
        torch.cat([LANGUAGE, QUEUE_LANGUAGE]),
        document=torch.cat([DOCUMENT, QUEUE_DOCUMENT]),
    )
    torch.testing.assert_close(loss, together)


def test_an_empty_queue_is_no_queue(z: Tensor, queue: Tensor) -> None:
    empty = {"queue": queue[:0], "queue_language": QUEUE_LANGUAGE[:0]}
    assert contrastive_context_loss(z, WINDOW, LANGUAGE, **empty) == contrastive_context_loss(z, WINDOW, LANGUAGE)


def test_a_normalized_queue_is_taken_at_its_word(z: Tensor, queue: Tensor) -> None:
    unit = F.normalize(queue)
    told = contrastive_context_loss(z, WINDOW, LANGUAGE, **queue_arguments(unit), queue_is_normalized=True)
    torch.testing.assert_close(told, contrastive_context_loss(z, WINDOW, LANGUAGE, **queue_arguments(queue)))


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


def test_length_of_rows_and_keys_does_not_matter(z: Tensor, queue: Tensor) -> None:
    lengths = torch.logspace(-3, 3, 10, dtype=torch.float64)[:, None]
    loss = contrastive_context_loss(z * lengths, WINDOW, LANGUAGE, **queue_arguments(queue * 50))
    torch.testing.assert_close(loss, contrastive_context_loss(z, WINDOW, LANGUAGE, **queue_arguments(queue)))


def test_order_of_rows_does_not_matter(z: Tensor, queue: Tensor) -> None:
    order = torch.randperm(10)
    loss = contrastive_context_loss(
        z[order], WINDOW[order], LANGUAGE[order], document=DOCUMENT[order], **queue_arguments(queue, True)
    )
    expected = contrastive_context_loss(z, WINDOW, LANGUAGE, document=DOCUMENT, **queue_arguments(queue, True))
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_types(z: Tensor, queue: Tensor, dtype: torch.dtype, autocast: bool) -> None:
    low, keys = z.detach().to(dtype).requires_grad_(), queue.to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        loss = contrastive_context_loss(low, WINDOW, LANGUAGE, **queue_arguments(keys))
    loss.backward()
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert low.grad is not None and low.grad.dtype == dtype and low.grad.isfinite().all()
    exact = contrastive_context_loss(low.double(), WINDOW, LANGUAGE, **queue_arguments(keys.double()))
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-5)


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


def test_one_window_has_the_queue_as_its_negatives(z: Tensor, queue: Tensor) -> None:
    loss = contrastive_context_loss(z[:2], WINDOW[:2], LANGUAGE[:2], temperature=0.3, **queue_arguments(queue))
    expected = naive_context_loss(
        z[:2],
        [0, 0],
        tag_rows(LANGUAGE[:2], None, None),
        temperature=0.3,
        queue=queue,
        queue_tags=tag_rows(QUEUE_LANGUAGE, None, None),
    )
    torch.testing.assert_close(loss, expected)


def test_a_row_whose_every_negative_is_left_out_counts_as_zero(z: Tensor, queue: Tensor) -> None:
    # Rows 0 and 1 have a language of their own: only the second window gives a loss.
    window, language = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([5, 5, 7, 7, 7, 7])
    loss = contrastive_context_loss(z[:6], window, language)
    rest = contrastive_context_loss(z[2:6], window[2:], language[2:])
    torch.testing.assert_close(loss, rest * 4 / 6)
    loss.backward()
    assert torch.equal(z.grad[:2], torch.zeros(2, 5, dtype=torch.float64)) and z.grad.isfinite().all()


def test_a_batch_of_one_single_window_of_many_rows(z: Tensor) -> None:
    window, language = torch.zeros(4, dtype=torch.long), torch.full((4,), 7)
    expected = naive_context_loss(z[:4], [0] * 4, tag_rows(language, None, None), temperature=0.1)
    torch.testing.assert_close(contrastive_context_loss(z[:4], window, language), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_a_zero_row_has_no_direction_and_no_gradient(z: Tensor, queue: Tensor, dtype: torch.dtype) -> None:
    with_zero = torch.cat([torch.zeros(1, 5), z.detach()[1:]]).to(dtype).requires_grad_()
    queue[0] = 0
    loss = contrastive_context_loss(with_zero, WINDOW, LANGUAGE, **queue_arguments(queue))
    loss.backward()
    assert loss.isfinite() and with_zero.grad is not None
    assert torch.equal(with_zero.grad[0], torch.zeros(5, dtype=dtype)) and with_zero.grad.isfinite().all()


def test_no_positive_pair_is_an_error(z: Tensor) -> None:
    with pytest.raises(ValueError, match="no positive pair"):
        contrastive_context_loss(z, torch.arange(10), LANGUAGE)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"z": torch.zeros(10)}, r"z must have two axes.*\(10,\)"),
        ({"z": torch.zeros(10, 5, dtype=torch.long)}, "z must be floating point, got torch.int64"),
        ({"window": WINDOW[:3]}, r"window must have shape \(10,\).*got \(3,\)"),
        ({"language": LANGUAGE[:, None]}, "language must have shape"),
        ({"document": DOCUMENT.float()}, "document must hold integers, got torch.float32"),
        ({"text": TEXT[:9]}, "text must have shape"),
        ({"temperature": 0.0}, "temperature must be positive, got 0.0"),
        ({"temperature": float("nan")}, "temperature must be positive, got nan"),
        ({"queue": torch.zeros(5)}, "queue must have two axes"),
        ({"queue": torch.zeros(5, 4), "queue_language": QUEUE_LANGUAGE}, "queue has 4 features and z has 5"),
        ({"queue": torch.zeros(5, 5)}, "queue_language is needed"),
        (
            {"queue": torch.zeros(5, 5), "queue_language": QUEUE_LANGUAGE[:2]},
            "queue_language must have shape",
        ),
        (
            {"queue": torch.zeros(5, 5), "queue_language": QUEUE_LANGUAGE, "document": DOCUMENT},
            "queue_document is needed",
        ),
        (
            {"queue": torch.zeros(5, 5), "queue_language": QUEUE_LANGUAGE, "text": TEXT},
            "queue_text is needed",
        ),
    ],
)
def test_wrong_arguments(z: Tensor, changed: dict[str, Any], message: str) -> None:
    arguments = {"z": z, "window": WINDOW, "language": LANGUAGE} | changed
    with pytest.raises(ValueError, match=message):
        contrastive_context_loss(**arguments)
