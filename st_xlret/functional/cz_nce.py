"""Cross-zero noise contrastive estimation (ML-CTL)."""

from __future__ import annotations

import torch
from torch import Tensor

from st_xlret.functional.checks import (
    at_least_float32,
    check_pair,
    check_tag,
    check_temperature,
    unit_rows,
    without_autocast,
)


def cz_nce_loss(x: Tensor, y: Tensor, *, temperature: float = 0.07, text: Tensor | None = None) -> Tensor:
    """Cross-zero noise contrastive estimation (ML-CTL, Chen et al. 2022: Eq. 5, averaged symmetrically as in Eq. 2).

    The loss is the mean over the 2N anchors of `-log(e^{s+} / sum_k e^{s_k})`, where s is the cosine divided by
    `temperature` and k runs over the other 2(N - 1) rows of x and y. Unlike in `info_nce_loss`, the positive is not
    part of the sum. The loss therefore has no lower bound at 0: it becomes negative once the positive wins, and its
    gradient with respect to the positive stays 1 / temperature however far ahead the positive is. For each anchor,
    InfoNCE is the softplus of CZ-NCE.

    Args:
        x: Row-aligned vectors (N, d). They need not have unit length.
        y: Row-aligned vectors (N, d): y_i is the positive of x_i.
        temperature: Divisor of the cosines.
        text: Text ids of the rows of x followed by those of y, integers (2N,). Rows of equal text are not negatives
            of each other. An anchor that has no negative left counts as 0.

    Returns:
        A scalar, at least float32.

    Raises:
        ValueError: If N is 1 or 0 (there are no negatives then), shapes do not fit, or the temperature is not
            positive.

    Example:
        >>> x = torch.eye(4)
        >>> round(cz_nce_loss(x, x, temperature=0.1).item(), 4)      # log(6) - 10
        -8.2082
    """
    check_pair(x, y)
    check_temperature(temperature)
    pairs = x.shape[0]
    check_tag("text", text, 2 * pairs)
    if pairs < 2:
        raise ValueError(
            f"CZ-NCE needs at least 2 pairs in a batch, got {pairs}: the other pairs are its negatives; "
            "use a larger batch and drop an incomplete last one"
        )
    with without_autocast(x):
        z = unit_rows(at_least_float32(torch.cat([x, y])))
        logits = (z / temperature) @ z.T
        positive = logits.diagonal(pairs)
        left_out = _left_out(pairs, text, z.device)
        without_negatives = left_out.all(dim=1)
        # A finite filling: where nothing else is left, its gradient is 0 and not undefined.
        log_negatives = logits.masked_fill(left_out, torch.finfo(logits.dtype).min / 4).logsumexp(dim=1)
        terms = log_negatives - torch.cat([positive, positive])
        return terms.masked_fill(without_negatives, 0.0).mean()


def _left_out(pairs: int, text: Tensor | None, device: torch.device) -> Tensor:
    """Which columns are not negatives of which rows, boolean (2N, 2N): the pair's own two, and equal texts."""
    pair = torch.arange(pairs, device=device).repeat(2)
    own = pair[:, None] == pair
    return own if text is None else own.logical_or_(text[:, None] == text)
