"""The hierarchical contrastive loss of the masked sentence model (MSM)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from st_xlret.functional.tensors import CHUNK, LOWEST, check_matrices, check_tags, unit_rows


def masked_sentence_loss(
    p: Tensor,
    h: Tensor,
    document: Tensor,
    *,
    mu: float = 0.5,
    temperature: float = 0.1,
    num_negatives: int | None = None,
    generator: torch.Generator | None = None,
    intra_document_negatives: bool = True,
    predicted: Tensor | None = None,
    language: Tensor | None = None,
    text: Tensor | None = None,
) -> Tensor:
    """Hierarchical contrastive loss for masked sentence prediction (MSM, Zhang et al. 2023, Eq. 1-2).

    The loss is the mean over rows t of
    `-log(e^{s_tt} / (e^{s_tt} + sum_j e^{s_tj - mu alpha_t} + sum_k e^{s_tk}))`, where s_tj is the cosine of p_t and
    h_j divided by `temperature`, j runs over the other sentences of t's document and k over sentences of other
    documents. The bias `alpha_t` is the mean of the intra-document logits minus the mean of the cross-document logits,
    taken over the negatives in the sum, without a gradient. It is 0 if t has only one of the two kinds. A row without
    any negative contributes 0. Logits are computed in chunks, and again in the backward pass.

    Args:
        p: Projected predictions of the masked sentences (S, d). They need not have unit length.
        h: Projected vectors of the sentences themselves (S, d).
        document: Document id of each row, integers (S,).
        mu: Fraction of the bias that is subtracted from the intra-document logits; 0 turns the bias off.
        temperature: Divisor of the cosines. Eq. 1 shows none; the authors' program has it.
        num_negatives: Number of cross-document negatives to draw for each row, without replacement; None for all.
        generator: Random generator for the draw, on the device of `p`. Default: torch's global generator.
        intra_document_negatives: Use the other sentences of t's document as negatives.
        predicted: Which rows to predict, boolean (S,). The others are negatives only. None for all rows.
        language: Language id of each row, integers (S,). Sentences of other languages are not negatives.
        text: Text id of each row, integers (S,). Sentences with t's own text are not negatives.

    Example:
        >>> h = torch.eye(4)                                    # two documents of two sentences
        >>> loss = masked_sentence_loss(h, h, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 6)                               # log(1 + 3 e^-10)
        0.000136
    """
    check_matrices(len(p), temperature, p=p, h=h)
    check_tags(len(p), document=document, language=language, text=text, predicted=predicted)
    anchors = torch.arange(len(p), device=p.device) if predicted is None else predicted.nonzero()[:, 0]
    if not len(anchors) or mu < 0 or (num_negatives is not None and num_negatives < 1):
        got = f"got {len(anchors)} of {len(p)} rows, mu={mu}, num_negatives={num_negatives}"
        raise ValueError(f"there must be a row to predict, mu >= 0 and num_negatives >= 1, or None for all: {got}")

    def negatives(rows: Tensor) -> tuple[Tensor, Tensor]:
        """The negatives of some rows from their own documents, and those drawn from others, boolean (rows, S)."""
        others = rows[:, None] != torch.arange(len(h), device=h.device)
        if text is not None:
            others &= text[rows, None] != text
        same = document[rows, None] == document
        cross = others & ~same
        if language is not None:
            cross &= language[rows, None] == language
        if num_negatives is not None and int(cross.sum(1).max()) > num_negatives:
            # The largest of random numbers: a draw without replacement. Other rows get one below them all.
            draw = torch.rand(cross.shape, generator=generator, device=cross.device).masked_fill_(~cross, -1.0)
            cross &= torch.zeros_like(cross).scatter_(1, draw.topk(num_negatives, dim=1).indices, True)
        return others & same & intra_document_negatives, cross

    def sum_of_terms(p: Tensor, h: Tensor, rows: Tensor, intra: Tensor, cross: Tensor) -> Tensor:
        logits = p @ h.T
        constant = logits.detach()
        alpha = (_mean(constant, intra) - _mean(constant, cross)) * (intra.any(1) & cross.any(1))
        shifted = logits - mu * alpha[:, None] * intra
        log_others = shifted.masked_fill(~(intra | cross), LOWEST).logsumexp(dim=1)
        return -F.logsigmoid(logits.gather(1, rows[:, None])[:, 0] - log_others).sum()

    with torch.autocast(p.device.type, enabled=False):
        p, h = unit_rows(p[anchors]) / temperature, unit_rows(h)
        total, size = p.new_zeros(()), max(1, CHUNK // len(h))
        for part, rows in zip(p.split(size), anchors.split(size), strict=True):
            # The negatives are drawn outside of the checkpoint: inside, the backward pass would draw others.
            total = total + checkpoint(sum_of_terms, part, h, rows, *negatives(rows), use_reentrant=False)
        return total / len(p)


def _mean(logits: Tensor, columns: Tensor) -> Tensor:
    return (logits * columns).sum(1) / columns.sum(1).clamp(min=1)
