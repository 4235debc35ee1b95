"""Cross-entropy over large vocabularies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from st_xlret.functional import checks
from st_xlret.functional.checks import at_least_float32, check_matrix, check_tag, without_autocast


def chunked_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, *, chunk_size: int | None = None
) -> Tensor:
    """Mean cross-entropy of a vocabulary projection without ever holding all logits.

    Equals ``F.cross_entropy(F.linear(hidden, weight, bias).float(), labels)``; logits of ``chunk_size`` rows
    are computed at a time, and again in the backward pass. The matrix product runs in autocast's type where
    autocast is on, the logarithm of the sum in at least float32.

    Args:
        hidden: Vectors before the projection (M, d).
        weight: Projection (V, d), such as the tied input embeddings.
        bias: Bias (V,) or None.
        labels: Target rows of ``weight``, integers (M,).
        chunk_size: Rows at a time; by default as many as keep 4M logits alive.

    Returns:
        A scalar, at least float32; 0 (with a graph) for M = 0.

    Raises:
        ValueError: On shapes that do not fit, labels outside of the vocabulary, or a chunk size below 1.

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
        chunk_size = max(1, checks.CHUNK_ELEMENTS // weight.shape[0])
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}")
    return _ChunkedCrossEntropy.apply(hidden, weight, bias, labels.long(), chunk_size)


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, chunk_size: int
    ) -> Tensor:
        device = hidden.device.type
        autocast = torch.is_autocast_enabled(device)
        ctx.compute_dtype = torch.get_autocast_dtype(device) if autocast else weight.dtype
        ctx.chunk_size = chunk_size
        ctx.save_for_backward(hidden, weight, bias, labels)
        with without_autocast(hidden):
            projection = weight.to(ctx.compute_dtype)
            total = hidden.new_zeros((), dtype=torch.promote_types(ctx.compute_dtype, torch.float32))
            for rows in _slices(len(labels), chunk_size):
                logits = _vocabulary_logits(hidden[rows], projection, bias)
                total += (torch.logsumexp(logits, 1) - logits.gather(1, labels[rows, None])[:, 0]).sum()
        return total / len(labels)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple:  # type: ignore[override]
        hidden, weight, bias, labels = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        grad_hidden = torch.empty_like(hidden) if wanted[0] else None
        grad_weight = torch.zeros_like(weight) if wanted[1] else None
        grad_bias = torch.zeros_like(bias) if bias is not None and wanted[2] else None
        with without_autocast(hidden):
            projection = weight.to(ctx.compute_dtype)
            for rows in _slices(len(labels), ctx.chunk_size):
                logits = _vocabulary_logits(hidden[rows], projection, bias)
                share = logits.sub_(torch.logsumexp(logits, 1, keepdim=True)).exp_()
                share[torch.arange(len(share), device=share.device), labels[rows]] -= 1
                share *= grad / len(labels)
                if grad_bias is not None:
                    grad_bias += share.sum(0)
                share = share.to(ctx.compute_dtype)
                if grad_hidden is not None:
                    grad_hidden[rows] = (share @ projection).to(hidden.dtype)
                if grad_weight is not None:
                    inputs = hidden[rows].to(ctx.compute_dtype)
                    if ctx.compute_dtype == weight.dtype:
                        grad_weight.addmm_(share.T, inputs)
                    else:
                        grad_weight += share.T @ inputs
        return grad_hidden, grad_weight, grad_bias, None, None


def _slices(rows: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, rows, size)]


def _vocabulary_logits(hidden: Tensor, projection: Tensor, bias: Tensor | None) -> Tensor:
    logits = at_least_float32(hidden.to(projection.dtype) @ projection.T)
    return logits if bias is None else logits.add_(bias)
