"""The equations over documents as plain loops, one term at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


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
    """Section 3.1 of the MSM paper: document by document, sentence by sentence.

    Args:
        layers: Transformer layers, from (1, places, d) to the same.
        embed: What is done to sentence vectors with their positions added.
        mask_vector: Stands for the masked sentence (d,).
        positions: Position vectors (places, d).
        documents: Sentence vectors (places, d) of each document.

    Returns:
        p_1 .. p_N of each document (places, d).
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
