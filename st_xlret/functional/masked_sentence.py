"""The hierarchical contrastive loss of the masked sentence model (MSM)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from st_xlret.functional import checks
from st_xlret.functional.checks import (
    at_least_float32,
    check_pair,
    check_tag,
    check_temperature,
    lowest_logit,
    unit_rows,
    without_autocast,
)


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
    documents. (Eq. 1 does not show the temperature; the authors' program has it.) The bias `alpha_t` is the mean of
    the intra-document logits minus the mean of the cross-document logits, taken over the negatives in the sum, and
    no gradient flows through it. It is 0 if t has only one of the two kinds of negatives. A row without any negative
    contributes 0.

    At most 4M logits exist at a time. They are computed again in the backward pass.

    Args:
        p: Projected predictions of the masked sentences (S, d). They need not have unit length.
        h: Projected vectors of the sentences themselves (S, d).
        document: Document id of each row, integers (S,).
        mu: Fraction of the bias that is subtracted from the intra-document logits; 0 turns the bias off.
        temperature: Divisor of the cosines.
        num_negatives: Number of cross-document negatives to draw for each row, without replacement; None for all.
        generator: Random generator for the draw, on the device of `p`. Default: torch's global generator.
        intra_document_negatives: Use the other sentences of t's document as negatives.
        predicted: Which rows to predict, boolean (S,). The others are negatives only and their p is not read. None
            for all rows.
        language: Language id of each row, integers (S,). Sentences of other languages are not negatives.
        text: Text id of each row, integers (S,). Sentences with t's own text are not negatives.

    Returns:
        A scalar, at least float32.

    Raises:
        ValueError: If shapes do not fit, the temperature is not positive, `mu` is negative, `num_negatives` is below
            1, or there is no row to predict.

    Example:
        >>> h = torch.eye(4)                                    # two documents of two sentences
        >>> loss = masked_sentence_loss(h, h, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 6)                               # log(1 + 3 e^-10)
        0.000136
    """
    check_pair(p=p, h=h)
    check_temperature(temperature)
    for name, tag in {"document": document, "language": language, "text": text}.items():
        check_tag(name, tag, len(p))
    if mu < 0:
        raise ValueError(f"mu must not be negative, got {mu}")
    if num_negatives is not None and num_negatives < 1:
        raise ValueError(f"num_negatives must be at least 1, or None for all, got {num_negatives}")
    if predicted is not None and (predicted.shape != (len(p),) or predicted.dtype != torch.bool):
        raise ValueError(
            f"predicted must be boolean of shape ({len(p)},), got {predicted.dtype} of {tuple(predicted.shape)}"
        )
    anchors = torch.arange(len(p), device=p.device) if predicted is None else predicted.nonzero()[:, 0]
    if not len(anchors):
        raise ValueError(f"none of the {len(p)} rows is to be predicted")
    negatives = _Negatives(
        document,
        language,
        text,
        mu=mu,
        drawn=num_negatives,
        generator=generator,
        intra=intra_document_negatives,
    )
    with without_autocast(p):
        p, h = unit_rows(at_least_float32(p)[anchors]) / temperature, unit_rows(at_least_float32(h))
        total = p.new_zeros(())
        size = max(1, checks.CHUNK_ELEMENTS // len(h))
        for part, rows in zip(p.split(size), anchors.split(size), strict=True):
            drawn = negatives.draw(rows)
            total = total + checkpoint(_sum_of_terms, part, h, rows, drawn, negatives, use_reentrant=False)
        return total / len(p)


def _sum_of_terms(p: Tensor, h: Tensor, rows: Tensor, cross: Tensor, negatives: _Negatives) -> Tensor:
    logits = p @ h.T
    log_others = negatives.apply_to(logits, rows, cross).logsumexp(dim=1)
    return -F.logsigmoid(logits.gather(1, rows[:, None])[:, 0] - log_others).sum()


@dataclass
class _Negatives:
    """Which rows are negatives of which, and how their logits are shifted."""

    document: Tensor
    language: Tensor | None
    text: Tensor | None
    mu: float
    drawn: int | None
    generator: torch.Generator | None
    intra: bool

    def draw(self, anchors: Tensor) -> Tensor:
        """The cross-document negatives of some anchors, boolean (anchors, rows)."""
        cross = self._others(anchors) & (self.document[anchors, None] != self.document)
        if self.language is not None:
            cross &= self.language[anchors, None] == self.language
        if self.drawn is None or int(cross.sum(1).max()) <= self.drawn:
            return cross
        # The largest of random numbers: a draw without replacement. Other rows get one below them all.
        draw = torch.rand(cross.shape, generator=self.generator, device=cross.device).masked_fill_(~cross, -1.0)
        chosen = torch.zeros_like(cross).scatter_(1, draw.topk(self.drawn, dim=1).indices, True)
        return cross & chosen

    def apply_to(self, logits: Tensor, anchors: Tensor, cross: Tensor) -> Tensor:
        """Logits of anchors, shifted where a bias is due, and with those of non-negatives masked."""
        negatives = cross
        if self.intra:
            intra = self._others(anchors) & (self.document[anchors, None] == self.document)
            negatives = cross | intra
            if self.mu:
                given = logits.detach()
                bias = (_mean(given, intra) - _mean(given, cross)) * (intra.any(1) & cross.any(1))
                logits = logits - self.mu * bias[:, None] * intra
        return logits.masked_fill(~negatives, lowest_logit(logits))

    def _others(self, anchors: Tensor) -> Tensor:
        others = anchors[:, None] != torch.arange(len(self.document), device=anchors.device)
        return others if self.text is None else others & (self.text[anchors, None] != self.text)


def _mean(logits: Tensor, chosen: Tensor) -> Tensor:
    return (logits * chosen).sum(1) / chosen.sum(1).clamp(min=1)
