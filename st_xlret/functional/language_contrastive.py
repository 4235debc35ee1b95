"""Language contrastive loss: every sentence should be equally similar to the two sides of a translation."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from st_xlret.functional import checks
from st_xlret.functional.checks import at_least_float32, check_matrix, check_pair, unit_rows, without_autocast

Reduction = Literal["mean", "sum", "paper"]


def language_contrastive_loss(
    x: Tensor, y: Tensor, others: Tensor | None = None, *, reduction: Reduction = "mean"
) -> Tensor:
    """Language contrastive loss L_lang (lang-contrastive, Hu et al. 2023, Eq. 3).

    For each parallel pair (x_n, y_n) and every other row z_k of x, y and `others`, the loss has the term
    `softplus(d) + softplus(-d)` with `d = cos(x_n, z_k) - cos(y_n, z_k)`. A term has its minimum, 2 log 2, at d = 0,
    where z_k is equally similar to both sides of the pair. In contrast to the semantic loss it needs no translation
    of z_k, so `others` may hold sentences of languages without parallel data.

    The N x R differences are never in memory all at once: they are computed in chunks, and again in the backward pass.

    Args:
        x: Row-aligned vectors (N, d). They need not have unit length.
        y: Row-aligned vectors (N, d): y_n translates x_n.
        others: Further rows (M, d) without translations. They receive gradients too.
        reduction: "mean" over the N (R - 2) terms, "sum", or "paper": the sum divided by R (R - 2), as printed in
            Eq. 3, where R = 2N + M is the number of rows.

    Returns:
        A scalar, at least float32.

    Raises:
        ValueError: If shapes do not fit, the reduction is unknown, there is no pair, or there is a single pair
            without others.

    Example:
        >>> x = torch.eye(3)
        >>> round(language_contrastive_loss(x, x).item(), 4)          # 2 log 2
        1.3863
    """
    check_pair(x=x, y=y)
    if others is not None:
        check_matrix("others", others)
        if others.shape[1] != x.shape[1]:
            raise ValueError(f"others has {others.shape[1]} features and x has {x.shape[1]}")
    if reduction not in ("mean", "sum", "paper"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'paper', got {reduction!r}")
    pairs = x.shape[0]
    rows = 2 * pairs + (0 if others is None else others.shape[0])
    if not pairs or rows < 3:
        raise ValueError(
            f"the language contrastive loss compares a pair with further rows, got {pairs} pairs and "
            f"{rows - 2 * pairs} others: use a larger batch, or give others"
        )
    with without_autocast(x):
        z = unit_rows(at_least_float32(torch.cat([x, y] if others is None else [x, y, others.to(x.device)])))
        total = z.new_zeros(())
        for chunk in torch.arange(pairs, device=z.device).split(max(1, checks.CHUNK_ELEMENTS // rows)):
            total = total + checkpoint(_sum_of_terms, z, chunk, pairs, use_reentrant=False)
        return total / {"mean": pairs * (rows - 2), "sum": 1, "paper": rows * (rows - 2)}[reduction]


def _sum_of_terms(z: Tensor, chunk: Tensor, pairs: int) -> Tensor:
    """Sum of softplus(d) + softplus(-d) of some pairs, over all columns but a pair's own two rows."""
    d = (z[chunk] - z[chunk + pairs]) @ z.T
    # softplus(-d) = softplus(d) - d
    terms = 2 * F.softplus(d) - d
    return terms.scatter(1, torch.stack([chunk, chunk + pairs], dim=1), 0.0).sum()
