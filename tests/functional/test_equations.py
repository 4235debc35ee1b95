"""Each equation of the papers against a loop over its terms, limits and edges."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from st_xlret import functional as f
from tests.functional import oracles

# Windows of one, two and three rows, two languages, documents that hold several windows, repeated texts.
WINDOW = torch.tensor([0, 0, 1, 1, 1, 2, 3, 3, 4, 4])
LANGUAGE = torch.tensor([7, 7, 7, 7, 7, 7, 9, 9, 9, 9])
TAGS = {
    "document": torch.tensor([0, 0, 1, 1, 1, 0, 2, 2, 3, 3]),
    "text": torch.tensor([0, 1, 2, 3, 0, 4, 5, 6, 5, 7]),
}
IN_PAIRS = torch.tensor([0, 0, 1, 1])
QUEUE_LANGUAGE = torch.tensor([7, 9, 7, 9, 11])
QUEUE_TAGS = {"document": torch.tensor([0, 2, 5, 6, 7]), "text": torch.tensor([9, 9, 3, 7, 9])}


def vectors(rows: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 5, generator=generator, dtype=torch.float64).requires_grad_()


def assert_same(loss: Tensor, expected: Tensor, inputs: Sequence[Tensor]) -> None:
    """Equal values, and equal gradients with respect to the inputs."""
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs)
    )


def queue_arguments(queue: Tensor, *names: str) -> dict[str, Any]:
    tags = {f"queue_{name}": QUEUE_TAGS[name] for name in names}
    return {"queue": queue, "queue_language": QUEUE_LANGUAGE, **tags}


@pytest.mark.parametrize("names", [(), ("document",), ("text",), ("document", "text")])
@pytest.mark.parametrize("chunk_of_queue", [None, 2**22, 20, 1])
@pytest.mark.parametrize("cross, normalize", list(itertools.product([False, True], repeat=2)))
def test_equals_the_papers_equation(
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
    chunk_of_queue: int | None,
    cross: bool,
    normalize: bool,
) -> None:
    z, options = (
        vectors(10),
        {"temperature": 0.5, "normalize": normalize, "cross_language_negatives": cross},
    )
    options |= {name: TAGS[name] for name in names}
    if chunk_of_queue:
        monkeypatch.setattr(f.tensors, "MOST_LOGITS", chunk_of_queue)
        options |= queue_arguments(vectors(5, seed=1).detach(), *names)
    equations: Any = f.contrastive_context_loss, oracles.naive_context_loss
    assert_same(*(equation(z, WINDOW, LANGUAGE, **options) for equation in equations), [z])


def test_the_queue_gets_no_gradient_and_may_change_before_the_backward_pass() -> None:
    z, queue = vectors(10), vectors(5, seed=1)
    unchanged = f.contrastive_context_loss(z, WINDOW, LANGUAGE, **queue_arguments(queue))
    of_copy = queue.detach().clone().requires_grad_()
    loss = f.contrastive_context_loss(z, WINDOW, LANGUAGE, **queue_arguments(of_copy))
    of_copy.data.normal_()
    torch.testing.assert_close(
        torch.autograd.grad(loss, z, retain_graph=True), torch.autograd.grad(unchanged, z)
    )
    assert torch.autograd.grad(loss, of_copy, allow_unused=True) == (None,)
    empty = f.contrastive_context_loss(
        z, WINDOW, LANGUAGE, queue=vectors(0), queue_language=QUEUE_LANGUAGE[:0]
    )
    assert empty == f.contrastive_context_loss(z, WINDOW, LANGUAGE)


def test_sixteen_bits_keep_the_gradient_that_the_usual_form_loses() -> None:
    rows = [[1.0, 0, 0, 0], [0.97, 0.25, 0, 0], [0, 0, 1, 0], [0, 0, 0.97, 0.25]]
    z = torch.tensor(rows, dtype=torch.bfloat16, requires_grad=True)
    window, positive = IN_PAIRS, torch.tensor([1, 0, 3, 2])
    logits = (z @ z.T / 0.07).masked_fill(torch.eye(4, dtype=torch.bool), -torch.inf)
    usual = (torch.logsumexp(logits, 1) - logits[torch.arange(4), positive]).mean()
    ours = f.contrastive_context_loss(z, window, torch.zeros_like(window), temperature=0.07)
    of_retrieval = f.retrieval_contrastive_loss(z[::2], z[1::2], temperature=0.05)
    # Only the positive lies along the second axis: this is what pulls the first row towards it.
    assert torch.autograd.grad(usual, z)[0][0, 1] == 0
    assert torch.autograd.grad(ours, z)[0][0, 1] < 0
    assert torch.autograd.grad(of_retrieval, z)[0][0, 1] < 0


@pytest.mark.parametrize(
    "equation",
    [
        lambda x, y: f.contrastive_context_loss(
            x[:4], IN_PAIRS, IN_PAIRS
        ),  # each window in its own language
        lambda x, y: f.cz_nce_loss(x, y, text=torch.zeros(10).long()),
        lambda x, y: f.info_nce_loss(x[:1], y[:1]),
        lambda x, y: f.masked_sentence_loss(x[:1], y[:1], LANGUAGE[:1]),
        lambda x, y: f.masked_sentence_loss(x, y, WINDOW[:5], text=torch.zeros(5).long()),
        lambda x, y: f.retrieval_contrastive_loss(x[:1], y[:1]),
        lambda x, y: f.retrieval_contrastive_loss(x, y, passage_text=torch.zeros(5).long()),
    ],
)
def test_nothing_but_positives_gives_zero_and_no_gradient(equation: Any) -> None:
    x, y = vectors(5), vectors(5, seed=1)
    loss = equation(x, y)
    loss.backward()
    assert loss == 0 and not x.grad.any() and (y.grad is None or not y.grad.any())


def naive_info_nce(x: Tensor, y: Tensor, **options: Any) -> Tensor:
    """Eq. 2 of lang-contrastive: windows of two rows, in one language."""
    return oracles.naive_context_loss(
        torch.cat([x, y]), [*range(len(x))] * 2, [0] * 2 * len(x), **options
    )


@pytest.mark.parametrize(
    "text", [None, [0, 1, 2, 3, 0, 5, 6, 5, 8, 9], [0, 1, 1, 3, 4, 3, 6, 7, 8, 9]]
)
@pytest.mark.parametrize("temperature", [0.07, 0.2])
@pytest.mark.parametrize(
    ("equation", "naive"),
    [(f.cz_nce_loss, oracles.naive_cz_nce), (f.info_nce_loss, naive_info_nce)],
)
def test_equals_the_papers_equation_of_pairs(
    equation: Any, naive: Any, temperature: float, text: Any
) -> None:
    pair = vectors(5), vectors(5, seed=1)
    loss = equation(
        *pair, temperature=temperature, text=None if text is None else torch.tensor(text)
    )
    assert_same(loss, naive(*pair, temperature=temperature, text=text), pair)


@pytest.mark.parametrize("pairs, temperature", [(2, 0.07), (4, 0.1), (30, 1.0)])
def test_identities_of_pairs(pairs: int, temperature: float) -> None:
    # All anchors of orthogonal pairs are alike, so that the means can be compared.
    x = torch.eye(pairs, dtype=torch.float64)
    value = f.cz_nce_loss(x, x, temperature=temperature)
    torch.testing.assert_close(value.item(), math.log(2 * (pairs - 1)) - 1 / temperature)
    torch.testing.assert_close(f.info_nce_loss(x, x, temperature=temperature), F.softplus(value))
    views, window = torch.cat([x, x]), torch.arange(pairs).repeat(2)
    windows = f.contrastive_context_loss(views, window, window * 0, temperature=temperature)
    torch.testing.assert_close(f.info_nce_loss(x, x, temperature=temperature), windows)


@pytest.mark.parametrize("negatives", [0, 4, 8])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_retrieval_equals_the_equation_and_the_hosts_loss(
    negatives: int, temperature: float
) -> None:
    q, p = vectors(4), vectors(4 + negatives, seed=1)
    loss = f.retrieval_contrastive_loss(q, p, temperature=temperature)
    host = MultipleNegativesRankingLoss(None, scale=1 / temperature)
    torch.testing.assert_close(loss, host.compute_loss_from_embeddings([q, *p.split(4)], None))
    query_text, passage_text = [1, 2, 3, 1], [5, 6, 5, 8, 6, 9, 8, 7, 7, 1, 2, 5][: len(p)]
    tags = {"query_text": torch.tensor(query_text), "passage_text": torch.tensor(passage_text)}
    without_copies = f.retrieval_contrastive_loss(q, p, temperature=temperature, **tags)
    expected = oracles.naive_retrieval_loss(q, p, temperature, query_text, passage_text)
    torch.testing.assert_close(without_copies, expected)
    assert without_copies < loss


@pytest.mark.parametrize("elements", [2**22, 30, 1])
@pytest.mark.parametrize("others", [None, 0, 1, 3])
@pytest.mark.parametrize("reduction", ["mean", "sum", "paper"])
def test_equals_the_equation_of_the_language_loss(
    monkeypatch: pytest.MonkeyPatch, reduction: Any, others: int | None, elements: int
) -> None:
    monkeypatch.setattr(f.tensors, "MOST_LOGITS", elements)
    x, y, z = vectors(5), vectors(5, seed=1), None if others is None else vectors(others, seed=2)
    loss = f.language_contrastive_loss(x, y, z, reduction=reduction)
    terms, count = oracles.naive_language_terms(x, y, z), 10 + (others or 0)
    assert len(terms) == 5 * (count - 2)
    expected = {
        "mean": terms.mean(),
        "sum": terms.sum(),
        "paper": terms.sum() / (count * (count - 2)),
    }[reduction]
    assert_same(loss, expected, [rows for rows in (x, y, z) if rows is not None and len(rows)])


def test_the_language_loss_is_least_where_the_two_sides_cannot_be_told_apart() -> None:
    x, y, z = (vectors(5, seed) for seed in range(3))
    least = f.language_contrastive_loss(x, x * 3, z)
    torch.testing.assert_close(least.item(), 2 * math.log(2))
    assert f.language_contrastive_loss(x, y, z) > least
    assert all(gradient.abs().max() < 1e-12 for gradient in torch.autograd.grad(least, (x, z)))


@pytest.mark.parametrize("temperature", [0.1, 1.0])
@pytest.mark.parametrize("cosine_weight", [0.0, 10.0])
@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (1, 5), (4, 9)])
def test_distillation_equals_the_loop(
    temperature: float, cosine_weight: float, rows: int, keys: int
) -> None:
    student, teacher, bank = inputs = vectors(rows), vectors(rows, seed=1), vectors(keys, seed=2)
    for sharper in (None, 0.05):
        options: Any = {
            "temperature": temperature,
            "teacher_temperature": sharper,
            "cosine_weight": cosine_weight,
        }
        loss = f.similarity_distillation_loss(*inputs, **options)
        torch.testing.assert_close(
            loss, oracles.naive_distillation(*inputs, temperature, cosine_weight, sharper)
        )
    loss.backward()
    assert student.grad is not None and teacher.grad is None and bank.grad is None


OF_DOCUMENTS = [0, 0, 0, 1, 1, 2, 3, 3]
OF_LANGUAGES = [0, 0, 0, 0, 0, 1, 1, 1]
OF_TEXTS = [0, 1, 2, 3, 1, 5, 6, 6]
OPTIONS: list[dict[str, Any]] = [
    {"mu": 0.5},
    {"mu": 0.0},
    {"mu": 0.7, "temperature": 0.5},
    {"intra": False},
    {"language": OF_LANGUAGES},
    {"text": OF_TEXTS},
    {"language": OF_LANGUAGES, "text": OF_TEXTS, "predicted": [1, 4, 5, 6]},
]


@pytest.mark.parametrize("in_chunks", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_equals_the_papers_equation_of_sentences(
    options: dict[str, Any], in_chunks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f.tensors, "MOST_LOGITS", 24 if in_chunks else 2**22)
    pair = vectors(8), vectors(8, seed=1)
    tensors = {
        k: torch.tensor(v) if isinstance(v, list) else v for k, v in options.items() if k != "intra"
    }
    if "predicted" in tensors:
        tensors["predicted"] = torch.isin(torch.arange(8), tensors["predicted"])
    tensors["intra_document_negatives"] = options.get("intra", True)
    loss = f.masked_sentence_loss(*pair, torch.tensor(OF_DOCUMENTS), **tensors)
    # The gradient takes the bias for a constant on both sides.
    assert_same(loss, oracles.naive_masked_sentence_loss(*pair, OF_DOCUMENTS, **options), pair)


def test_drawn_negatives_are_any_of_the_others_and_a_row_with_fewer_uses_all() -> None:
    p, h = vectors(10), vectors(10, seed=1)
    document, language = (
        torch.tensor([0, 0, 1, 2, 2, 3, 4, 4, 5, 6]),
        torch.tensor([0] * 8 + [1] * 2),
    )
    options: dict[str, Any] = {
        "predicted": torch.isin(torch.arange(10), torch.tensor([0, 8])),
        "language": language,
    }
    possible, seen, generator = {}, Counter(), torch.Generator().manual_seed(0)
    for drawn in itertools.combinations(range(2, 8), 2):
        of_row_8 = (9,)  # the only other row in its language
        tags = {"predicted": [0, 8], "drawn": drawn + of_row_8, "language": language.tolist()}
        loss = oracles.naive_masked_sentence_loss(p, h, document.tolist(), **tags)
        possible[round(loss.item(), 9)] = torch.autograd.grad(loss, h)[0]
    for _ in range(300):
        loss = f.masked_sentence_loss(
            p, h, document, num_negatives=2, generator=generator, **options
        )
        seen[round(loss.item(), 9)] += 1
        # The backward pass computes the logits again, with the negatives that were drawn.
        torch.testing.assert_close(torch.autograd.grad(loss, h)[0], possible[round(loss.item(), 9)])
    assert len(seen) == len(possible) == 15 and min(seen.values()) > 5 and max(seen.values()) < 45


@pytest.mark.parametrize("most_logits", [1, 25, 10_000])  # one row at a time, some, or all
@pytest.mark.parametrize("frozen", [None, 0, 1, 2])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_equals_the_cross_entropy_of_all_logits(
    monkeypatch: pytest.MonkeyPatch,
    scale: float,
    with_bias: bool,
    frozen: int | None,
    most_logits: int,
) -> None:
    monkeypatch.setattr(f.vocabulary, "_MOST_LOGITS", most_logits)
    shapes, labels = [(7, 4), (11, 4), (11,)][: 2 + with_bias], torch.tensor([0, 3, 10, 3, 5, 1, 9])
    inputs = [scale * torch.randn(shape, dtype=torch.float64) for shape in shapes]
    learnt = [x.requires_grad_() for i, x in enumerate(inputs) if i != frozen]
    hidden, weight, bias = [*inputs, None][:3]
    loss = f.chunked_cross_entropy(hidden, weight, bias, labels)
    expected = F.cross_entropy(F.linear(hidden, weight, bias), labels)
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(3 * loss, learnt, retain_graph=True)
    torch.testing.assert_close(gradients, torch.autograd.grad(3 * expected, learnt))
    with pytest.raises(RuntimeError):  # they are scaled in place, and serve once
        torch.autograd.grad(3 * loss, learnt)
    nothing = f.chunked_cross_entropy(hidden[:0], weight, bias, labels[:0])
    assert nothing == 0 and not any(
        gradient.any() for gradient in torch.autograd.grad(nothing, learnt)
    )
