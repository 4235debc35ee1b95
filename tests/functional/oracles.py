"""The papers' equations as plain loops, one term at a time."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Ids = Sequence[int]


def exponential(a: Tensor, b: Tensor, temperature: float = 1.0) -> Tensor:
    return torch.exp(F.cosine_similarity(a, b, dim=0) / temperature)


def naive_context_loss(
    z: Tensor,
    window: Ids,
    language,
    *,
    temperature,
    cross_language_negatives=False,
    normalize=True,
    queue=(),
    **tags,
) -> Tensor:
    """Algorithm 1 of the CCP paper, lines 14-16, with the arguments of `contrastive_context_loss`."""
    tags["language"] = language

    def score(a: Tensor, b: Tensor) -> Tensor:
        return exponential(a, b, temperature) if normalize else torch.exp(a @ b / temperature)

    def may_be_negative(c: int, k: int, side: str = "") -> bool:
        kinds = [kind for kind in ("language", "document", "text") if tags.get(kind) is not None]
        equal = {kind: tags[kind][c] == tags[side + kind][k] for kind in kinds}
        return (equal.pop("language") or cross_language_negatives) and not any(equal.values())

    terms = []
    for c in range(len(z)):
        for i in range(len(z)):
            if i == c or window[i] != window[c]:
                continue
            rows = [
                k
                for k in range(len(z))
                if k != c and (window[k] == window[c] or may_be_negative(c, k))
            ]
            keys = [k for k in range(len(queue)) if may_be_negative(c, k, "queue_")]
            denominator = sum(score(z[c], z[k]) for k in rows) + sum(
                score(z[c], queue[k]) for k in keys
            )
            terms.append(-torch.log(score(z[c], z[i]) / denominator))
    return torch.stack(terms).mean()


def naive_masked_sentence_loss(
    p: Tensor,
    h: Tensor,
    document: Ids,
    *,
    mu=0.5,
    temperature=0.1,
    intra=True,
    predicted=None,
    drawn=None,
    **tags: Ids,
) -> Tensor:
    """Eq. 1-2 of the MSM paper; ``drawn`` are the rows that may be cross-document negatives."""
    language, text = tags.get("language"), tags.get("text")

    def sim(t: int, j: int) -> Tensor:
        return F.cosine_similarity(p[t], h[j], dim=0) / temperature

    def other_text(t: int, j: int) -> bool:
        return j != t and (text is None or text[j] != text[t])

    terms = []
    for t in range(len(p)) if predicted is None else predicted:
        same = (
            [j for j in range(len(h)) if document[j] == document[t] and other_text(t, j)]
            if intra
            else []
        )
        cross = [k for k in range(len(h)) if document[k] != document[t] and other_text(t, k)]
        cross = [k for k in cross if language is None or language[k] == language[t]]
        cross = [k for k in cross if drawn is None or k in drawn]
        alpha = p.new_zeros(())
        if same and cross:
            mean_same = sum(sim(t, j) for j in same) / len(same)
            alpha = (mean_same - sum(sim(t, k) for k in cross) / len(cross)).detach()
        of_document = sum(torch.exp(sim(t, j) - mu * alpha) for j in same)
        denominator = torch.exp(sim(t, t)) + of_document + sum(torch.exp(sim(t, k)) for k in cross)
        terms.append(-torch.log(torch.exp(sim(t, t)) / denominator))
    return torch.stack(terms).mean()


def naive_predictions(
    layers: Sequence[Callable],
    embed: Callable,
    mask_vector: Tensor,
    positions: Tensor,
    documents: Sequence[Tensor],
) -> list[Tensor]:
    """Section 3.1 of the MSM paper, a sentence of a document at a time: p_1 .. p_N of each (places, d)."""
    results = []
    for h in documents:
        predictions = []
        for t in range(len(h)):
            copy = [mask_vector if j == t else h[j] for j in range(len(h))]
            x = embed(torch.stack(copy) + positions[: len(h)])[None]
            for layer in layers:
                x = layer(x)
            predictions.append(x[0, t])
        results.append(torch.stack(predictions))
    return results


def naive_cz_nce(x: Tensor, y: Tensor, *, temperature: float, text: Ids | None = None) -> Tensor:
    """Eq. 5 of ML-CTL for each x_i and y_i, then Eq. 2; an anchor without negatives counts as 0."""
    z, rows, terms = [*x, *y], range(2 * len(x)), []
    text = rows if text is None else text
    for anchor in rows:
        positive = (anchor + len(x)) % len(z)
        others = [k for k in rows if k not in (anchor, positive) and text[k] != text[anchor]]
        negatives = sum(exponential(z[anchor], z[k], temperature) for k in others)
        ratio = (
            exponential(z[anchor], z[positive], temperature) / negatives
            if others
            else x.new_ones(())
        )
        terms.append(-torch.log(ratio))
    return torch.stack(terms).mean()


def naive_language_terms(x: Tensor, y: Tensor, others: Tensor | None) -> Tensor:
    """Eq. 3 of lang-contrastive: the bracket of every pair (i, j) and every k but i and j, with its sign."""
    terms = []
    for n in range(len(x)):
        for k, z in enumerate([*x, *y, *(() if others is None else others)]):
            if k not in (n, len(x) + n):
                near_x, near_y = exponential(x[n], z), exponential(y[n], z)
                terms.append(
                    -torch.log(near_x / (near_x + near_y)) - torch.log(near_y / (near_x + near_y))
                )
    return torch.stack(terms)


def naive_retrieval_loss(
    q: Tensor,
    p: Tensor,
    temperature: float,
    query_text: Ids | None = None,
    passage_text: Ids | None = None,
) -> Tensor:
    """Eq. 1 of lang-contrastive, a term at a time."""
    query_text, passage_text = query_text or range(len(q)), passage_text or range(len(p))
    terms = []
    for i in range(len(q)):
        same = [j for j in range(len(p)) if passage_text[j] == passage_text[i]]
        same += [j for j in range(len(q)) if query_text[j] == query_text[i]]
        denominator = sum(
            exponential(q[i], p[j], temperature) for j in range(len(p)) if j == i or j not in same
        )
        terms.append(-torch.log(exponential(q[i], p[i], temperature) / denominator))
    return torch.stack(terms).mean()


def naive_distillation(
    student: Tensor,
    teacher: Tensor,
    bank: Tensor,
    temperature: float,
    weight: float,
    sharper: float | None = None,
) -> Tensor:
    """Row by row: the divergence of two softmaxes over the bank, and the distance of two directions."""
    terms = []
    for s, t in zip(student, teacher, strict=True):
        of_both = ((t, sharper or temperature), (s, temperature))
        p, q = (torch.exp(F.cosine_similarity(x[None], bank) / divisor) for x, divisor in of_both)
        p, q = p / p.sum(), q / q.sum()
        terms.append(sum(p * torch.log(p / q)) + weight * (1 - F.cosine_similarity(s, t, dim=0)))
    return torch.stack(terms).mean()
