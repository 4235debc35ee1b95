"""Cross-zero noise contrastive estimation (ML-CTL)."""

from __future__ import annotations

import torch
from torch import Tensor

from st_xlret.functional.checks import (
    at_least_float32,
    check_pair,
    check_tag,
    check_temperature,
    without_autocast,
)
from st_xlret.functional.contrastive import _unit_rows


def cz_nce_loss(x: Tensor, y: Tensor, *, temperature: float = 0.07, text: Tensor | None = None) -> Tensor:
    """CZ-NCE: Eq. 5 of ML-CTL in the symmetric mean of its Eq. 2.

    Mean over the 2N anchors of ``-log(e^{s+} / sum_k e^{s_k})``, with s the cosine divided by ``temperature``
    and k over the other 2(N - 1) rows of x and of y. Unlike in
    :func:`~st_xlret.functional.info_nce_loss` the positive is no part of the sum: the loss has no lower bound
    at 0, is negative once the positive wins, and pulls on the positive with the same force, 1 / temperature,
    however far ahead it is. Anchor by anchor, InfoNCE is the softplus of CZ-NCE.

    Args:
        x: Row-aligned vectors (N, d); they need not be normalised.
        y: Row-aligned vectors (N, d): y_i is the positive of x_i.
        temperature: Divisor of the cosines.
        text: Text ids of the rows of x, then of y, integers (2N,): rows of equal text are not negatives. An
            anchor without any negative left counts as 0.

    Returns:
        A scalar, at least float32.

    Raises:
        ValueError: For N = 1 (or 0), where there are no negatives, on shapes that do not fit, or a
            temperature that is not positive.

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
        z = _unit_rows(at_least_float32(torch.cat([x, y])))
        logits = (z / temperature) @ z.T
        positive = logits.diagonal(pairs)
        left_out = _left_out(pairs, text, z.device)
        without_negatives = left_out.all(dim=1)
        # A finite filling: where nothing else is left, its gradient is 0 and not undefined.
        log_negatives = logits.masked_fill(left_out, torch.finfo(logits.dtype).min / 4).logsumexp(dim=1)
        terms = log_negatives - torch.cat([positive, positive])
        return terms.masked_fill(without_negatives, 0.0).mean()


def _left_out(pairs: int, text: Tensor | None, device: torch.device) -> Tensor:
    """Which columns are no negatives of which rows, boolean (2N, 2N): the pair's own two, and equal texts."""
    pair = torch.arange(pairs, device=device).repeat(2)
    own = pair[:, None] == pair
    return own if text is None else own.logical_or_(text[:, None] == text)
