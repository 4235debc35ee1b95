"""Contrastive context prediction (CCP): windows of text against rows and the keys of a queue."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from st_xlret.functional.tensors import (
    LOWEST,
    at_least_float32,
    check_integers_per_row,
    check_matrices,
    normalize_rows,
    rows_at_once,
)

__all__ = ["contrastive_context_loss"]

Compared: TypeAlias = Literal["language", "document", "text"]
"""What rows are compared by: negatives have the same language, other documents and texts."""
Ids: TypeAlias = Mapping[Compared, "Tensor | None"]
"""The ids of each row; None where they are not compared."""


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

    The loss is the mean over ordered positive pairs (c, i) of `-log(e^{s_ci} / sum_k e^{s_ck})`,
    where s is the cosine divided by `temperature` and k runs over all rows but c, and over all keys
    of the queue. Rows of one window are positives of each other. Rows and keys of another language
    than c's are left out of the sum, and those of c's document and text, where these are given;
    positives of c never are. A row without a positive is a negative only; a batch without any is a
    `ValueError`.

    Args:
        z: Projected sentence vectors, shape (B, d). They need not have unit length.
        window: Window id of each row, integers (B,).
        language: Language id of each row, integers (B,).
        temperature: Divisor of the cosines.
        document: Document id of each row, integers (B,).
        queue: Keys of earlier batches (Q, d), which get no gradient.
        queue_language: Language id of each key (Q,). Required with `queue`, unless
            `cross_language_negatives` is set.
        queue_document: Document id of each key (Q,). Required with `queue` if `document` is given.
        cross_language_negatives: Keep rows and keys of other languages, which teach the encoder to
            identify languages.
        text: Text id of each row, integers (B,).
        queue_text: Text id of each key (Q,). Required with `queue` if `text` is given.
        queue_is_normalized: Whether the keys already have unit length, which saves one pass over
            them.
        normalize: Whether s is the cosine; if off, the inner product (the ablation of Table 5).

    Example:
        >>> z = torch.eye(4).repeat_interleave(2, 0)            # four windows of two equal rows
        >>> window = torch.arange(4).repeat_interleave(2)
        >>> loss = contrastive_context_loss(z, window, torch.zeros(8, dtype=torch.long))
        >>> round(loss.item(), 6)                               # log(1 + 6 e^-10)
        0.000272
    """
    check_matrices(None, temperature, z=z, queue=queue)
    check_integers_per_row(len(z), window=window, language=language, document=document, text=text)
    compared_language = None if cross_language_negatives else language
    ids: Ids = {"language": compared_language, "document": document, "text": text}
    with torch.autocast(z.device.type, enabled=False):
        z = normalize_rows(z) if normalize else at_least_float32(z)
        anchor, positive, others = _pairs_and_others(window, ids)
        logits = z @ z.T / temperature
        log_others = logits[anchor].masked_fill(~others, LOWEST).logsumexp(dim=1)
        if queue is not None and len(queue):
            key_ids: Ids = {
                "language": queue_language,
                "document": queue_document,
                "text": queue_text,
            }
            _check_key_ids(len(queue), ids, key_ids)
            keys = queue.detach().to(z)
            if normalize and not queue_is_normalized:
                keys = normalize_rows(keys)
            log_keys: Tensor = _LogSumExpOfKeys.apply(z / temperature, keys, ids, key_ids)
            log_others = torch.logaddexp(log_others, log_keys[anchor])
        return -F.logsigmoid(logits[anchor, positive] - log_others).mean()


def _pairs_and_others(window: Tensor, ids: Ids) -> tuple[Tensor, Tensor, Tensor]:
    """Both rows (pairs,) of each positive pair, and the rows that compete with it, (pairs, B).

    The last is boolean. The positive's own term never enters the sum, and log-sigmoid does the
    rest: in 16 bits, the difference of two large numbers would have no gradient once the positive
    wins. A `ValueError` says that there is no positive pair.
    """
    itself = torch.eye(len(window), dtype=torch.bool, device=window.device)
    positives = (window[:, None] == window) & ~itself
    anchor, positive = positives.nonzero(as_tuple=True)
    if not len(anchor):
        raise ValueError("no positive pair in the batch: no two rows share a window id")
    others = (_may_be_negatives(ids, ids, itself) | positives) & ~itself
    others_of_pairs = others[anchor].scatter(1, positive[:, None], False)
    return anchor, positive, others_of_pairs


def _check_key_ids(keys: int, ids: Ids, key_ids: Ids) -> None:
    """Refuse keys without an id that rows are compared by."""
    needed = [f"queue_{name}" for name, of_rows in ids.items() if of_rows is not None]
    named = {f"queue_{name}": of_keys for name, of_keys in key_ids.items()}
    check_integers_per_row(keys, needed, **named)


def _may_be_negatives(ids: Ids, other_ids: Ids, like: Tensor) -> Tensor:
    """Which columns may be negatives of which rows, boolean, of the shape of `like`.

    They are of the same language, and of another document and text.
    """
    allowed = torch.ones(like.shape, dtype=torch.bool, device=like.device)
    for name, of_rows in ids.items():
        if of_rows is None:
            continue
        equal = of_rows[:, None] == other_ids[name]
        if name == "language":
            allowed &= equal
        else:
            allowed &= ~equal
    return allowed


class _LogSumExpOfKeys(torch.autograd.Function):
    """Each row's logsumexp over its negatives among the keys, chunk by chunk.

    Its gradient, the mean of the keys weighted by their softmax, is made in the same pass: keys may
    be replaced later.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, keys: Tensor, ids: Ids, key_ids: Ids) -> Tensor:
        """The logsumexps (B,) of `z` (B, d), which has the temperature in it, and `keys` (Q, d)."""
        result = z.new_full((len(z),), LOWEST)
        mean_key = torch.zeros_like(z)
        size = rows_at_once(len(z))
        for start in range(0, len(keys), size):
            part = slice(start, start + size)
            logits = z @ keys[part].T
            forbidden = ~_may_be_negatives(ids, _ids_of_rows(key_ids, part), logits)
            logits.masked_fill_(forbidden, LOWEST)
            before = result
            result = torch.logaddexp(before, logits.logsumexp(dim=1))
            weight = logits.sub_(result[:, None]).exp_().masked_fill_(forbidden, 0)
            share_of_before = (before - result).exp_()
            mean_key.mul_(share_of_before[:, None]).addmm_(weight, keys[part])
        ctx.save_for_backward(mean_key)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (mean_key,) = ctx.saved_tensors
        return mean_key * grad[:, None], None, None, None


def _ids_of_rows(ids: Ids, rows: slice) -> Ids:
    """The ids of some rows, as views."""
    selected: dict[Compared, Tensor | None] = {}
    for name, of_all in ids.items():
        selected[name] = None if of_all is None else of_all[rows]
    return selected
