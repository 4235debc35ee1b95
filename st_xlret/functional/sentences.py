"""Masked sentence prediction (MSM): against sentences of the same and of other documents."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from st_xlret.functional.tensors import (
    LOWEST,
    check_integers_per_row,
    check_matrices,
    mean_where,
    normalize_rows,
    rows_at_once,
)

__all__ = ["masked_sentence_loss"]


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
    """Hierarchical contrastive loss for masked sentences (MSM, Zhang et al. 2023, Eq. 1-2).

    The loss is the mean over rows t of
    `-log(e^{s_tt} / (e^{s_tt} + sum_j e^{s_tj - mu alpha_t} + sum_k e^{s_tk}))`, where s_tj is the
    cosine of p_t and h_j divided by `temperature`, j runs over the other sentences of t's document
    and k over those of other documents. The bias `alpha_t`, without a gradient, is the mean of the
    first kind of logits minus that of the second, and 0 if t has only one kind. A row without
    negatives contributes 0. Logits are computed in chunks, and again backwards. A `ValueError`
    refuses a batch of which nothing is predicted.

    Args:
        p: Projected predictions of the masked sentences (S, d). They need not have unit length.
        h: Projected vectors of the sentences themselves (S, d).
        document: Document id of each row, integers (S,).
        mu: Fraction of the bias that is subtracted from the intra-document logits; 0 turns the bias
            off.
        temperature: Divisor of the cosines. Eq. 1 shows none; the authors' program has it.
        num_negatives: Number of cross-document negatives to draw for each row, without replacement;
            None for all.
        generator: Random generator for the draw, on the device of `p`. Default: torch's global
            generator.
        intra_document_negatives: Use the other sentences of t's document as negatives.
        predicted: Which rows to predict, boolean (S,). The others are negatives only. None for all
            rows.
        language: Language id of each row, integers (S,). Sentences of other languages are not
            negatives.
        text: Text id of each row, integers (S,). Sentences with t's own text are not negatives.

    Example:
        >>> h = torch.eye(4)                                    # two documents of two sentences
        >>> loss = masked_sentence_loss(h, h, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 6)                               # log(1 + 3 e^-10)
        0.000136
    """
    rows = len(p)
    check_matrices(rows, temperature, p=p, h=h)
    check_integers_per_row(
        rows, document=document, language=language, text=text, predicted=predicted
    )
    anchors = torch.arange(rows, device=p.device)
    if predicted is not None:
        anchors = predicted.nonzero()[:, 0]
    check_matrices(len(anchors), predicted=p[anchors])
    if mu < 0 or (num_negatives is not None and num_negatives < 1):
        raise ValueError(
            "mu must be 0 or more, and num_negatives 1 or more, or None: "
            f"got {mu} and {num_negatives}"
        )
    negatives = _Negatives(
        document, language, text, intra_document_negatives, num_negatives, generator
    )
    with torch.autocast(p.device.type, enabled=False):
        p = normalize_rows(p[anchors]) / temperature
        h = normalize_rows(h)
        total = p.new_zeros(())
        size = rows_at_once(len(h))
        for part, numbers in zip(p.split(size), anchors.split(size), strict=True):
            # Drawn outside of the checkpoint: inside, the backward pass would draw others.
            intra, cross = negatives.draw(numbers)
            total = total + checkpoint(
                _sum_of_row_losses, part, h, numbers, intra, cross, mu, use_reentrant=False
            )
        return total / len(p)


@dataclass(frozen=True)
class _Negatives:
    """The tags of all rows (S,), and which rows are negatives of others."""

    document: Tensor
    language: Tensor | None
    text: Tensor | None
    intra_document: bool
    number: int | None
    generator: torch.Generator | None

    def draw(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The negatives of some rows from their own documents, and those drawn from others.

        Both are boolean (rows, S). Each call draws further numbers: the loss calls it once for each
        part of the rows, in their order.
        """
        others = rows[:, None] != torch.arange(len(self.document), device=rows.device)
        if self.text is not None:
            others &= self.text[rows, None] != self.text
        same_document = self.document[rows, None] == self.document
        cross = others & ~same_document
        if self.language is not None:
            cross &= self.language[rows, None] == self.language
        if self.number is not None and int(cross.sum(1).max()) > self.number:
            cross &= self._draw_of_possible(cross, self.number)
        if self.intra_document:
            intra = others & same_document
        else:
            intra = torch.zeros_like(others)
        return intra, cross

    def _draw_of_possible(self, possible: Tensor, number: int) -> Tensor:
        """Some of the possible ones of each row, or all and others where there are fewer.

        The largest of random numbers are a draw without replacement.
        """
        draw = torch.rand(possible.shape, generator=self.generator, device=possible.device)
        largest = draw.masked_fill_(~possible, -1.0).topk(number, dim=1).indices
        return torch.zeros_like(possible).scatter_(1, largest, True)


def _sum_of_row_losses(
    p: Tensor, h: Tensor, rows: Tensor, intra: Tensor, cross: Tensor, mu: float
) -> Tensor:
    """The sum of the losses of n rows; their bias is a constant shift, of detached logits.

    `p` (n, d) is of these `rows`, `h` (S, d) of all; `intra` and `cross` (n, S) say which are
    negatives.
    """
    logits = p @ h.T
    constant = logits.detach()
    alpha = mean_where(constant, intra) - mean_where(constant, cross)
    alpha = alpha * (intra.any(1) & cross.any(1))
    shifted = logits - mu * alpha[:, None] * intra
    log_others = shifted.masked_fill(~(intra | cross), LOWEST).logsumexp(dim=1)
    own = logits.gather(1, rows[:, None])[:, 0]
    return -F.logsigmoid(own - log_others).sum()
