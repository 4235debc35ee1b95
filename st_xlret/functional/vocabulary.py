"""Cross-entropy over large vocabularies."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from st_xlret.functional import checks
from st_xlret.functional.checks import at_least_float32, check_matrix, check_tag, without_autocast

# The fewest vocabulary entries per chunk: narrower matrix products are slow.
_NARROWEST_CHUNK = 256


def chunked_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, *, chunk_size: int | None = None
) -> Tensor:
    """Mean cross-entropy over a large vocabulary, computed without holding all logits at once.

    It equals `F.cross_entropy(F.linear(hidden, weight, bias).float(), labels)`. The logits are computed for
    `chunk_size` vocabulary entries at a time, and again in the backward pass. The matrix product uses autocast's type
    if autocast is on; the logarithm of the sum is computed in at least float32.

    This is the loss of masked language modelling (BERT, Devlin et al. 2019; MSM, Eq. 3).

    Args:
        hidden: Vectors before the projection (M, d).
        weight: Projection (V, d), for example the tied input embeddings.
        bias: Bias (V,) or None.
        labels: Target rows of `weight`, integers (M,).
        chunk_size: Number of vocabulary entries at a time. Default: as many as give 4M logits.

    Returns:
        A scalar, at least float32. It is 0, and still part of the graph, for M = 0.

    Raises:
        ValueError: If shapes do not fit, labels lie outside the vocabulary, or the chunk size is below 1.

    Example:
        >>> hidden, weight = torch.zeros(3, 8), torch.zeros(100, 8)
        >>> round(chunked_cross_entropy(hidden, weight, None, torch.tensor([1, 2, 3])).item(), 4)   # log(100)
        4.6052
    """
    check_matrix("hidden", hidden)
    check_matrix("weight", weight)
    if hidden.shape[1] != weight.shape[1]:
        raise ValueError(f"hidden {tuple(hidden.shape)} and weight {tuple(weight.shape)} differ in their last axis")
    check_tag("labels", labels, hidden.shape[0])
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must have shape ({weight.shape[0]},), got {tuple(bias.shape)}")
    if not len(labels):
        return at_least_float32(hidden).sum() * 0
    if labels.min() < 0 or labels.max() >= weight.shape[0]:
        raise ValueError(f"labels must lie in [0, {weight.shape[0]}), got {int(labels.min())}..{int(labels.max())}")
    if chunk_size is None:
        chunk_size = max(_NARROWEST_CHUNK, checks.CHUNK_ELEMENTS // len(labels))
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}")
    # Chunks of the vocabulary rather than of the rows: each pass then reads the large weight once.
    parts, start = [], 0
    biases = [None] * -(-len(weight) // chunk_size) if bias is None else bias.split(chunk_size)
    for projection, part in zip(weight.split(chunk_size), biases, strict=True):
        parts.append(checkpoint(_chunk, hidden, projection, part, labels.long() - start, use_reentrant=False))
        start += chunk_size
    normalizers, targets = zip(*parts, strict=True)
    return (torch.stack(normalizers).logsumexp(dim=0) - torch.stack(targets).sum(dim=0)).mean()


def _chunk(hidden: Tensor, projection: Tensor, bias: Tensor | None, place: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's logsumexp over some vocabulary entries, and the logit of its label, 0 if that is not among them."""
    device = hidden.device.type
    kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else projection.dtype
    with without_autocast(hidden):
        logits = at_least_float32(hidden.to(kind) @ projection.to(kind).T)
        logits = logits if bias is None else logits + bias
        is_here = (place >= 0) & (place < logits.shape[1])
        target = logits.gather(1, place.clamp(0, logits.shape[1] - 1)[:, None])[:, 0]
        return logits.logsumexp(dim=1), target * is_here
