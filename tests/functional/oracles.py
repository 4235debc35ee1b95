"""The papers' equations as plain loops, one term at a time."""

from __future__ import annotations

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


def naive_semantic_loss(x: Tensor, y: Tensor, *, temperature: float, text: list[int] | None = None) -> Tensor:
    """Eq. 2 of lang-contrastive: each row of either side against all 2(N - 1) rows of the other pairs."""
    rows, pairs = torch.cat([x, y]), len(x)
    text = list(range(2 * pairs)) if text is None else text
    terms = []
    for anchor in range(2 * pairs):
        positive = (anchor + pairs) % (2 * pairs)
        denominator = x.new_zeros(())
        for k in range(2 * pairs):
            if k != anchor and (k == positive or text[k] != text[anchor]):
                denominator = denominator + torch.exp(F.cosine_similarity(rows[anchor], rows[k], dim=0) / temperature)
        numerator = torch.exp(F.cosine_similarity(rows[anchor], rows[positive], dim=0) / temperature)
        terms.append(-torch.log(numerator / denominator))
    return torch.stack(terms).mean()
