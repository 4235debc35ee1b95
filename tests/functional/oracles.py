"""The papers' equations as plain loops, one term at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def naive_context_loss(
    z: Tensor,
    window: list[int],
    tags: list[tuple[int, int | None, int | None]],
    *,
    temperature: float,
    queue: Tensor | None = None,
    queue_tags: list[tuple[int, int | None, int | None]] = (),  # type: ignore[assignment]
    cross_language_negatives: bool = False,
    normalize: bool = True,
) -> Tensor:
    """Algorithm 1 of the CCP paper, lines 14-16; tags are (language, document, text) of each row."""

    def score(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp((F.cosine_similarity(a, b, dim=0) if normalize else a @ b) / temperature)

    def may_be_negative(mine: tuple, other: tuple) -> bool:
        if mine[0] != other[0] and not cross_language_negatives:
            return False
        return all(a is None or a != b for a, b in zip(mine[1:], other[1:], strict=True))

    terms = []
    for c in range(len(z)):
        for i in range(len(z)):
            if i == c or window[i] != window[c]:
                continue
            denominator = z.new_zeros(())
            for k in range(len(z)):
                if k != c and (window[k] == window[c] or may_be_negative(tags[c], tags[k])):
                    denominator = denominator + score(z[c], z[k])
            for k in range(0 if queue is None else len(queue)):
                if may_be_negative(tags[c], queue_tags[k]):
                    denominator = denominator + score(z[c], queue[k])
            terms.append(-torch.log(score(z[c], z[i]) / denominator))
    return torch.stack(terms).mean()


def naive_masked_sentence_loss(
    p: Tensor,
    h: Tensor,
    document: Sequence[int],
    *,
    mu: float = 0.5,
    temperature: float = 0.1,
    intra: bool = True,
    predicted: Sequence[int] | None = None,
    language: Sequence[int] | None = None,
    text: Sequence[int] | None = None,
    drawn: Sequence[int] | None = None,
) -> Tensor:
    """Eq. 1-2 of the MSM paper; ``drawn`` are the rows that may be cross-document negatives."""

    def sim(t: int, j: int) -> Tensor:
        return F.cosine_similarity(p[t], h[j], dim=0) / temperature

    def other_text(t: int, j: int) -> bool:
        return j != t and (text is None or text[j] != text[t])

    terms = []
    for t in range(len(p)) if predicted is None else predicted:
        same = [j for j in range(len(h)) if document[j] == document[t] and other_text(t, j)] if intra else []
        cross = [k for k in range(len(h)) if document[k] != document[t] and other_text(t, k)]
        cross = [k for k in cross if language is None or language[k] == language[t]]
        cross = [k for k in cross if drawn is None or k in drawn]
        alpha = p.new_zeros(())
        if same and cross:
            mean_same = sum(sim(t, j) for j in same) / len(same)
            alpha = (mean_same - sum(sim(t, k) for k in cross) / len(cross)).detach()
        denominator = torch.exp(sim(t, t))
        for j in same:
            denominator = denominator + torch.exp(sim(t, j) - mu * alpha)
        for k in cross:
            denominator = denominator + torch.exp(sim(t, k))
        terms.append(-torch.log(torch.exp(sim(t, t)) / denominator))
    return torch.stack(terms).mean()


def naive_predictions(
    layers: Sequence[Callable[[Tensor], Tensor]],
    embed: Callable[[Tensor], Tensor],
    mask_vector: Tensor,
    positions: Tensor,
    documents: Sequence[Tensor],
) -> list[Tensor]:
    """Section 3.1 of the MSM paper, a sentence of a document at a time: p_1 .. p_N of each (places, d).

    `embed` is done to sentence vectors with their positions added; `layers` map (1, places, d) to the same.
    """
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


def naive_cz_nce(x: Tensor, y: Tensor, *, temperature: float, text: list[int] | None = None) -> Tensor:
    """Eq. 5 of ML-CTL for each x_i and y_i, then Eq. 2; an anchor without negatives counts as 0."""
    pairs, sides = len(x), (x, y)
    text = list(range(2 * pairs)) if text is None else text
    terms = []
    for side in (0, 1):
        for i in range(pairs):
            anchor, positive = sides[side][i], sides[1 - side][i]
            negatives = [
                torch.exp(F.cosine_similarity(anchor, sides[other][j], dim=0) / temperature)
                for other in (0, 1)
                for j in range(pairs)
                if j != i and text[other * pairs + j] != text[side * pairs + i]
            ]
            numerator = torch.exp(F.cosine_similarity(anchor, positive, dim=0) / temperature)
            terms.append(-torch.log(numerator / sum(negatives)) if negatives else x.new_zeros(()))
    return torch.stack(terms).sum() / (2 * pairs)


def naive_language_terms(x: Tensor, y: Tensor, others: Tensor | None) -> Tensor:
    """Eq. 3 of lang-contrastive: the bracket of every pair (i, j) and every k but i and j, with its sign."""
    rows = [*x, *y] + ([] if others is None else [*others])
    terms = []
    for n in range(len(x)):
        for k, z in enumerate(rows):
            if k in (n, len(x) + n):
                continue
            near_x = torch.exp(F.cosine_similarity(x[n], z, dim=0))
            near_y = torch.exp(F.cosine_similarity(y[n], z, dim=0))
            terms.append(-torch.log(near_x / (near_x + near_y)) - torch.log(near_y / (near_x + near_y)))
    return torch.stack(terms)
