"""The language contrastive loss: sentences are to be as near to a text as to its translation."""

from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from st_xlret.functional.tensors import check_matrices, normalize_rows, rows_at_once

__all__ = ["language_contrastive_loss"]

Reduction: TypeAlias = Literal["mean", "sum", "paper"]


def language_contrastive_loss(
    x: Tensor, y: Tensor, others: Tensor | None = None, *, reduction: Reduction = "mean"
) -> Tensor:
    """Language contrastive loss L_lang (lang-contrastive, Hu et al. 2023, Eq. 3).

    For each parallel pair (x_n, y_n) and every other row z_k of x, y and `others`, the loss has the
    term `softplus(d) + softplus(-d)` with `d = cos(x_n, z_k) - cos(y_n, z_k)`, which is least, 2
    log 2, where z_k is equally similar to both sides. The differences are computed in chunks, and
    again in the backward pass. A `ValueError` refuses fewer rows than three.

    Args:
        x: Row-aligned vectors (N, d). They need not have unit length.
        y: Row-aligned vectors (N, d): y_n translates x_n.
        others: Further rows (M, d), which need no translations. They receive gradients too.
        reduction: "mean" over the N (R - 2) terms, "sum", or "paper": the sum divided by R (R - 2),
            as printed in Eq. 3, where R = 2N + M is the number of rows, at least 3.

    Example:
        >>> x = torch.eye(3)
        >>> round(language_contrastive_loss(x, x).item(), 4)          # 2 log 2
        1.3863
    """
    check_matrices(len(x), x=x, y=y)
    if others is None:
        others = x[:0]
    pairs = len(x)
    rows = 2 * pairs + len(others)
    divisors = {"mean": pairs * (rows - 2), "sum": 1, "paper": rows * (rows - 2)}
    if reduction not in divisors or rows < 3:
        raise ValueError(
            "a pair is compared with further rows, and reduction is 'mean', 'sum' or 'paper': "
            f"got {pairs} pairs, {len(others)} others and {reduction!r}; "
            "use a larger batch, or give others"
        )
    with torch.autocast(x.device.type, enabled=False):
        z = normalize_rows(torch.cat([x, y, others.to(x.device)]))
        total = z.new_zeros(())
        for chunk in torch.arange(pairs, device=z.device).split(rows_at_once(rows)):
            total = total + checkpoint(_sum_of_terms, z, chunk, chunk + pairs, use_reentrant=False)
        return total / divisors[reduction]


def _sum_of_terms(z: Tensor, rows: Tensor, translations: Tensor) -> Tensor:
    """The sum of the terms of Eq. 3 of some pairs against all rows of z but their own two.

    `rows` are those of the one side in z (R, d), of unit length, and `translations` of the other.
    """
    d = (z[rows] - z[translations]) @ z.T
    terms = 2 * F.softplus(d) - d  # softplus(-d) = softplus(d) - d
    pair = torch.stack([rows, translations], dim=1)
    return terms.scatter(1, pair, 0.0).sum()
