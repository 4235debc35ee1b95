"""The papers' equations on tensors: no model, no state, no I/O. Imports torch only.

Everything is computed in at least float32 (float64 stays float64), whatever autocast is active, and is
differentiable. InfoNCE is written ``softplus(logsumexp(negatives) - positive)``: the usual form subtracts two
nearly equal numbers once the positive wins, and in 16-bit floats its gradient is then exactly zero.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# At most this many logits are alive at a time in the chunked parts (4 bytes each).
_CHUNK_ELEMENTS = 2**22


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

    Mean over ordered positive pairs (c, i) of ``-log(e^{s_ci} / sum_k e^{s_ck})`` with ``s`` the cosine divided by
    ``temperature`` and k over all rows but c, and all queue rows. Rows with one window id are positives of each
    other. Left out of the sum are rows and queue rows

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
    _check_matrix("z", z)
    _check_temperature(temperature)
    rows = z.shape[0]
    tags = {"language": language, "document": document, "text": text}
    for name, tag in {"window": window, **tags}.items():
        _check_tag(name, tag, rows)
    queue_tags = {"language": queue_language, "document": queue_document, "text": queue_text}
    if queue is not None:
        _check_queue(queue, z.shape[1], tags, queue_tags)

    with _without_autocast(z):
        z = F.normalize(_at_least_float32(z), dim=1) / temperature
        itself = torch.eye(rows, dtype=torch.bool, device=z.device)
        positives = (window[:, None] == window[None, :]) & ~itself
        negatives = _allowed(tags, tags, cross_language_negatives) & ~itself & ~positives
        queue_logsumexp = None
        if queue is not None and len(queue):
            queue_logsumexp = _QueueLogSumExp.apply(
                z, queue, tags, queue_tags, cross_language_negatives, queue_is_normalized
            )
        return _mean_over_positive_pairs(z @ z.T * temperature, positives, negatives, queue_logsumexp)


def info_nce_loss(x: Tensor, y: Tensor, *, temperature: float = 0.07, text: Tensor | None = None) -> Tensor:
    """Symmetric InfoNCE over all rows of both sides: Eq. 1-2 of ML-CTL, and L_sema (Eq. 2) of lang-contrastive.

    Mean over the 2N anchors of ``-log(e^{s+} / sum_k e^{s_k})``, with s the cosine divided by ``temperature`` and k
    over the positive and the other 2(N - 1) rows of x and of y.

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
    _check_pair(x, y)
    window = torch.arange(x.shape[0], device=x.device).repeat(2)
    z = torch.cat([x, y])
    return contrastive_context_loss(z, window, torch.zeros_like(window), temperature=temperature, text=text)


