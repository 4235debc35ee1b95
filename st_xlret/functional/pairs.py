"""InfoNCE and CZ-NCE: row-aligned pairs against all other rows of both sides."""

import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.functional.tensors import (
    LOWEST,
    check_integers_per_row,
    check_matrices,
    normalize_rows,
)

__all__ = ["cz_nce_loss", "info_nce_loss"]


def info_nce_loss(
    x: Tensor, y: Tensor, *, temperature: float = 0.07, text: Tensor | None = None
) -> Tensor:
    """Symmetric InfoNCE over the rows of both sides (ML-CTL, Eq. 1-2; lang-contrastive, Eq. 2).

    The loss is the mean over the 2N anchors of `-log(e^{s+} / sum_k e^{s_k})`, where s is the
    cosine divided by `temperature` and k runs over the positive and the other 2(N - 1) rows of x
    and y. It is 0 for N = 1. It is L_sema of lang-contrastive.

    Args:
        x: Row-aligned vectors (N, d). They need not have unit length.
        y: Row-aligned vectors (N, d): y_i is the positive of x_i.
        temperature: Divisor of the cosines.
        text: Text ids of the rows of x, then of y, integers (2N,). Rows of equal text are no
            negatives of each other.

    Example:
        >>> x = torch.eye(4)
        >>> round(info_nce_loss(x, x, temperature=0.1).item(), 6)
        0.000272
    """
    check_matrices(len(x), temperature, x=x, y=y)
    return -F.logsigmoid(-_log_ratios(x, y, temperature, text)).mean()


def cz_nce_loss(
    x: Tensor, y: Tensor, *, temperature: float = 0.07, text: Tensor | None = None
) -> Tensor:
    """Cross-zero noise contrastive estimation (ML-CTL, Chen et al. 2022).

    It is Eq. 5, averaged symmetrically as in Eq. 2: as `info_nce_loss`, but the positive is not
    part of the sum over k. The loss therefore becomes negative once the positive wins, and its
    gradient with respect to the positive stays 1 / temperature however far ahead that is. For each
    anchor, InfoNCE is the softplus of CZ-NCE. An anchor that has no negative left counts as 0; one
    pair alone is a `ValueError`.

    Example:
        >>> x = torch.eye(4)
        >>> round(cz_nce_loss(x, x, temperature=0.1).item(), 4)      # log(6) - 10
        -8.2082
    """
    check_matrices(len(x), temperature, 2, x=x, y=y)
    log_ratios = _log_ratios(x, y, temperature, text)
    has_none = log_ratios < LOWEST / 2
    return log_ratios.masked_fill(has_none, 0.0).mean()


def _log_ratios(x: Tensor, y: Tensor, temperature: float, text: Tensor | None) -> Tensor:
    """`log(sum_k e^{s_k} / e^{s+})` over the negatives k of each of the 2N anchors.

    It is below half of `LOWEST` where there is none. `text` is as of `info_nce_loss`.
    """
    check_integers_per_row(2 * len(x), text=text)
    pair = torch.arange(len(x), device=x.device).repeat(2)
    left_out = pair[:, None] == pair
    if text is not None:
        left_out |= text[:, None] == text
    with torch.autocast(x.device.type, enabled=False):
        z = normalize_rows(torch.cat([x, y]))
        logits = z @ z.T / temperature
        positive = logits.diagonal(len(x)).repeat(2)
        return logits.masked_fill(left_out, LOWEST).logsumexp(dim=1) - positive
