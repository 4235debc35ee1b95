"""The document encoder of the masked sentence model (MSM), which predicts each sentence from its document."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class DocumentEncoder(nn.Module):
    """Predicts each sentence of a document from the others (MSM, Zhang et al. 2023, section 3.1).

    It is a small Transformer over sentence vectors. A document of D sentences is run D times, with sentence t replaced
    by one learned vector in copy t, and the prediction p_t is read at position t. All copies run in one pass and share
    computation. Values and gradients stay the same up to rounding and the random numbers of dropout:

    - The copies differ in one row only when they enter the first layer. Its queries, keys and values are computed for
      D sentences and D masked places instead of D x D rows, and the D x D x D attention weights choose among them.
    - The output of the last layer is needed at t only. Its keys and values are not computed at all: the query is
      multiplied into the key's matrix, and the value's matrix is applied after the rows are averaged.
    - D x D rows remain after the first layer's attention. Its feed-forward part runs on all of them, and on D with one
      layer alone. Layers between the first and the last run on all rows.
    - Documents are sorted by length and run a few at a time, so that at most `rows_at_once` of those rows exist at a
      time. If this takes several passes, each is run again in the backward pass (checkpointing).

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
            device and take about `4 * 20 * features` bytes per row.

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
        """Map sentences of documents (documents G, places D, features) to predictions of the same shape."""
        positions = self.positions.weight[: sentences.shape[1]]
        x = self.dropout(self.norm(sentences + positions))
        masked = self.dropout(self.norm((self.mask_vector + positions).expand_as(x)))
        layers: list[Any] = list(self.layers)
        first, *others = layers
        attended = self._first_attention(first, x, masked, mask)
        if not others:
            at_t = attended.diagonal(dim1=1, dim2=2).transpose(1, 2)
            return self._finish(first, masked, at_t) * mask[..., None]
        itself = torch.eye(sentences.shape[1], dtype=torch.bool, device=mask.device)[..., None]
        rows = torch.where(itself, masked[:, :, None], x[:, None])
        rows = self._finish(first, rows, attended)
        *between, last = others
        if between:
            padding = ~mask[:, None].expand(rows.shape[:3]).flatten(0, 1)
            copies = rows.flatten(0, 1)
            for layer in between:
                copies = layer(copies, src_key_padding_mask=padding)
            rows = copies.unflatten(0, rows.shape[:2])
        queries = rows.diagonal(dim1=1, dim2=2).transpose(1, 2)
        return self._finish(last, queries, self._last_attention(last, queries, rows, mask)) * mask[..., None]

    def _finish(self, layer: Any, x: Tensor, attended: Tensor) -> Tensor:
        """Apply what follows the attention of a layer: residual sums, normalisations and the feed-forward part."""
        x = layer.norm1(x + layer.dropout1(layer.self_attn.out_proj(attended)))
        hidden = layer.dropout(F.gelu(layer.linear1(x)))
        return layer.norm2(x + layer.dropout2(layer.linear2(hidden)))

    def _first_attention(self, layer: Any, x: Tensor, masked: Tensor, mask: Tensor) -> Tensor:
        """Attention of every row j of every copy t, (G, t, j, features), from both kinds of rows (G, D, features)."""
        q, k, v = self._heads_of(layer, x)
        q_masked, k_masked, v_masked = self._heads_of(layer, masked)
        places = x.shape[1]
        itself = torch.eye(places, dtype=torch.bool, device=x.device)
        # logits[g, head, t, j, i] of query j and key i; in copy t both query t and key t are the masked ones.
        logits = (q @ k.mT)[:, :, None].where(~itself[:, None], (q @ k_masked.mT).mT[..., None])
        at_t = (q_masked @ k.mT).where(~itself, (q_masked * k_masked).sum(-1, keepdim=True))
        logits = logits.where(~itself[..., None], at_t[:, :, :, None])
        weights = self._weights(layer, logits, mask[:, None, None, None])
        weight_of_t = weights.diagonal(dim1=2, dim2=4).mT  # (G, head, t, j)
        unmasked = weights.masked_fill(itself[:, None], 0.0)
        attended = (unmasked.flatten(2, 3) @ v).unflatten(2, (places, places))
        attended = attended + weight_of_t[..., None] * v_masked[:, :, :, None]
        return attended.permute(0, 2, 3, 1, 4).flatten(3)

    def _last_attention(self, layer: Any, queries: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        """Attention of row t of each copy t, (G, t, features), over that copy's rows (G, t, j, features)."""
        attention = layer.self_attn
        q_weight, k_weight, v_weight = attention.in_proj_weight.chunk(3)
        q_bias, _, v_bias = attention.in_proj_bias.chunk(3)  # the key's bias moves all logits of a query alike
        by_head = (self.heads, self.features // self.heads)
        q = F.linear(queries, q_weight, q_bias).unflatten(-1, by_head)
        key_side = torch.einsum("gthd,hdf->gthf", q, k_weight.unflatten(0, by_head))
        weights = self._weights(layer, key_side @ rows.mT, mask[:, None, None])  # (G, t, head, j)
        averaged = weights @ rows
        values = torch.einsum("gthf,hdf->gthd", averaged, v_weight.unflatten(0, by_head))
        # Dropout leaves weights whose sum is not 1.
        return (values + weights.sum(-1, keepdim=True) * v_bias.unflatten(0, by_head)).flatten(2)

    def _weights(self, layer: Any, logits: Tensor, mask: Tensor) -> Tensor:
        logits = logits / math.sqrt(self.features // self.heads)
        weights = torch.softmax(logits.masked_fill(~mask, torch.finfo(logits.dtype).min), dim=-1)
        return F.dropout(weights, layer.self_attn.dropout, self.training).to(logits.dtype)

    def _heads_of(self, layer: Any, x: Tensor) -> list[Tensor]:
        """Queries, keys and values of rows (G, D, features), each (G, head, D, features of a head)."""
        attention = layer.self_attn
        projected = F.linear(x, attention.in_proj_weight, attention.in_proj_bias)
        return [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in projected.chunk(3, dim=-1)]
