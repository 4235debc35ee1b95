"""Contrastive losses: InfoNCE in the shapes that the papers use."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from st_xlret.functional.checks import (
    at_least_float32,
    check_matrix,
    check_pair,
    check_tag,
    check_temperature,
    unit_rows,
    without_autocast,
)
from st_xlret.functional.queue import allowed_columns, check_queue, lowest_logit, queue_logsumexp


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
    normalize: bool = True,
) -> Tensor:
    """Contrastive context prediction (CCP, Wu et al. 2022, Algorithm 1, lines 14-16).

    The loss is the mean over ordered positive pairs (c, i) of `-log(e^{s_ci} / sum_k e^{s_ck})`, where s is the
    cosine divided by `temperature` and k runs over all rows but c, and over all rows of the queue. Rows that share
    a window id are positives of each other. A row or key is left out of c's sum if it

    - is of another language, unless `cross_language_negatives` is set (such negatives teach the encoder to identify
      languages),
    - belongs to c's document, where documents are given,
    - has the same text as c, where texts are given.

    The positives of c are never left out. A row that has no positive serves as a negative only.

    Args:
        z: Projected sentence vectors, shape (B, d). They need not have unit length.
        window: Window id of each row, integers (B,).
        language: Language id of each row, integers (B,).
        temperature: Divisor of the cosines.
        document: Document id of each row, integers (B,).
        queue: Keys of earlier batches (Q, d). They are constants: no gradient flows into them.
        queue_language: Language id of each key (Q,). Required with `queue`.
        queue_document: Document id of each key (Q,). Required with `queue` if `document` is given.
        cross_language_negatives: Keep rows and keys of other languages as negatives.
        text: Text id of each row, integers (B,). Rows of equal text are never negatives of each other.
        queue_text: Text id of each key (Q,). Required with `queue` if `text` is given.
        queue_is_normalized: Whether the keys already have unit length, which saves one pass over them.
        normalize: Whether s is the cosine. If off, it is the inner product of rows and keys as they are, divided by
            `temperature`: the ablation without L2 normalisation of Table 5.

    Returns:
        A scalar, at least float32.

    Raises:
        ValueError: If shapes do not fit, the temperature is not positive, or the batch has no positive pair.

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
        check_queue(queue, z.shape[1], tags, queue_tags)

    with without_autocast(z):
        z = unit_rows(at_least_float32(z)) if normalize else at_least_float32(z)
        positives = window[:, None] == window[None, :]
        candidates = allowed_columns(tags, tags, cross_language_negatives)
        if candidates is not None:
            candidates.logical_or_(positives)
        positives.fill_diagonal_(False)
        of_queue = None
        if queue is not None and len(queue):
            of_queue = queue_logsumexp(
                z / temperature,
                queue,
                tags,
                queue_tags,
                cross_language=cross_language_negatives,
                unit=queue_is_normalized or not normalize,
            )
        logits = _SelfSimilarity.apply(z * temperature**-0.5)
        return _mean_over_positive_pairs(logits, positives, candidates, of_queue)


def info_nce_loss(x: Tensor, y: Tensor, *, temperature: float = 0.07, text: Tensor | None = None) -> Tensor:
    """Symmetric InfoNCE over the rows of both sides (ML-CTL, Eq. 1-2; L_sema of lang-contrastive, Eq. 2).

    The loss is the mean over the 2N anchors of `-log(e^{s+} / sum_k e^{s_k})`, where s is the cosine divided by
    `temperature` and k runs over the positive and the other 2(N - 1) rows of x and y. The papers are Chen et al.
    (2022) and Hu et al. (2023).

    Args:
        x: Row-aligned vectors (N, d). They need not have unit length.
        y: Row-aligned vectors (N, d): y_i is the positive of x_i.
        temperature: Divisor of the cosines.
        text: Text ids of the rows of x followed by those of y, integers (2N,). Rows of equal text are not negatives
            of each other.

    Returns:
        A scalar, at least float32. It is 0 for N = 1, where there are no negatives.

    Raises:
        ValueError: If shapes do not fit or the temperature is not positive.

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


class _SelfSimilarity(torch.autograd.Function):
    """`x @ x.T`, whose gradient takes one matrix product instead of two because both sides are the same."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x @ x.T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return (grad + grad.T) @ x


def _mean_over_positive_pairs(
    logits: Tensor, positives: Tensor, candidates: Tensor | None, of_queue: Tensor | None
) -> Tensor:
    """Mean of -log(e^{s_ci} / sum) over positive pairs. Without `candidates`, every column is a candidate."""
    anchor, positive = positives.nonzero(as_tuple=True)
    if not len(anchor):
        raise ValueError("no positive pair in the batch: no two rows share a window id")
    if len(anchor) != len(logits) or not torch.equal(anchor, torch.arange(len(logits), device=anchor.device)):
        # A row stands once for each of its positives. The usual one positive per row needs no copy.
        logits = logits[anchor]
        candidates = None if candidates is None else candidates[anchor]
        of_queue = None if of_queue is None else of_queue[anchor]
    scores, log_others = _SplitOffPositive.apply(logits, anchor, positive, candidates)
    if of_queue is not None:
        log_others = torch.logaddexp(log_others, of_queue)
    return -F.logsigmoid(scores - log_others).mean()


class _SplitOffPositive(torch.autograd.Function):
    """Each row's positive logit, and the logsumexp over its candidates other than itself and this positive.

    The positive's own term never enters the sum, so that a small gradient is not the difference of two large
    numbers. The function makes few passes over the logits and reuses their memory for the exponentials.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, itself: Tensor, positive: Tensor, candidates: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        rows = torch.arange(len(logits), device=logits.device)
        lowest = lowest_logit(logits)
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
