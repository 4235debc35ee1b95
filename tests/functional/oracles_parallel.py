"""The equations over parallel sentences as plain loops, one term at a time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


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
