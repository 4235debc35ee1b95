"""The document encoder of the masked sentence model (MSM), which predicts each sentence from its document."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class DocumentEncoder(nn.Module):
    """Predicts each sentence of a document from the others (MSM, Zhang et al. 2023, section 3.1).

    It is a small Transformer over sentence vectors. A document of D sentences is run D times, with sentence t replaced
    by one learned vector in copy t, and the prediction p_t is read at position t. All copies run in one pass. Documents
    are sorted by length and run a few at a time, so that at most `rows_at_once` of their D x D rows exist at a time. If
    this takes several passes, each is run again in the backward pass (checkpointing).

    Layers, normalisation (after each part), GELU and initial weights are those of BERT and XLM-R. Without gradients
    (evaluation) there is no dropout: the host leaves `training` on while it evaluates a loss. Inputs are converted to
    the type of the weights.

    Args:
        features: Size of the sentence vectors.
        layers: Number of layers. The paper uses 2 and tries 1 to 6.
        heads: Attention heads. Default: one per 64 features, or the next smaller number that divides `features`.
        feedforward: Size inside the feed-forward parts. Default: `4 * features`.
        max_sentences: Maximum number of sentences of a document; positions are learned.
        dropout: Dropout probability, also of attention weights.
        rows_at_once: Maximum number of rows of the copies that exist at a time. Larger values are faster on a large
            device and take about `4 * 32 * features` bytes per row with two layers, and `4 * 26 * features` more with
            each further one.

    Raises:
        ValueError: If a number is below 1, or `heads` does not divide `features`.

    Example:
        >>> encoder = DocumentEncoder(16, max_sentences=4)
        >>> sentences = torch.tensor([[True, True, True], [True, True, False]])      # the second has two
        >>> tuple(encoder(torch.randn(2, 3, 16), sentences).shape)
        (2, 3, 16)
    """

    def __init__(
        self,
        features: int,
        layers: int = 2,
        heads: int | None = None,
        feedforward: int | None = None,
        *,
        max_sentences: int = 32,
        dropout: float = 0.1,
        rows_at_once: int = 4096,
    ) -> None:
        super().__init__()
        if heads is None:
            heads = next(n for n in range(max(1, features // 64), 0, -1) if features % n == 0)
        feedforward = 4 * features if feedforward is None else feedforward
        numbers = {"features": features, "layers": layers, "heads": heads, "feedforward": feedforward}
        for name, number in {**numbers, "max_sentences": max_sentences, "rows_at_once": rows_at_once}.items():
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        if features % heads:
            raise ValueError(f"heads must divide features: {features} features, {heads} heads")
        self.features, self.heads, self.max_sentences, self.rows_at_once = features, heads, max_sentences, rows_at_once
        self.mask_vector = nn.Parameter(torch.empty(features))
        self.positions = nn.Embedding(max_sentences, features)
        self.norm = nn.LayerNorm(features)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(features, heads, feedforward, dropout, "gelu", batch_first=True)
            for _ in range(layers)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1 or name == "mask_vector":
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, sentences: Tensor, mask: Tensor) -> Tensor:
        """Predict every sentence from the others of its document.

        Args:
            sentences: Sentence vectors of documents, in order (documents, places, features).
            mask: True at sentences, False at padding (documents, places).

        Returns:
            p_t at each sentence t and zero at padding (documents, places, features).

        Raises:
            ValueError: If shapes do not fit, or a document has more sentences than `max_sentences`.
        """
        if sentences.ndim != 3 or sentences.shape[2] != self.features:
            raise ValueError(f"sentences must be (documents, places, {self.features}), got {tuple(sentences.shape)}")
        if mask.shape != sentences.shape[:2] or mask.dtype != torch.bool:
            raise ValueError(f"mask must be boolean of shape {tuple(sentences.shape[:2])}, got {tuple(mask.shape)}")
        ends: list[int] = []
        if mask.numel():
            ends = (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1).tolist()
        if max(ends, default=0) > self.max_sentences:
            raise ValueError(
                f"a document of {max(ends)} sentences is longer than max_sentences={self.max_sentences}: "
                "split it, or give the encoder more positions"
            )
        if self.training and not torch.is_grad_enabled():
            self.eval()
            try:
                return self.forward(sentences, mask)
            finally:
                self.train()
        sentences = sentences.to(self.mask_vector.dtype)
        groups = self._groups(ends)
        predictions = []
        for documents, places in groups:
            given = sentences[documents, :places], mask[documents, :places]
            if len(groups) > 1 and torch.is_grad_enabled():
                predicted = checkpoint(self._predict, *given, use_reentrant=False)
            else:
                predicted = self._predict(*given)
            predictions.append(F.pad(predicted, (0, 0, 0, mask.shape[1] - places)))
        if not groups:
            return sentences * 0
        order = torch.tensor([document for documents, _ in groups for document in documents], device=mask.device)
        stacked = torch.cat(predictions)
        return stacked.new_zeros(sentences.shape).index_copy(0, order, stacked)

    def _groups(self, ends: list[int]) -> list[tuple[list[int], int]]:
        """Documents to run together and the length of the longest; empty documents are left out."""
        groups: list[tuple[list[int], int]] = []
        for document in sorted(range(len(ends)), key=lambda d: -ends[d]):
            if not ends[document]:
                continue
            if groups and (len(groups[-1][0]) + 1) * groups[-1][1] ** 2 <= self.rows_at_once:
                groups[-1][0].append(document)
            else:
                groups.append(([document], ends[document]))
        return groups

    def _predict(self, sentences: Tensor, mask: Tensor) -> Tensor:
        """Map sentences of documents (documents, places, features) to predictions of the same shape."""
        itself = torch.eye(sentences.shape[1], dtype=torch.bool, device=mask.device)[..., None]
        copies = torch.where(itself, self.mask_vector, sentences[:, None]) + self.positions.weight[: sentences.shape[1]]
        rows = self.dropout(self.norm(copies)).flatten(0, 1)
        padding = ~mask.repeat_interleave(sentences.shape[1], 0)
        layers: list[Any] = list(self.layers)
        *others, last = layers
        for layer in others:
            rows = layer(rows, src_key_padding_mask=padding)
        # Of the last layer's rows only row t of copy t is read.
        x = rows.view(copies.shape).diagonal(dim1=1, dim2=2).mT.flatten(0, 1)[:, None]
        attended, _ = last.self_attn(x, rows, rows, key_padding_mask=padding, need_weights=False)
        x = last.norm1(x + last.dropout1(attended))
        x = last.norm2(x + last.dropout2(last.linear2(last.dropout(F.gelu(last.linear1(x))))))
        return x.view(sentences.shape) * mask[..., None]
