"""The contrastive losses against loops over the papers' equations, their limits and their edges."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from st_xlret.functional import (
    contrastive,
    contrastive_context_loss,
    cz_nce_loss,
    info_nce_loss,
    language_contrastive_loss,
    retrieval_contrastive_loss,
    similarity_distillation_loss,
)
from tests.functional.oracles import naive_context_loss, naive_cz_nce, naive_language_terms

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
    arguments: dict[str, Any] = {"queue": queue, "queue_language": QUEUE_LANGUAGE}
    arguments |= {"queue_document": QUEUE_DOCUMENT} if document else {}
    return arguments | ({"queue_text": QUEUE_TEXT} if text else {})


def tag_rows(*tags: Tensor | None) -> list[tuple]:
    columns = [tag.tolist() if tag is not None else None for tag in tags]
    rows = len(next(column for column in columns if column is not None))
    return [tuple(None if column is None else column[i] for column in columns) for i in range(rows)]


@pytest.mark.parametrize("with_queue, document, text, cross, normalize", list(product([False, True], repeat=5)))
def test_equals_the_papers_equation(
    z: Tensor, queue: Tensor, with_queue: bool, document: bool, text: bool, cross: bool, normalize: bool
) -> None:
    loss = contrastive_context_loss(
        z,
        WINDOW,
        LANGUAGE,
        temperature=0.5,
        document=DOCUMENT if document else None,
        text=TEXT if text else None,
        cross_language_negatives=cross,
        normalize=normalize,
        **(queue_arguments(queue, document, text) if with_queue else {}),
    )
    expected = naive_context_loss(
        z,
        WINDOW.tolist(),
        tag_rows(LANGUAGE, DOCUMENT if document else None, TEXT if text else None),
        temperature=0.5,
        queue=queue if with_queue else None,
        queue_tags=tag_rows(QUEUE_LANGUAGE, QUEUE_DOCUMENT, QUEUE_TEXT),
        cross_language_negatives=cross,
        normalize=normalize,
    )
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(*torch.autograd.grad(loss, z), *torch.autograd.grad(expected, z))


@pytest.mark.parametrize("with_queue", [False, True])
@pytest.mark.parametrize("elements", [2**22, 20, 1])
def test_gradient_with_the_queue_in_one_or_several_chunks(
    monkeypatch: pytest.MonkeyPatch, z: Tensor, queue: Tensor, with_queue: bool, elements: int
) -> None:
    monkeypatch.setattr(contrastive, "CHUNK", elements)
    options = queue_arguments(queue, document=True) if with_queue else {}
    options |= {"temperature": 0.5, "document": DOCUMENT}
    assert torch.autograd.gradcheck(lambda z: contrastive_context_loss(z, WINDOW, LANGUAGE, **options), z)


def test_the_queue_gets_no_gradient_and_may_change_before_the_backward_pass(z: Tensor, queue: Tensor) -> None:
    unchanged = contrastive_context_loss(z, WINDOW, LANGUAGE, **queue_arguments(queue.clone().requires_grad_()))
    loss = contrastive_context_loss(z, WINDOW, LANGUAGE, **queue_arguments(queue))
    queue.normal_()
    torch.testing.assert_close(torch.autograd.grad(loss, z), torch.autograd.grad(unchanged, z))


def test_an_empty_queue_is_no_queue(z: Tensor, queue: Tensor) -> None:
    empty = {"queue": queue[:0], "queue_language": QUEUE_LANGUAGE[:0]}
    assert contrastive_context_loss(z, WINDOW, LANGUAGE, **empty) == contrastive_context_loss(z, WINDOW, LANGUAGE)


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
    torch.testing.assert_close(torch.autograd.grad(loss, pair), torch.autograd.grad(expected, pair))


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


def vectors(rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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


Rows = tuple[Tensor, Tensor, Tensor]


@pytest.fixture
def rows() -> Rows:
    def draw(count: int) -> Tensor:
        return torch.randn(count, 4, dtype=torch.float64, requires_grad=True)

    return draw(5), draw(5), draw(3)


@pytest.mark.parametrize("elements", [2**22, 30, 1])
@pytest.mark.parametrize("others", [None, 0, 1, 3])
@pytest.mark.parametrize("reduction", ["mean", "sum", "paper"])
def test_equals_the_equation_of_the_language_loss(
    monkeypatch: pytest.MonkeyPatch, rows: Rows, reduction: Any, others: int | None, elements: int
) -> None:
    monkeypatch.setattr(contrastive, "CHUNK", elements)
    x, y, z = (*rows[:2], None if others is None else rows[2][:others])
    loss = language_contrastive_loss(x, y, z, reduction=reduction)
    terms, count = naive_language_terms(x, y, z), 10 + (others or 0)
    assert len(terms) == 5 * (count - 2)
    expected = {"mean": terms.mean(), "sum": terms.sum(), "paper": terms.sum() / (count * (count - 2))}[reduction]
    torch.testing.assert_close(loss, expected)
    leaves = rows if others else rows[:2]
    torch.testing.assert_close(torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves))


def test_it_is_least_where_the_two_sides_cannot_be_told_apart(rows: Rows) -> None:
    x, y, z = rows
    least = language_contrastive_loss(x, x * 3, z)
    torch.testing.assert_close(least.item(), 2 * math.log(2))
    assert language_contrastive_loss(x, y, z) > least
    for gradient in torch.autograd.grad(least, (x, z)):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient))


def naive_distillation(student, teacher, bank, temperature: float, cosine_weight: float) -> float:
    """Row by row: the divergence of two softmaxes over the bank, and the distance of two directions."""

    def cosine(a, b) -> float:
        dot = sum(float(x) * float(y) for x, y in zip(a, b, strict=True))
        return dot / math.sqrt(sum(float(x) ** 2 for x in a)) / math.sqrt(sum(float(y) ** 2 for y in b))

    def softmax(row) -> list[float]:
        powers = [math.exp(cosine(row, key) / temperature) for key in bank]
        return [power / sum(powers) for power in powers]

    total = 0.0
    for s, t in zip(student, teacher, strict=True):
        total += sum(p * (math.log(p) - math.log(q)) for p, q in zip(softmax(t), softmax(s), strict=True))
        total += cosine_weight * (1 - cosine(s, t))
    return total / len(student)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
@pytest.mark.parametrize("cosine_weight", [0.0, 10.0])
@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (1, 5), (4, 9)])
def test_distillation_equals_the_loop(temperature: float, cosine_weight: float, rows: int, keys: int) -> None:
    inputs = vectors(rows), vectors(rows, seed=1), vectors(keys, seed=2)
    loss = similarity_distillation_loss(*inputs, temperature=temperature, cosine_weight=cosine_weight)
    assert loss.item() == pytest.approx(naive_distillation(*inputs, temperature, cosine_weight), rel=1e-9, abs=1e-12)


def test_the_teacher_gets_no_gradient() -> None:
    student, teacher, bank = (vectors(3, seed=seed).requires_grad_() for seed in range(3))
    similarity_distillation_loss(student, teacher, bank).backward()
    assert student.grad is not None and teacher.grad is None and bank.grad is None


def test_a_tiny_temperature_stays_finite() -> None:
    student, teacher, bank = (vectors(4, seed=seed).float() for seed in range(3))
    loss = similarity_distillation_loss(student.requires_grad_(), teacher, bank, temperature=1e-4)
    loss.backward()
    assert loss.isfinite() and student.grad.isfinite().all()
