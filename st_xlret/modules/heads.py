"""What stands on an encoder in training only: heads of CCP, MSM and ML-CTL, and the document encoder of MSM."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class AsymmetricBNHead(nn.Module):
    """CCP's projection head: Linear, batch normalisation, ReLU, Linear (Wu et al. 2022, section 3.1).

    Both sides of a pair share the layers (`g` in Algorithm 1). One side is normalised by the statistics of its batch,
    the other by the running statistics of before the step, and the two swap in each step, so that batch statistics do
    not tell which rows belong together. Without gradients (evaluation), both sides use the statistics of both, and
    nothing changes. Inputs are converted to the type of the weights.

    Args:
        in_features: Size of the sentence vectors, and between the two linear layers.
        out_features: Size of the output. Default: `in_features`.
        normalization: "asymmetric", "batch" (both sides in one batch: the ablation that fails in Table 5) or "none".

    Example:
        >>> head = AsymmetricBNHead(16, out_features=8)
        >>> z_c, z_i = head(torch.randn(4, 16), torch.randn(4, 16))
        >>> tuple(z_c.shape), bool(head.toggle)
        ((4, 8), True)
    """

    toggle: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int | None = None,
        *,
        normalization: Literal["asymmetric", "batch", "none"] = "asymmetric",
    ) -> None:
        super().__init__()
        self.out_features, self.normalization = out_features or in_features, normalization
        self.linear_in = nn.Linear(in_features, in_features)
        kinds = {"asymmetric": nn.BatchNorm1d, "batch": nn.BatchNorm1d, "none": nn.Identity}
        self.norm: nn.Module = kinds[normalization](in_features)
        self.linear_out = nn.Linear(in_features, self.out_features)
        # Which side uses the running statistics in the next step: False for the contexts, True for the centres.
        self.register_buffer("toggle", torch.tensor(False))

    def forward(self, centres: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Project centre sentences (N, in_features) and their contexts (M, in_features) to `out_features` each."""
        kind = self.linear_in.weight.dtype
        sides = [self.linear_in(centres.to(kind)), self.linear_in(contexts.to(kind))]
        if isinstance(self.norm, nn.BatchNorm1d):
            norm, sizes = self.norm, [len(centres), len(contexts)]
            if not (self.training and torch.is_grad_enabled()):
                both = F.batch_norm(
                    torch.cat(sides),
                    None,
                    None,
                    norm.weight,
                    norm.bias,
                    training=True,
                    eps=norm.eps,
                )
                sides = list(both.split(sizes))
            elif self.normalization == "batch":
                sides = list(norm(torch.cat(sides)).split(sizes))
            else:
                running, batch = (0, 1) if self.toggle else (1, 0)
                assert norm.running_mean is not None and norm.running_var is not None
                # This side goes first: it reads the statistics as they were before the step. Copies: a later call may
                # update the originals in place, and the backward pass still needs these values.
                mean, variance = norm.running_mean.clone(), norm.running_var.clone()
                sides[running] = F.batch_norm(
                    sides[running], mean, variance, norm.weight, norm.bias, eps=norm.eps
                )
                sides[batch] = norm(sides[batch])
                self.toggle.logical_not_()
        return self.linear_out(F.relu(sides[0])), self.linear_out(F.relu(sides[1]))


