"""Cross-entropy over large vocabularies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from st_xlret.functional.checks import at_least_float32, check_matrix, check_tag, without_autocast

# The most logits that are held at a time (4 bytes each). Matrix products of fewer rows are slower.
_MOST_LOGITS = 2**25


def chunked_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """Mean cross-entropy over a large vocabulary, computed without holding all logits at once.

    It equals `F.cross_entropy(F.linear(hidden, weight, bias).float(), labels)`. At most 134 MB of logits are held at
    a time, which become the gradients of `hidden` and `bias` at once. In the backward pass, they are computed again for
    the gradient of `weight` alone: a frozen one saves that. The matrix products use autocast's
    type if autocast is on; all else is computed in at least float32.

    This is the loss of masked language modelling (BERT, Devlin et al. 2019; MSM, Eq. 3).

    Args:
        hidden: Vectors before the projection (M, d).
        weight: Projection (V, d), for example the tied input embeddings.
        bias: Bias (V,) or None.
        labels: Target rows of `weight`, integers (M,).

    Returns:
        A scalar, at least float32. It is 0, and still part of the graph, for M = 0.

    Raises:
        ValueError: If shapes do not fit, or labels lie outside the vocabulary.

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
    device = hidden.device.type
    kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    with without_autocast(hidden):
        total: Tensor = _CrossEntropy.apply(hidden, weight, bias, labels.long(), kind, torch.is_grad_enabled())
        return total / len(labels)


class _CrossEntropy(torch.autograd.Function):
    """The sum over all rows."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        kind: torch.dtype,
        learns: bool,
    ) -> Tensor:
        of_hidden, _, of_bias, *_ = (learns and needed for needed in ctx.needs_input_grad)
        x, projection = hidden.to(kind), weight.to(kind)
        wide = at_least_float32(x.new_zeros(())).dtype
        normalizer, targets = (x.new_empty(len(x), 1, dtype=wide) for _ in range(2))
        hidden_gradient = torch.empty_like(hidden, dtype=wide) if of_hidden else None
        bias_gradient = torch.zeros_like(bias, dtype=wide) if bias is not None and of_bias else None
        for rows in _slices(len(x), len(weight)):
            logits, label = _logits(x[rows], projection, bias), labels[rows, None]
            targets[rows] = logits.gather(1, label)
            largest = logits.amax(dim=1, keepdim=True)
            probabilities = logits.sub_(largest).exp_()
            total = probabilities.sum(dim=1, keepdim=True)
            normalizer[rows] = largest + total.log()
            error = probabilities.div_(total).scatter_add_(1, label, probabilities.new_full(label.shape, -1))
            if hidden_gradient is not None:
                hidden_gradient[rows] = (error.to(kind) @ projection).to(wide)
            if bias_gradient is not None:
                bias_gradient += error.sum(dim=0)
            del logits, probabilities, error  # before the next ones are computed
        ctx.save_for_backward(hidden, weight, bias, labels, normalizer, hidden_gradient, bias_gradient)
        ctx.kind = kind
        return (normalizer - targets).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, labels, normalizer, hidden_gradient, bias_gradient = ctx.saved_tensors
        weight_gradient = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        if weight_gradient is not None:
            x = hidden.to(ctx.kind)
            # Some entries of the vocabulary at a time, so that no gradient is summed over chunks.
            for part in _slices(len(weight), sum(x.shape)):
                logits = _logits(x, weight[part].to(ctx.kind), None if bias is None else bias[part])
                error = logits.sub_(normalizer).exp_()
                here = ((labels >= part.start) & (labels < part.stop)).nonzero()[:, 0]
                error[here, labels[here] - part.start] -= 1
                weight_gradient[part] = error.mul_(factor).to(ctx.kind).T @ x
                del logits, error
        return (
            None if hidden_gradient is None else (hidden_gradient * factor).to(hidden.dtype),
            weight_gradient,
            None if bias_gradient is None else (bias_gradient * factor).to(bias.dtype),
            *(None,) * 3,
        )


def _slices(count: int, width: int) -> list[slice]:
    size = max(1, _MOST_LOGITS // width)
    return [slice(start, start + size) for start in range(0, count, size)]


def _logits(x: Tensor, projection: Tensor, bias: Tensor | None) -> Tensor:
    logits = at_least_float32(x @ projection.T)
    return logits if bias is None else logits.add_(bias)
