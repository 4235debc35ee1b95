"""contrastive_context_loss against the paper's equation, its limits and its edges."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from st_xlret.functional import checks, contrastive_context_loss, cz_nce_loss, info_nce_loss, retrieval_contrastive_loss
from tests.functional.oracles import naive_context_loss, naive_cz_nce

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


Pair = tuple[Tensor, Tensor]


@pytest.fixture
def pair() -> Pair:
    x, y = (torch.randn(5, 4, dtype=torch.float64, requires_grad=True) for _ in "xy")
    return x, y


def naive_info_nce(x: Tensor, y: Tensor, *, temperature: float, text: list[int] | None = None) -> Tensor:
    """Eq. 2 of lang-contrastive: windows of two rows, in one language."""
    tags: Any = [(0, None, None if text is None else text[row]) for row in range(2 * len(x))]
    return naive_context_loss(torch.cat([x, y]), [*range(len(x))] * 2, tags, temperature=temperature)


@pytest.mark.parametrize("text", [None, [0, 1, 2, 3, 0, 5, 6, 5, 8, 9], [0, 1, 1, 3, 4, 3, 6, 7, 8, 9]])
@pytest.mark.parametrize("options", [{"temperature": 0.2}, {}])
@pytest.mark.parametrize(("equation", "naive"), [(cz_nce_loss, naive_cz_nce), (info_nce_loss, naive_info_nce)])
def test_equals_the_papers_equation_of_pairs(equation: Any, naive: Any, options: Any, pair: Pair, text: Any) -> None:
    loss = equation(*pair, **options, text=None if text is None else torch.tensor(text))
    expected = naive(*pair, **{"temperature": 0.07, **options}, text=text)
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(torch.autograd.grad(loss, pair), torch.autograd.grad(expected, pair), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_one_pair_has_no_negatives(pair: Pair) -> None:
    x, y = pair
    loss = info_nce_loss(x[:1], y[:1])
    loss.backward()
    assert loss == 0 and torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize("pairs, temperature", [(2, 0.07), (4, 0.1), (30, 1.0)])
def test_info_nce_is_the_softplus_of_cz_nce(pairs: int, temperature: float) -> None:
    # All anchors of orthogonal pairs are alike, so that the means can be compared.
    x = torch.eye(pairs, dtype=torch.float64)
    value = cz_nce_loss(x, x, temperature=temperature)
    torch.testing.assert_close(value.item(), math.log(2 * (pairs - 1)) - 1 / temperature)
    torch.testing.assert_close(info_nce_loss(x, x, temperature=temperature), torch.nn.functional.softplus(value))


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


def test_anchors_without_negatives_count_as_zero(pair: Pair) -> None:
    x, y = (side.detach().requires_grad_() for side in pair)
    alike = cz_nce_loss(x, y, text=torch.zeros(10, dtype=torch.long))
    alike.backward()
    assert alike == 0 and torch.equal(x.grad, torch.zeros_like(x)) and torch.equal(y.grad, torch.zeros_like(y))


def vectors(rows: int, *, features: int = 5, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, features, generator=generator, dtype=torch.float64).to(dtype)


def naive_loss(
    q: Tensor, p: Tensor, temperature: float, query_text: list[int] | None = None, passage_text: list[int] | None = None
) -> Tensor:
    """Eq. 1, a term at a time."""
    terms = []
    for i in range(len(q)):
        denominator = q.new_zeros(())
        for j in range(len(p)):
            same_question = query_text is not None and j < len(q) and query_text[i] == query_text[j]
            same_passage = passage_text is not None and passage_text[i] == passage_text[j]
            if i == j or not (same_question or same_passage):
                denominator = denominator + torch.exp(F.cosine_similarity(q[i], p[j], dim=0) / temperature)
        terms.append(-torch.log(torch.exp(F.cosine_similarity(q[i], p[i], dim=0) / temperature) / denominator))
    return torch.stack(terms).mean()


@pytest.mark.parametrize("negatives", [0, 4, 8])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_equals_the_equation_and_the_hosts_loss(negatives: int, temperature: float) -> None:
    q, p = vectors(4), vectors(4 + negatives, seed=1)
    loss = retrieval_contrastive_loss(q, p, temperature=temperature)
    torch.testing.assert_close(loss, naive_loss(q, p, temperature))
    host = MultipleNegativesRankingLoss(None, scale=1 / temperature)
    torch.testing.assert_close(loss, host.compute_loss_from_embeddings([q, *p.split(4)], None))


def test_equal_texts_are_no_negatives() -> None:
    q, p = vectors(4), vectors(7, seed=1)
    query_text, passage_text = [1, 2, 3, 1], [5, 6, 5, 8, 6, 9, 8]
    tags = {"query_text": torch.tensor(query_text), "passage_text": torch.tensor(passage_text)}
    loss = retrieval_contrastive_loss(q, p, temperature=0.2, **tags)
    torch.testing.assert_close(loss, naive_loss(q, p, 0.2, query_text, passage_text))
    assert loss < retrieval_contrastive_loss(q, p, temperature=0.2)


def test_gradients() -> None:
    q, p = vectors(3).requires_grad_(), vectors(5, seed=1).requires_grad_()
    text = torch.tensor([1, 1, 2, 3, 2])
    assert torch.autograd.gradcheck(lambda q, p: retrieval_contrastive_loss(q, p, passage_text=text), (q, p))


def test_a_won_query_still_has_a_gradient_in_bfloat16() -> None:
    # The gold passage is 0.9 nearer: exp(-18) is lost in the usual form.
    q = torch.tensor([[1.0, 0.0]], dtype=torch.bfloat16)
    p = torch.tensor([[1.0, 0.05], [0.1, 1.0]], dtype=torch.bfloat16).requires_grad_()
    retrieval_contrastive_loss(q, p, temperature=0.05).backward()
    assert p.grad is not None and p.grad.abs().sum() > 0


def test_a_batch_of_one_and_nothing_but_positives() -> None:
    one = vectors(1).requires_grad_()
    loss = retrieval_contrastive_loss(one, vectors(1, seed=1))
    loss.backward()
    assert loss == 0 and one.grad is not None and not one.grad.any()
    same = torch.zeros(3, dtype=torch.long)
    assert retrieval_contrastive_loss(vectors(3), vectors(3, seed=1), passage_text=same) == 0
