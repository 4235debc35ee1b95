"""Cross-entropy over large vocabularies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

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
    return _ChunkedCrossEntropy.apply(hidden, weight, bias, labels.long(), chunk_size)


class _ChunkedCrossEntropy(torch.autograd.Function):
    # Chunks of the vocabulary rather than of the rows: each pass then reads the large weight once, and writes
    # its gradient once.

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, chunk_size: int
    ) -> Tensor:
        device = hidden.device.type
        autocast = torch.is_autocast_enabled(device)
        ctx.compute_dtype = torch.get_autocast_dtype(device) if autocast else weight.dtype
        ctx.chunk_size = chunk_size
        exact = torch.promote_types(ctx.compute_dtype, torch.float32)
        normalizer = hidden.new_full((len(labels),), -torch.inf, dtype=exact)
        target = hidden.new_zeros((len(labels),), dtype=exact)
        with without_autocast(hidden):
            inputs = hidden.to(ctx.compute_dtype)
            for entries in _slices(len(weight), chunk_size):
                logits = _logits(inputs, weight[entries].to(ctx.compute_dtype), bias, entries)
                normalizer = torch.logaddexp(normalizer, torch.logsumexp(logits, dim=1))
                place, is_here = _places(labels, entries, logits)
                target = torch.where(is_here, logits.gather(1, place), target[:, None])[:, 0]
        ctx.save_for_backward(hidden, weight, bias, labels, normalizer)
        return (normalizer - target).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple:  # type: ignore[override]
        hidden, weight, bias, labels, normalizer = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        grad_hidden = at_least_float32(torch.zeros_like(hidden)) if wanted[0] else None
        grad_weight = torch.empty_like(weight) if wanted[1] else None
        grad_bias = torch.empty_like(bias) if bias is not None and wanted[2] else None
        with without_autocast(hidden):
            inputs = hidden.to(ctx.compute_dtype)
            for entries in _slices(len(weight), ctx.chunk_size):
                projection = weight[entries].to(ctx.compute_dtype)
                share = _logits(inputs, projection, bias, entries).sub_(normalizer[:, None]).exp_()
                place, is_here = _places(labels, entries, share)
                share.scatter_(1, place, share.gather(1, place) - is_here.to(share.dtype))
                share *= grad / len(labels)
                if grad_bias is not None:
                    grad_bias[entries] = share.sum(0)
                share = share.to(ctx.compute_dtype)
                if grad_hidden is not None:
                    grad_hidden += share @ projection
                if grad_weight is not None:
                    grad_weight[entries] = share.T @ inputs
        return (
            None if grad_hidden is None else grad_hidden.to(hidden.dtype),
            grad_weight,
            grad_bias,
            None,
            None,
        )


def _slices(size: int, step: int) -> list[slice]:
    return [slice(start, start + step) for start in range(0, size, step)]


def _logits(inputs: Tensor, projection: Tensor, bias: Tensor | None, entries: slice) -> Tensor:
    logits = at_least_float32(inputs @ projection.T)
    return logits if bias is None else logits.add_(bias[entries])


def _places(labels: Tensor, entries: slice, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Columns (rows, 1) of the labels in a chunk, and whether they lie in it."""
    place = labels[:, None] - entries.start
    last = logits.shape[1] - 1
    return place.clamp(0, last), (place >= 0) & (place <= last)