class ProjectionHead(nn.Module):
    """MSM's projection head (Zhang et al. 2023, section 3.2, and the authors' program).

    Linear, batch normalisation, ReLU, Linear, and batch normalisation without an affine part; statistics are those of
    the batch, in evaluation too.

    Example:
        >>> tuple(ProjectionHead(16)(torch.randn(4, 16)).shape)
        (4, 16)
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear_in = nn.Linear(features, features, bias=False)
        self.norm = nn.BatchNorm1d(features, eps=1e-12, track_running_stats=False)
        self.linear_out = nn.Linear(features, features, bias=False)
        self.norm_out = nn.BatchNorm1d(features, eps=1e-12, affine=False, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        """Project vectors (N, features) to (N, features)."""
        x = self.norm(self.linear_in(x.to(self.linear_in.weight.dtype)))
        return self.norm_out(self.linear_out(F.relu(x)))


class DocumentEncoder(nn.Module):
    """Predicts each sentence of a document from the others (MSM, Zhang et al. 2023, section 3.1).

    It is a small BERT over sentence vectors. A document of D sentences is run D times, with sentence t replaced by one
    learned vector in copy t, and the prediction p_t is read at position t. Documents of similar length are run a few at
    a time, and again in the backward pass (checkpointing). There is no dropout without gradients (evaluation).

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
            nn.TransformerEncoderLayer(
                features, heads, feedforward or 4 * features, dropout, "gelu", batch_first=True
            )
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
                predicted = checkpoint(self._predict_sentences, *group, use_reentrant=False)
            else:
                predicted = self._predict_sentences(*group)
            predictions[documents, :places] = predicted.to(predictions.dtype)
        return predictions

    def _groups_by_length(self, lengths: list[int]) -> list[tuple[list[int], int]]:
        """Documents to run together and the length of the longest: unsorted ones take four times as long."""
        groups: list[tuple[list[int], int]] = []
        for document in sorted(
            (d for d, length in enumerate(lengths) if length), key=lambda d: -lengths[d]
        ):
            if groups and (len(groups[-1][0]) + 1) * groups[-1][1] ** 2 <= self.rows_at_once:
                groups[-1][0].append(document)
            else:
                groups.append(([document], lengths[document]))
        return groups

    def _predict_sentences(self, sentences: Tensor, mask: Tensor) -> Tensor:
        """Map sentences of documents (documents, places, features) to predictions of the same shape."""
        places = sentences.shape[1]
        itself = torch.eye(places, dtype=torch.bool, device=mask.device)[..., None]
        copies = (
            torch.where(itself, self.mask_vector, sentences[:, None])
            + self.positions.weight[:places]
        )
        rows, padding = (
            self.dropout(self.norm(copies)).flatten(0, 1),
            ~mask.repeat_interleave(places, 0),
        )
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


class ContextualEncoder(nn.Module):
    """Concatenated contextual embedding: layers over [sentence vector ; mean vector of a word's tokens] (ML-CTL, 2.2).

    The layers are those of the authors' program (Chen et al. 2022): Linear, ReLU and Linear, as wide as the input.
    `first_last_encoder` builds the paper's encoder. Inputs are converted to the type of the weights.

    Args:
        sentence_features: Size of the sentence vectors.
        token_features: Size of the token vectors. Default: `sentence_features`.
        out_features: Size of the output. Default: that of both together.

    Example:
        >>> encoder = ContextualEncoder(8)
        >>> tokens, mask = torch.randn(2, 5, 8), torch.ones(2, 5)
        >>> start, end = torch.tensor([1, 2]), torch.tensor([2, 5])
        >>> tuple(encoder(tokens.mean(1), tokens, mask, start, end).shape)
        (2, 16)
    """

    def __init__(
        self,
        sentence_features: int,
        token_features: int | None = None,
        out_features: int | None = None,
    ) -> None:
        super().__init__()
        both = sentence_features + (token_features or sentence_features)
        self.linear, self.linear_out = nn.Linear(both, both), nn.Linear(both, out_features or both)

    def forward(
        self,
        sentence_embedding: Tensor,
        token_embeddings: Tensor,
        attention_mask: Tensor,
        word_start: Tensor,
        word_end: Tensor,
    ) -> Tensor:
        """Embed sentences (B, sentence_features), each with a word of its tokens (B, T, token_features).

        The word of a row stands at the tokens [start, end), (B,) each, of the text without padding.
        """
        words = mean_of_spans(token_embeddings, attention_mask, word_start, word_end)
        both = torch.cat([sentence_embedding, words], dim=1).to(self.linear.weight.dtype)
        return self.linear_out(F.relu(self.linear(both)))


def mean_of_spans(
    token_embeddings: Tensor, attention_mask: Tensor, start: Tensor, end: Tensor
) -> Tensor:
    """The mean token vector of one span of each text."""
    mask = attention_mask.bool()
    lengths = mask.sum(dim=1)
    wrong = (start < 0) | (start >= end) | (end > lengths)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        place = f"the word of row {row} stands at tokens [{int(start[row])}, {int(end[row])}) of {int(lengths[row])}"
        raise ValueError(
            f"{place}: find words with the encoder's tokenizer and max_seq_length, without prompts"
        )
    # Counted over tokens, so that padding on the left shifts nothing.
    position = mask.cumsum(dim=1) - 1
    inside = mask & (position >= start[:, None]) & (position < end[:, None])
    weight = inside.to(token_embeddings.dtype) / (end - start).to(token_embeddings.dtype)[:, None]
    return torch.einsum("bt,btd->bd", weight, token_embeddings)
