"""Contrastive losses: InfoNCE in the shapes that the papers use."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from st_xlret.functional import checks
from st_xlret.functional.checks import (
    at_least_float32,
    check_matrix,
    check_pair,
    check_tag,
    check_temperature,
    without_autocast,
)


def contrastive_context_loss(
    z: Tensor,
    window: Tensor,
    language: Tensor,
    *,
    temperature: float = 0.1,
    document: Tensor | None = None,
    queue: Tensor | None = None,
    queue_language: Tensor | None = None,
    queue_document: Tensor | None = None,
    cross_language_negatives: bool = False,
    text: Tensor | None = None,
    queue_text: Tensor | None = None,
    queue_is_normalized: bool = False,
) -> Tensor:
    """Contrastive context prediction: line 14-16 of Algorithm 1 in the CCP paper.

    Mean over ordered positive pairs (c, i) of ``-log(e^{s_ci} / sum_k e^{s_ck})`` with ``s`` the cosine
    divided by ``temperature`` and k over all rows but c, and all queue rows. Rows with one window id are
    positives of each other. Left out of the sum are rows and queue rows

    - of another language, unless ``cross_language_negatives`` (they teach language identification),
    - of c's document, where documents are given, and with c's text, where texts are given,

    c's own positives always stay. A row without a positive is a negative only.

    Args:
        z: Projected sentence vectors, shape (B, d); they need not be normalised.
        window: Window id of each row, integers (B,).
        language: Language id of each row, integers (B,).
        temperature: Divisor of the cosines.
        document: Document id of each row, integers (B,).
        queue: Keys of earlier batches (Q, d), constants: no gradient flows into them.
        queue_language: Language id of each key (Q,); required with ``queue``.
        queue_document: Document id of each key (Q,); required with ``queue`` where ``document`` is given.
        cross_language_negatives: Keep rows of other languages as negatives.
        text: Id of each row's text, integers (B,): equal texts are never negatives of each other.
        queue_text: Text id of each key (Q,); required with ``queue`` where ``text`` is given.
        queue_is_normalized: The keys have unit length already, which saves a pass over them.

    Returns:
        A scalar, at least float32.

    Raises:
        ValueError: On shapes that do not fit, a temperature that is not positive, or no positive pair at all.

    Example:
        >>> z = torch.eye(4).repeat_interleave(2, 0)            # four windows of two equal rows
        >>> window = torch.arange(4).repeat_interleave(2)
        >>> loss = contrastive_context_loss(z, window, torch.zeros(8, dtype=torch.long))
        >>> round(loss.item(), 6)                               # log(1 + 6 e^-10)
        0.000272
    """
    check_matrix("z", z)
    check_temperature(temperature)
    rows = z.shape[0]
    tags = {"language": language, "document": document, "text": text}
    for name, tag in {"window": window, **tags}.items():
        check_tag(name, tag, rows)
    queue_tags = {"language": queue_language, "document": queue_document, "text": queue_text}
    if queue is not None:
        _check_queue(queue, z.shape[1], tags, queue_tags)

    with without_autocast(z):
        z = _unit_rows(at_least_float32(z))
        positives = window[:, None] == window[None, :]
        candidates = _allowed(tags, tags, cross_language_negatives)
        if candidates is not None:
            candidates.logical_or_(positives)
        positives.fill_diagonal_(False)
        queue_logsumexp = None
        if queue is not None and len(queue):
            queue_logsumexp = _QueueLogSumExp.apply(
                z / temperature, queue, tags, queue_tags, cross_language_negatives, queue_is_normalized
            )
        logits = _SelfSimilarity.apply(z * temperature**-0.5)
        return _mean_over_positive_pairs(logits, positives, candidates, queue_logsumexp)


def info_nce_loss(x: Tensor, y: Tensor, *, temperature: float = 0.07, text: Tensor | None = None) -> Tensor:
    """Symmetric InfoNCE over all rows of both sides: Eq. 1-2 of ML-CTL, L_sema (Eq. 2) of lang-contrastive.

    Mean over the 2N anchors of ``-log(e^{s+} / sum_k e^{s_k})``, with s the cosine divided by ``temperature``
    and k over the positive and the other 2(N - 1) rows of x and of y.

    Args:
        x: Row-aligned vectors (N, d).
        y: Row-aligned vectors (N, d): y_i is the positive of x_i.
        temperature: Divisor of the cosines.
        text: Text ids of the rows of x, then of y, integers (2N,): rows of equal text are not negatives.

    Returns:
        A scalar, at least float32; 0 for N = 1, where there are no negatives.

    Raises:
        ValueError: On shapes that do not fit or a temperature that is not positive.

    Example:
        >>> x = torch.eye(4)
        >>> round(info_nce_loss(x, x, temperature=0.1).item(), 6)
        0.000272
    """
    check_pair(x, y)
    window = torch.arange(x.shape[0], device=x.device).repeat(2)
    with without_autocast(x):
        z = torch.cat([x, y])
    # One language for all: admitting other languages spares the comparison.
    return contrastive_context_loss(
        z,
        window,
        torch.zeros_like(window),
        temperature=temperature,
        text=text,
        cross_language_negatives=True,
    )


def _unit_rows(x: Tensor) -> Tensor:
    # A zero row has no direction: it stays zero and gets no gradient, where normalize alone would give one of
    # 1e12.
    zero = ~x.any(dim=1, keepdim=True)
    return F.normalize(x.masked_fill(zero, 1.0), dim=1).masked_fill(zero, 0.0)


class _SelfSimilarity(torch.autograd.Function):
    """x @ x.T, whose gradient takes one matrix product, not two: both sides are the same."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x @ x.T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return (grad + grad.T) @ x


