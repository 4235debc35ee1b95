"""The papers' equations as plain loops, one term at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Ids = Sequence[int]


def exponential(a: Tensor, b: Tensor, temperature: float = 1.0) -> Tensor:
    return torch.exp(F.cosine_similarity(a, b, dim=0) / temperature)


def naive_context_loss(
    z: Tensor,
    window: Ids,
    language: Ids,
    *,
    temperature: float,
    cross_language_negatives: bool = False,
    normalize: bool = True,
    queue: Any = (),
    **tags: Any,
) -> Tensor:
    """Algorithm 1 of the CCP paper, lines 14-16.

    It has the arguments of `contrastive_context_loss`.
    """
    tags["language"] = language

    def score(a: Tensor, b: Tensor) -> Tensor:
        if normalize:
            return exponential(a, b, temperature)
        return torch.exp(a @ b / temperature)

    def may_be_negative(c: int, k: int, side: str = "") -> bool:
        for kind in ("document", "text"):
            if tags.get(kind) is not None and tags[kind][c] == tags[side + kind][k]:
                return False
        return cross_language_negatives or bool(language[c] == tags[f"{side}language"][k])

    terms = []
    for c in range(len(z)):
        denominator = torch.zeros((), dtype=z.dtype)
        for k in range(len(z)):
            if k != c and (window[k] == window[c] or may_be_negative(c, k)):
                denominator = denominator + score(z[c], z[k])
        for k in range(len(queue)):
            if may_be_negative(c, k, "queue_"):
                denominator = denominator + score(z[c], queue[k])
        for i in range(len(z)):
            if i != c and window[i] == window[c]:
                terms.append(-torch.log(score(z[c], z[i]) / denominator))
    return torch.stack(terms).mean()


def naive_masked_sentence_loss(
    p: Tensor,
    h: Tensor,
    document: Ids,
    *,
    mu: float = 0.5,
    temperature: float = 0.1,
    intra: bool = True,
    predicted: Ids | None = None,
    drawn: Ids | None = None,
    language: Ids | None = None,
    text: Ids | None = None,
) -> Tensor:
    """Eq. 1-2 of the MSM paper; ``drawn`` are the rows that may be cross-document negatives."""

    def sim(t: int, j: int) -> Tensor:
        return F.cosine_similarity(p[t], h[j], dim=0) / temperature

    def is_cross(t: int, k: int) -> bool:
        if language is not None and language[k] != language[t]:
            return False
        return drawn is None or k in drawn

    if predicted is None:
        predicted = range(len(p))
    terms = []
    for t in predicted:
        same: list[int] = []
        cross: list[int] = []
        for j in range(len(h)):
            if j == t or (text is not None and text[j] == text[t]):
                continue
            if document[j] != document[t]:
                if is_cross(t, j):
                    cross.append(j)
            elif intra:
                same.append(j)
        alpha = p.new_zeros(())
        if same and cross:
            mean_same = sum(sim(t, j) for j in same) / len(same)
            mean_cross = sum(sim(t, k) for k in cross) / len(cross)
            alpha = (mean_same - mean_cross).detach()
        denominator = torch.exp(sim(t, t))
        for j in same:
            denominator = denominator + torch.exp(sim(t, j) - mu * alpha)
        for k in cross:
            denominator = denominator + torch.exp(sim(t, k))
        terms.append(-torch.log(torch.exp(sim(t, t)) / denominator))
    return torch.stack(terms).mean()


def naive_predictions(
    layers: Sequence[Callable],
    embed: Callable,
    mask_vector: Tensor,
    positions: Tensor,
    documents: Sequence[Tensor],
) -> list[Tensor]:
    """Section 3.1 of the MSM paper, a sentence at a time: p_1 .. p_N of each document (N, d)."""
    results = []
    for h in documents:
        predictions = []
        for t in range(len(h)):
            copy = list(h)
            copy[t] = mask_vector
            x = embed(torch.stack(copy) + positions[: len(h)])[None]
            for layer in layers:
                x = layer(x)
            predictions.append(x[0, t])
        results.append(torch.stack(predictions))
    return results


def naive_cz_nce(x: Tensor, y: Tensor, *, temperature: float, text: Ids | None = None) -> Tensor:
    """Eq. 5 of ML-CTL for each x_i and y_i, then Eq. 2; anchors without negatives count as 0."""
    z = [*x, *y]
    rows = range(len(z))
    if text is None:
        text = rows
    terms = []
    for anchor in rows:
        positive = (anchor + len(x)) % len(z)
        others = [k for k in rows if k not in (anchor, positive) and text[k] != text[anchor]]
        if not others:
            terms.append(x.new_zeros(()))
            continue
        negatives = sum(exponential(z[anchor], z[k], temperature) for k in others)
        terms.append(-torch.log(exponential(z[anchor], z[positive], temperature) / negatives))
    return torch.stack(terms).mean()


def naive_language_terms(x: Tensor, y: Tensor, others: Tensor | None) -> Tensor:
    """Eq. 3 of lang-contrastive: the signed bracket of each pair (i, j) and k but i and j."""
    rows = [*x, *y]
    if others is not None:
        rows += [*others]
    terms = []
    for n in range(len(x)):
        for k, z in enumerate(rows):
            if k in (n, len(x) + n):
                continue
            near_x = exponential(x[n], z)
            near_y = exponential(y[n], z)
            both = near_x + near_y
            terms.append(-torch.log(near_x / both) - torch.log(near_y / both))
    return torch.stack(terms)


def naive_retrieval_loss(
    q: Tensor,
    p: Tensor,
    temperature: float,
    query_text: Ids | None = None,
    passage_text: Ids | None = None,
) -> Tensor:
    """Eq. 1 of lang-contrastive, a term at a time."""
    queries = query_text or range(len(q))
    passages = passage_text or range(len(p))
    terms = []
    for i in range(len(q)):
        gold = exponential(q[i], p[i], temperature)
        denominator = gold
        for j in range(len(p)):
            is_copy = passages[j] == passages[i]
            of_equal_question = j < len(q) and queries[j] == queries[i]
            if not is_copy and not of_equal_question:
                denominator = denominator + exponential(q[i], p[j], temperature)
        terms.append(-torch.log(gold / denominator))
    return torch.stack(terms).mean()


def naive_distillation(
    student: Tensor,
    teacher: Tensor,
    bank: Tensor,
    temperature: float,
    weight: float,
    sharper: float | None = None,
) -> Tensor:
    """A row at a time: the divergence of two softmaxes, and the distance of two directions."""

    def shares(x: Tensor, divisor: float) -> Tensor:
        exponentials = torch.exp(F.cosine_similarity(x[None], bank) / divisor)
        return exponentials / exponentials.sum()

    terms = []
    for s, t in zip(student, teacher, strict=True):
        p = shares(t, sharper or temperature)
        q = shares(s, temperature)
        divergence = sum(p * torch.log(p / q))
        terms.append(divergence + weight * (1 - F.cosine_similarity(s, t, dim=0)))
    return torch.stack(terms).mean()
