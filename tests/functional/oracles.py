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
