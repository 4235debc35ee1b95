"""The document encoder of the masked sentence model (MSM), which predicts each sentence from its document."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class DocumentEncoder(nn.Module):
    """Predicts each sentence of a document from the others (MSM, Zhang et al. 2023, section 3.1).

    It is a small Transformer over sentence vectors, built and initialised as BERT is. A document of D sentences is run
    D times, with sentence t replaced by one learned vector in copy t, and the prediction p_t is read at position t.
    Documents of similar length are run a few at a time, and again in the backward pass (checkpointing). Without
    gradients (evaluation) there is no dropout. Inputs are converted to the type of the weights.

    Args:
        features: Size of the sentence vectors.
        layers: Number of layers. The paper uses 2 and tries 1 to 6.
        heads: Attention heads. Default: one per 64 features, or the next smaller number that divides `features`.
        feedforward: Size inside the feed-forward parts. Default: `4 * features`.
        max_sentences: Maximum number of sentences of a document; positions are learned.
        dropout: Dropout probability, also of attention weights.
        rows_at_once: Maximum number of rows of copies at a time, of about `4 * 32 * features` bytes with two layers.

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
        self.max_sentences, self.rows_at_once = max_sentences, rows_at_once
        self.mask_vector = nn.Parameter(torch.empty(features))
        self.positions = nn.Embedding(max_sentences, features)
        self.norm = nn.LayerNorm(features)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(features, heads, feedforward or 4 * features, dropout, "gelu", batch_first=True)
            for _ in range(layers)
        )
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1 or name == "mask_vector":
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, sentences: Tensor, mask: Tensor) -> Tensor:
        """Predict every sentence (documents, places, features) from the others of its document: zero at padding.

        The mask (documents, places) is True at sentences and False at padding behind them.
        """
        lengths: list[int] = mask.sum(dim=1).tolist()
        if self.training and not torch.is_grad_enabled():
            self.eval()
            try:
                return self.forward(sentences, mask)
            finally:
                self.train()
        sentences = sentences.to(self.mask_vector.dtype)
        predictions = sentences * 0  # part of the graph, also where there is nothing to predict
        groups = self._groups_by_length(lengths)
        for documents, places in groups:
            group = sentences[documents, :places], mask[documents, :places]
            if len(groups) > 1 and torch.is_grad_enabled():
                predicted = checkpoint(self._predict, *group, use_reentrant=False)
            else:
                predicted = self._predict(*group)
            predictions[documents, :places] = predicted.to(predictions.dtype)
        return predictions

    def _groups_by_length(self, lengths: list[int]) -> list[tuple[list[int], int]]:
        """Documents to run together and the length of the longest: unsorted ones take four times as long."""
        groups: list[tuple[list[int], int]] = []
        for document in sorted((d for d, length in enumerate(lengths) if length), key=lambda d: -lengths[d]):
            if groups and (len(groups[-1][0]) + 1) * groups[-1][1] ** 2 <= self.rows_at_once:
                groups[-1][0].append(document)
            else:
                groups.append(([document], lengths[document]))
        return groups

    def _predict(self, sentences: Tensor, mask: Tensor) -> Tensor:
        """Map sentences of documents (documents, places, features) to predictions of the same shape."""
        places = sentences.shape[1]
        itself = torch.eye(places, dtype=torch.bool, device=mask.device)[..., None]
        copies = torch.where(itself, self.mask_vector, sentences[:, None]) + self.positions.weight[:places]
        rows, padding = self.dropout(self.norm(copies)).flatten(0, 1), ~mask.repeat_interleave(places, 0)
        layers: list[Any] = list(self.layers)
        for layer in layers[:-1]:
            rows = layer(rows, src_key_padding_mask=padding)
        # Of the last layer's rows only row t of copy t is read, so that only those are computed.
        last = layers[-1]
        x = rows.view(copies.shape).diagonal(dim1=1, dim2=2).mT.flatten(0, 1)[:, None]
        attended, _ = last.self_attn(x, rows, rows, key_padding_mask=padding, need_weights=False)
        x = last.norm1(x + last.dropout1(attended))
        x = last.norm2(x + last.dropout2(last.linear2(last.dropout(F.gelu(last.linear1(x))))))
        return x.view(sentences.shape) * mask[..., None]
