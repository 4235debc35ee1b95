"""The encoder over the sentences of a document, which MSM trains with."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from st_xlret.ranges import check_range


class DocumentEncoder(nn.Module):
    """Predicts each sentence of a document from the others (MSM, Zhang et al. 2023, section 3.1).

    It is a small BERT over sentence vectors. A document of D sentences is run D times, with
    sentence t replaced by one learned vector in copy t, and the prediction p_t is read at position
    t. Documents of similar length are run a few at a time, and again in the backward pass
    (checkpointing). There is no dropout without gradients (evaluation).

    Args:
        features: Size of the sentence vectors.
        layers: Number of layers. The paper uses 2 and tries 1 to 6.
        heads: Attention heads. Default: one per 64 features, or the next smaller number that
            divides `features`.
        feedforward: Size inside the feed-forward parts. Default: `4 * features`.
        max_sentences: Maximum number of sentences of a document; positions are learned.
        dropout: Dropout probability, also of attention weights.
        rows_at_once: Maximum number of rows of copies at a time, of about `4 * 32 * features` bytes
            with two layers.

    Example:
        >>> encoder = DocumentEncoder(16, max_sentences=4)
        >>> sentences = torch.tensor([[True, True, True], [True, True, False]])  # of three and two
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
        check_range(1, layers=layers, max_sentences=max_sentences, rows_at_once=rows_at_once)
        if heads is None:
            heads = _number_of_heads(features)
        if feedforward is None:
            feedforward = 4 * features
        self.max_sentences = max_sentences
        self.rows_at_once = rows_at_once
        self.mask_vector = nn.Parameter(torch.empty(features))
        self.positions = nn.Embedding(max_sentences, features)
        self.norm = nn.LayerNorm(features)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList()
        for _ in range(layers):
            layer = nn.TransformerEncoderLayer(
                features, heads, feedforward, dropout, "gelu", batch_first=True
            )
            self.layers.append(layer)
        self._initialize()

    def _initialize(self) -> None:
        """Draw new weights as BERT does."""
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1 or name == "mask_vector":
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, sentences: Tensor, mask: Tensor) -> Tensor:
        """Predict every sentence from the others of its document.

        Args:
            sentences: (documents, places, features).
            mask: (documents, places), True at sentences and False at padding behind them, where
                predictions are zero.
        """
        if self.training and not torch.is_grad_enabled():
            self.eval()
            try:
                return self.forward(sentences, mask)
            finally:
                self.train()
        check_range(0, self.max_sentences, sentences=mask.shape[1])
        lengths: list[int] = mask.sum(dim=1).tolist()
        sentences = sentences.to(self.mask_vector.dtype)
        predictions = sentences * 0  # part of the graph, also where there is nothing to predict
        groups = self._groups_by_length(lengths)
        for documents in groups:
            places = lengths[documents[0]]
            group = sentences[documents, :places]
            group_mask = mask[documents, :places]
            if len(groups) > 1 and torch.is_grad_enabled():
                predicted = checkpoint(
                    self._predict_sentences, group, group_mask, use_reentrant=False
                )
            else:
                predicted = self._predict_sentences(group, group_mask)
            predictions[documents, :places] = predicted.to(predictions.dtype)
        return predictions

    def _groups_by_length(self, lengths: list[int]) -> list[list[int]]:
        """Documents to run together; those without sentences are in no group.

        The longest come first: unsorted ones take four times as long.
        """
        with_sentences = [document for document, length in enumerate(lengths) if length]
        groups: list[list[int]] = []
        for document in sorted(with_sentences, key=lambda document: -lengths[document]):
            if groups and self._has_room(groups[-1], lengths):
                groups[-1].append(document)
            else:
                groups.append([document])
        return groups

    def _has_room(self, group: list[int], lengths: list[int]) -> bool:
        """Whether one more document can run with a group, whose first one is the longest."""
        longest = lengths[group[0]]
        rows_of_document = longest**2
        return (len(group) + 1) * rows_of_document <= self.rows_at_once

    def _predict_sentences(self, sentences: Tensor, mask: Tensor) -> Tensor:
        """Map sentences (documents, places, features) to predictions of the same shape."""
        places = sentences.shape[1]
        itself = torch.eye(places, dtype=torch.bool, device=mask.device)[..., None]
        copies = torch.where(itself, self.mask_vector, sentences[:, None])
        copies = copies + self.positions.weight[:places]
        rows = self.dropout(self.norm(copies)).flatten(0, 1)
        padding = ~mask.repeat_interleave(places, 0)
        *first_layers, last_layer = self.layers
        for layer in first_layers:
            rows = layer(rows, src_key_padding_mask=padding)
        # Of the last layer's rows only row t of copy t is read, so that only those are computed.
        x = rows.view(copies.shape).diagonal(dim1=1, dim2=2).mT.flatten(0, 1)[:, None]
        assert isinstance(last_layer, nn.TransformerEncoderLayer)
        predictions = _attend(last_layer, x, rows, padding)
        return predictions.view(sentences.shape) * mask[..., None]


def _number_of_heads(features: int) -> int:
    """One head per 64 features, or the next smaller number that divides them."""
    heads = max(1, features // 64)
    while features % heads:
        heads -= 1
    return heads


def _attend(layer: nn.TransformerEncoderLayer, x: Tensor, rows: Tensor, padding: Tensor) -> Tensor:
    """The layer's output at `x` (n, 1, h), which attends to all `rows` (n, places, h).

    `padding` (n, places) is True at padding. The layer has GELU, and norms behind its parts, as
    `DocumentEncoder` makes it.
    """
    attended, _ = layer.self_attn(x, rows, rows, key_padding_mask=padding, need_weights=False)
    x = layer.norm1(x + layer.dropout1(attended))
    hidden = layer.dropout(F.gelu(layer.linear1(x)))
    return layer.norm2(x + layer.dropout2(layer.linear2(hidden)))
