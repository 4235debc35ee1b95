"""Contrastive losses: InfoNCE and its kin, in the shapes that the papers use."""

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
    lowest_logit,
    unit_rows,
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
        _check_queue(queue, z.shape[1], tags, queue_tags)

    with without_autocast(z):
        z = unit_rows(at_least_float32(z)) if normalize else at_least_float32(z)
        itself = torch.eye(rows, dtype=torch.bool, device=z.device)
        positives = (window[:, None] == window) & ~itself
        anchor, positive = positives.nonzero(as_tuple=True)
        if not len(anchor):
            raise ValueError("no positive pair in the batch: no two rows share a window id")
        of_queue = None
        if queue is not None and len(queue):
            of_queue = _QueueLogSumExp.apply(
                z / temperature,
                queue,
                tags,
                queue_tags,
                cross_language_negatives,
                queue_is_normalized or not normalize,
            )
        logits = z @ z.T / temperature
        scores = logits[anchor, positive]
        allowed = _allowed_columns(tags, tags, cross_language_negatives)
        left_out = itself if allowed is None else itself | ~(allowed | positives)
        if not torch.equal(anchor, torch.arange(rows, device=z.device)):
            # A row stands once for each of its positives. The usual one positive per row needs no copy.
            logits, left_out = logits[anchor], left_out[anchor]
            of_queue = None if of_queue is None else of_queue[anchor]
        # The positive's own term never enters the sum: a small gradient is not the difference of two large numbers.
        left_out = left_out.scatter(1, positive[:, None], True)
        log_others = logits.masked_fill(left_out, lowest_logit(z)).logsumexp(dim=1)
        if of_queue is not None:
            log_others = torch.logaddexp(log_others, of_queue)
        return -F.logsigmoid(scores - log_others).mean()


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
    check_pair(x=x, y=y)
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
    check_pair(x=x, y=y)
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
        pair = torch.arange(pairs, device=z.device).repeat(2)
        left_out = pair[:, None] == pair
        if text is not None:
            left_out = left_out | (text[:, None] == text)
        without_negatives = left_out.all(dim=1)
        # A finite filling: where nothing else is left, its gradient is 0 and not undefined.
        log_negatives = logits.masked_fill(left_out, lowest_logit(logits)).logsumexp(dim=1)
        terms = log_negatives - torch.cat([positive, positive])
        return terms.masked_fill(without_negatives, 0.0).mean()


def retrieval_contrastive_loss(
    queries: Tensor,
    passages: Tensor,
    *,
    temperature: float = 0.05,
    query_text: Tensor | None = None,
    passage_text: Tensor | None = None,
) -> Tensor:
    """Retrieval loss L_IR: gold passages against all others (lang-contrastive, Hu et al. 2023, Eq. 1).

    The loss is the mean over queries of `-log(e^{s_ii} / sum_j e^{s_ij})`, where s is the cosine divided by
    `temperature` and j runs over all passages: the gold passages of all queries, and hard negatives. Eq. 1 as printed
    corresponds to a temperature of 1. If texts are given, a passage with the same text as the query's gold passage is
    not a negative, and neither is the gold passage of another copy of the same question.

    Args:
        queries: Query vectors (N, d). They need not have unit length.
        passages: Passage vectors (P, d), P >= N: the gold passages in the order of the queries, then hard negatives
            of any of them.
        temperature: Divisor of the cosines. The default, 0.05, is a factor of 20, the host's default `scale`.
        query_text: Text id of each query, integers (N,).
        passage_text: Text id of each passage, integers (P,).

    Returns:
        A scalar, at least float32. It is 0 if there are no negatives.

    Raises:
        ValueError: If shapes do not fit or the temperature is not positive.

    Example:
        >>> x = torch.eye(4)
        >>> round(retrieval_contrastive_loss(x, x, temperature=0.1).item(), 6)       # log(1 + 3 e^-10)
        0.000136
    """
    check_matrix("queries", queries)
    check_matrix("passages", passages)
    rows, candidates = len(queries), len(passages)
    if not rows or candidates < rows or passages.shape[1] != queries.shape[1]:
        raise ValueError(
            "there must be queries, a gold passage for each and one number of features, got queries of shape "
            f"{tuple(queries.shape)} and passages of shape {tuple(passages.shape)}"
        )
    check_temperature(temperature)
    check_tag("query_text", query_text, rows)
    check_tag("passage_text", passage_text, candidates)

    no_negative = torch.eye(rows, candidates, dtype=torch.bool, device=queries.device)
    if query_text is not None:
        no_negative[:, :rows] |= query_text[:, None] == query_text
    if passage_text is not None:
        no_negative |= passage_text[:rows, None] == passage_text
    with without_autocast(queries):
        scores = (1 / temperature) * unit_rows(at_least_float32(queries)) @ unit_rows(at_least_float32(passages)).T
        negatives = scores.masked_fill(no_negative, lowest_logit(scores)).logsumexp(dim=1)
        return -F.logsigmoid(scores.diagonal() - negatives).mean()


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
        allowed = _allowed_columns(tags, chunk_tags, cross_language=True)
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


def _allowed_columns(
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


def _check_queue(queue: Tensor, features: int, tags: dict, queue_tags: dict) -> None:
    check_matrix("queue", queue)
    if queue.shape[1] != features:
        raise ValueError(f"queue has {queue.shape[1]} features and z has {features}")
    for name, tag in tags.items():
        if tag is not None and queue_tags[name] is None:
            raise ValueError(f"queue_{name} is needed: {name} is given and so is queue")
        if tag is not None:
            check_tag(f"queue_{name}", queue_tags[name], len(queue))
