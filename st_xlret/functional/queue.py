"""The keys of earlier batches in a contrastive loss: which of them count, and their part of the sum."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from st_xlret.functional import checks
from st_xlret.functional.checks import check_matrix, check_tag


def queue_logsumexp(
    z: Tensor, queue: Tensor, tags: dict, queue_tags: dict, *, cross_language: bool, unit: bool
) -> Tensor:
    """Each row's logsumexp over the keys that may be its negatives, with a gradient for the rows alone.

    It is the part of the memory bank in the denominator of CCP (Wu et al. 2022, Algorithm 1, lines 14-16).

    Args:
        z: Rows (N, d), divided by the temperature.
        queue: Keys (Q, d).
        tags: `language`, and `document` and `text` if known, of the rows (N,).
        queue_tags: The same of the keys (Q,).
        cross_language: Whether keys of other languages count too.
        unit: Whether the keys are to be taken as they are, and not to be brought to unit length.

    Returns:
        (N,). A row that no key is a negative of has `lowest_logit(z)`.
    """
    return _QueueLogSumExp.apply(z, queue, tags, queue_tags, cross_language, unit)


class _QueueLogSumExp(torch.autograd.Function):
    """logsumexp over the allowed keys of the queue, computed chunk by chunk.

    Its gradient, the mean of the keys weighted by their softmax, is accumulated in the same pass. The queue is
    therefore read once, and may take in new keys before the backward pass. Keys of a language that no row has are not
    read at all.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, queue: Tensor, tags: dict, queue_tags: dict, cross: bool, unit: bool) -> Tensor:
        others = {name: tag for name, tag in tags.items() if name != "language"}
        gradient = ctx.needs_input_grad[0]
        if cross:
            result, mean_key = _logsumexp_of_keys(z, queue, None, others, queue_tags, unit, gradient)
        else:
            result, mean_key = z.new_full((len(z),), lowest_logit(z)), torch.zeros_like(z)
            for code in tags["language"].unique():
                rows = (tags["language"] == code).nonzero()[:, 0]
                keys = (queue_tags["language"] == code).nonzero()[:, 0]
                of_rows = {name: None if tag is None else tag[rows] for name, tag in others.items()}
                result[rows], mean_key[rows] = _logsumexp_of_keys(
                    z[rows], queue, keys, of_rows, queue_tags, unit, gradient
                )
        ctx.save_for_backward(mean_key)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple:  # type: ignore[override]
        (mean_key,) = ctx.saved_tensors
        return mean_key * grad[:, None], None, None, None, None, None


def _logsumexp_of_keys(
    z: Tensor, queue: Tensor, selected: Tensor | None, tags: dict, queue_tags: dict, unit: bool, gradient: bool
) -> tuple[Tensor, Tensor]:
    """Each row's logsumexp over the selected keys (all without `selected`), and the mean key, its gradient."""
    lowest = lowest_logit(z)
    result, mean_key = z.new_full((len(z),), lowest), torch.zeros_like(z)
    if selected is not None and len(selected) == len(queue):
        selected = None
    viewed = selected is None and unit and queue.dtype == z.dtype
    # A chunk of keys that is a copy counts as its logits do.
    size = max(1, checks.CHUNK_ELEMENTS // (len(z) if viewed else max(z.shape)))
    for start in range(0, len(queue if selected is None else selected), size):
        part: Any = slice(start, start + size) if selected is None else selected[start : start + size]
        keys = queue[part].to(z.dtype)
        if not unit:
            keys = F.normalize(keys, dim=1)
        chunk_tags = {name: None if tag is None else tag[part] for name, tag in queue_tags.items()}
        allowed = allowed_columns(tags, chunk_tags, cross_language=True)
        forbidden = None if allowed is None else allowed.logical_not_()
        logits = z @ keys.T
        if forbidden is not None:
            logits.masked_fill_(forbidden, lowest)
        before, result = result, torch.logaddexp(result, torch.logsumexp(logits, dim=1))
        if gradient:
            share = logits.sub_(result[:, None]).exp_()
            if forbidden is not None:
                share.masked_fill_(forbidden, 0)
            mean_key.mul_((before - result).exp_()[:, None]).addmm_(share, keys)
    return result, mean_key


def allowed_columns(
    tags: dict[str, Tensor | None], other_tags: dict[str, Tensor | None], cross_language: bool
) -> Tensor | None:
    """Which columns may be negatives of which rows, boolean (rows, columns), or None if all may."""
    allowed = None
    for name, tag in tags.items():
        other_tag = other_tags[name]
        if tag is None or other_tag is None or (name == "language" and cross_language):
            continue
        equal = tag[:, None] == other_tag[None, :]
        fits = equal if name == "language" else equal.logical_not_()
        allowed = fits if allowed is None else allowed.logical_and_(fits)
    return allowed


def lowest_logit(x: Tensor) -> float:
    """A logit that weighs nothing, and whose differences are finite."""
    return torch.finfo(x.dtype).min / 4


def check_queue(queue: Tensor, features: int, tags: dict, queue_tags: dict) -> None:
    """Check that the keys and their tags fit the rows, of so many features and with these tags.

    Raises:
        ValueError: If they do not.
    """
    check_matrix("queue", queue)
    if queue.shape[1] != features:
        raise ValueError(f"queue has {queue.shape[1]} features and z has {features}")
    for name, tag in tags.items():
        if tag is not None and queue_tags[name] is None:
            raise ValueError(f"queue_{name} is needed: {name} is given and so is queue")
        if tag is not None:
            check_tag(f"queue_{name}", queue_tags[name], len(queue))