def _mean_over_positive_pairs(
    logits: Tensor, positives: Tensor, candidates: Tensor | None, queue_logsumexp: Tensor | None
) -> Tensor:
    """Mean of -log(e^{s_ci} / sum) over positive pairs; without ``candidates`` all columns are candidates."""
    anchor, positive = positives.nonzero(as_tuple=True)
    if not len(anchor):
        raise ValueError("no positive pair in the batch: no two rows share a window id")
    if len(anchor) != len(logits) or not torch.equal(anchor, torch.arange(len(logits), device=anchor.device)):
        # A row stands once for each of its positives. The usual one positive per row needs no copy.
        logits = logits[anchor]
        candidates = None if candidates is None else candidates[anchor]
        queue_logsumexp = None if queue_logsumexp is None else queue_logsumexp[anchor]
    scores, log_others = _SplitOffPositive.apply(logits, anchor, positive, candidates)
    if queue_logsumexp is not None:
        log_others = torch.logaddexp(log_others, queue_logsumexp)
    return -F.logsigmoid(scores - log_others).mean()


class _SplitOffPositive(torch.autograd.Function):
    """Each row's positive logit, and logsumexp over its candidates but itself and this positive.

    The positive's own term never enters the sum, so that a small gradient is not the difference of large
    numbers. Few passes over the logits, whose memory it uses up for the exponentials.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, itself: Tensor, positive: Tensor, candidates: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        rows = torch.arange(len(logits), device=logits.device)
        lowest = torch.finfo(logits.dtype).min / 4
        scores = logits[rows, positive]
        if candidates is not None:
            logits.masked_fill_(~candidates, lowest)
        logits[rows, itself] = lowest
        logits[rows, positive] = lowest
        highest = logits.amax(dim=1, keepdim=True)
        exponentials = logits.sub_(highest).exp_()
        total = exponentials.sum(dim=1, keepdim=True)
        without_candidates = highest <= lowest
        ctx.save_for_backward(exponentials, total, positive, without_candidates)
        return scores, torch.where(without_candidates, lowest, highest + total.log())[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_scores: Tensor, grad_log_others: Tensor) -> tuple:  # type: ignore[override]
        exponentials, total, positive, without_candidates = ctx.saved_tensors
        share = (grad_log_others[:, None] / total).masked_fill(without_candidates, 0)
        grad = exponentials * share
        grad[torch.arange(len(grad), device=grad.device), positive] += grad_scores
        return grad, None, None, None


def _allowed(
    tags: dict[str, Tensor | None], other_tags: dict[str, Tensor | None], cross_language: bool
) -> Tensor | None:
    """Which columns may be negatives of which rows, boolean (rows, columns); None where all may."""
    allowed = None
    for name, tag in tags.items():
        other_tag = other_tags[name]
        if tag is None or other_tag is None or (name == "language" and cross_language):
            continue
        equal = tag[:, None] == other_tag[None, :]
        fits = equal if name == "language" else equal.logical_not_()
        allowed = fits if allowed is None else allowed.logical_and_(fits)
    return allowed


class _QueueLogSumExp(torch.autograd.Function):
    """logsumexp over the allowed keys of the queue, chunk by chunk.

    Its gradient, the mean of the keys weighted by softmax, is gathered in the same pass: the queue is read
    once, and may take in new keys before the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, queue: Tensor, tags: dict, queue_tags: dict, cross: bool, unit: bool) -> Tensor:
        lowest = torch.finfo(z.dtype).min / 4
        result, mean_key = z.new_full((len(z),), lowest), torch.zeros_like(z)
        size = max(1, checks.CHUNK_ELEMENTS // len(z))
        for start in range(0, len(queue), size):
            keys = queue[start : start + size].to(z.dtype)
            if not unit:
                keys = F.normalize(keys, dim=1)
            chunk_tags = {k: None if v is None else v[start : start + size] for k, v in queue_tags.items()}
            allowed = _allowed(tags, chunk_tags, cross)
            forbidden = None if allowed is None else allowed.logical_not_()
            logits = z @ keys.T
            if forbidden is not None:
                logits.masked_fill_(forbidden, lowest)
            before, result = result, torch.logaddexp(result, torch.logsumexp(logits, dim=1))
            if ctx.needs_input_grad[0]:
                share = logits.sub_(result[:, None]).exp_()
                if forbidden is not None:
                    share.masked_fill_(forbidden, 0)
                mean_key.mul_((before - result).exp_()[:, None]).addmm_(share, keys)
        ctx.save_for_backward(mean_key)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple:  # type: ignore[override]
        (mean_key,) = ctx.saved_tensors
        return mean_key * grad[:, None], None, None, None, None, None


def _check_queue(queue: Tensor, features: int, tags: dict, queue_tags: dict) -> None:
    check_matrix("queue", queue)
    if queue.shape[1] != features:
        raise ValueError(f"queue has {queue.shape[1]} features and z has {features}")
    for name, tag in tags.items():
        if tag is not None and queue_tags[name] is None:
            raise ValueError(f"queue_{name} is needed: {name} is given and so is queue")
        if tag is not None:
            check_tag(f"queue_{name}", queue_tags[name], len(queue))