def chunked_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, *, chunk_size: int | None = None
) -> Tensor:
    """Mean cross-entropy of a vocabulary projection without ever holding all logits.

    Equals ``F.cross_entropy(F.linear(hidden, weight, bias).float(), labels)``; logits of ``chunk_size`` rows are
    computed at a time, and again in the backward pass. The matrix product runs in autocast's type where autocast
    is on, the logarithm of the sum in at least float32.

    Args:
        hidden: Vectors before the projection (M, d).
        weight: Projection (V, d), such as the tied input embeddings.
        bias: Bias (V,) or None.
        labels: Target rows of ``weight``, integers (M,).
        chunk_size: Rows at a time; by default as many as keep 4M logits alive.

    Returns:
        A scalar, at least float32; 0 (with a graph) for M = 0.

    Raises:
        ValueError: On shapes that do not fit, or labels outside of the vocabulary.

    Example:
        >>> hidden, weight = torch.zeros(3, 8), torch.zeros(100, 8)
        >>> round(chunked_cross_entropy(hidden, weight, None, torch.tensor([1, 2, 3])).item(), 4)   # log(100)
        4.6052
    """
    _check_matrix("hidden", hidden)
    _check_matrix("weight", weight)
    if hidden.shape[1] != weight.shape[1]:
        raise ValueError(f"hidden {tuple(hidden.shape)} and weight {tuple(weight.shape)} differ in their last axis")
    _check_tag("labels", labels, hidden.shape[0])
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must have shape ({weight.shape[0]},), got {tuple(bias.shape)}")
    if not len(labels):
        return _at_least_float32(hidden).sum() * 0
    if labels.min() < 0 or labels.max() >= weight.shape[0]:
        raise ValueError(f"labels must lie in [0, {weight.shape[0]}), got {int(labels.min())}..{int(labels.max())}")
    if chunk_size is None:
        chunk_size = max(1, _CHUNK_ELEMENTS // weight.shape[0])
    return _ChunkedCrossEntropy.apply(hidden, weight, bias, labels, chunk_size)


def _mean_over_positive_pairs(
    logits: Tensor, positives: Tensor, negatives: Tensor, queue_logsumexp: Tensor | None
) -> Tensor:
    anchor, positive = positives.nonzero(as_tuple=True)
    if not len(anchor):
        raise ValueError("no positive pair in the batch: no two rows share a window id")
    lowest = torch.finfo(logits.dtype).min / 4
    scores = logits[anchor, positive]
    others = logits.masked_fill(~(positives | negatives), lowest)
    if len(anchor) != len(logits) or not torch.equal(anchor, torch.arange(len(logits), device=anchor.device)):
        others = others[anchor]
    # The positive of this very pair stands in the numerator's place; the anchor's other positives stay below.
    others = others.scatter(1, positive[:, None], lowest)
    log_negatives = torch.logsumexp(others, dim=1)
    if queue_logsumexp is not None:
        log_negatives = torch.logaddexp(log_negatives, queue_logsumexp[anchor])
    return -F.logsigmoid(scores - log_negatives).mean()


def _allowed(
    tags: dict[str, Tensor | None], other_tags: dict[str, Tensor | None], cross_language: bool
) -> Tensor:
    """Which columns may be negatives of which rows, by language, document and text: boolean (rows, columns)."""
    language, other_language = tags["language"], other_tags["language"]
    assert language is not None and other_language is not None
    allowed = torch.ones(len(language), len(other_language), dtype=torch.bool, device=language.device)
    if not cross_language:
        allowed &= language[:, None] == other_language[None, :]
    for name in ("document", "text"):
        tag, other_tag = tags[name], other_tags[name]
        if tag is not None and other_tag is not None:
            allowed &= tag[:, None] != other_tag[None, :]
    return allowed


class _QueueLogSumExp(torch.autograd.Function):
    """logsumexp over the allowed keys of the queue, chunk by chunk, recomputed in the backward pass."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, queue: Tensor, tags: dict, queue_tags: dict, cross: bool, unit: bool) -> Tensor:
        result = z.new_full((len(z),), torch.finfo(z.dtype).min / 4)
        ctx.options = (tags, queue_tags, cross, unit)
        for logits, _, _ in _QueueLogSumExp.chunks(z, queue, *ctx.options):
            result = torch.logaddexp(result, torch.logsumexp(logits, dim=1))
        ctx.save_for_backward(z, queue, result)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:  # type: ignore[override]
        z, queue, result = ctx.saved_tensors
        grad_z = torch.zeros_like(z)
        for logits, keys, forbidden in _QueueLogSumExp.chunks(z, queue, *ctx.options):
            share = logits.sub_(result[:, None]).exp_().masked_fill_(forbidden, 0).mul_(grad[:, None])
            grad_z.addmm_(share, keys)
        return grad_z, None, None, None, None, None

    @staticmethod
    def chunks(z: Tensor, queue: Tensor, tags: dict, queue_tags: dict, cross: bool, unit: bool) -> Any:
        size = max(1, _CHUNK_ELEMENTS // len(z))
        for start in range(0, len(queue), size):
            keys = queue[start : start + size].to(z.dtype)
            if not unit:
                keys = F.normalize(keys, dim=1)
            chunk_tags = {k: None if v is None else v[start : start + size] for k, v in queue_tags.items()}
            forbidden = _allowed(tags, chunk_tags, cross).logical_not_()
            logits = (z @ keys.T).masked_fill_(forbidden, torch.finfo(z.dtype).min / 4)
            yield logits, keys, forbidden


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
        with _without_autocast(hidden):
            projection = weight.to(ctx.compute_dtype)
            total = hidden.new_zeros((), dtype=torch.promote_types(ctx.compute_dtype, torch.float32))
            for rows in _slices(len(labels), chunk_size):
                logits = _vocabulary_logits(hidden[rows], projection, bias)
                total += (torch.logsumexp(logits, 1) - logits.gather(1, labels[rows, None])[:, 0]).sum()
        return total / len(labels)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:  # type: ignore[override]
        hidden, weight, bias, labels = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        grad_hidden = torch.empty_like(hidden) if wanted[0] else None
        grad_weight = torch.zeros_like(weight) if wanted[1] else None
        grad_bias = torch.zeros_like(bias) if bias is not None and wanted[2] else None
        with _without_autocast(hidden):
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
    logits = _at_least_float32(hidden.to(projection.dtype) @ projection.T)
    return logits if bias is None else logits.add_(bias)


def _at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _without_autocast(x: Tensor) -> torch.autocast:
    return torch.autocast(device_type=x.device.type, enabled=False)


def _check_temperature(temperature: float) -> None:
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}")


def _check_matrix(name: str, x: Tensor) -> None:
    if x.ndim != 2:
        raise ValueError(f"{name} must have two axes (rows, features), got shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {x.dtype}")


def _check_pair(x: Tensor, y: Tensor) -> None:
    _check_matrix("x", x)
    _check_matrix("y", y)
    if x.shape != y.shape:
        raise ValueError(f"x and y must be row-aligned, got shapes {tuple(x.shape)} and {tuple(y.shape)}")


def _check_tag(name: str, tag: Tensor | None, rows: int) -> None:
    if tag is None:
        return
    if tag.shape != (rows,):
        raise ValueError(f"{name} must have shape ({rows},), one per row, got {tuple(tag.shape)}")
    if tag.is_floating_point():
        raise ValueError(f"{name} must hold integers, got {tag.dtype}")


def _check_queue(queue: Tensor, features: int, tags: dict, queue_tags: dict) -> None:
    _check_matrix("queue", queue)
    if queue.shape[1] != features:
        raise ValueError(f"queue has {queue.shape[1]} features and z has {features}")
    for name, tag in tags.items():
        if tag is not None and queue_tags[name] is None:
            raise ValueError(f"queue_{name} is needed: {name} is given and so is queue")
        if tag is not None:
            _check_tag(f"queue_{name}", queue_tags[name], len(queue))
