"""Concatenated contextual embedding of a sentence and one of its words (ML-CTL, section 2.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ContextualEncoder(nn.Module):
    """Linear layer over [sentence vector ; mean vector of a word's tokens] (CCE, section 2.2 of ML-CTL).

    Stands beside the SentenceTransformer while it trains and is thrown away afterwards. It takes token
    vectors as they come: for the paper's average of first and last layer let
    :func:`~st_xlret.training.first_last_encoder` build the encoder.

    Args:
        sentence_features: Size of the sentence vectors.
        token_features: Size of the token vectors; ``sentence_features`` by default.
        out_features: Size of the output; ``sentence_features`` by default.

    Raises:
        ValueError: If a size is not positive.

    Example:
        >>> encoder = ContextualEncoder(8)
        >>> tokens, mask = torch.randn(2, 5, 8), torch.ones(2, 5)
        >>> start, end = torch.tensor([1, 2]), torch.tensor([2, 5])
        >>> tuple(encoder(tokens.mean(1), tokens, mask, start, end).shape)
        (2, 8)
    """

    def __init__(
        self, sentence_features: int, token_features: int | None = None, out_features: int | None = None
    ) -> None:
        super().__init__()
        sizes = (sentence_features, token_features or sentence_features, out_features or sentence_features)
        if min(sizes) < 1:
            raise ValueError(f"sizes must be at least 1, got sentence, token and output sizes {sizes}")
        self.sentence_features, self.token_features, self.out_features = sizes
        self.linear = nn.Linear(self.sentence_features + self.token_features, self.out_features)

    def forward(
        self,
        sentence_embedding: Tensor,
        token_embeddings: Tensor,
        attention_mask: Tensor,
        word_start: Tensor,
        word_end: Tensor,
    ) -> Tensor:
        """Embed sentences together with a word of each.

        Args:
            sentence_embedding: Sentence vectors (B, d).
            token_embeddings: Token vectors (B, T, t).
            attention_mask: 1 for tokens, 0 for padding (B, T).
            word_start: Position of the word's first token in the unpadded text, integers (B,).
            word_end: Position after its last token (B,).

        Returns:
            Embeddings (B, out_features).

        Raises:
            ValueError: If a span is empty or reaches beyond its text.
        """
        words = mean_of_spans(token_embeddings, attention_mask, word_start, word_end)
        return self.linear(torch.cat([sentence_embedding, words], dim=1))


def mean_of_spans(token_embeddings: Tensor, attention_mask: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Mean token vector of one span in each text.

    Args:
        token_embeddings: (B, T, t).
        attention_mask: 1 for tokens, 0 for padding on either side (B, T).
        start: First position of the span, counted without padding, integers (B,).
        end: Position after its last one (B,).

    Returns:
        Mean vectors (B, t).

    Raises:
        ValueError: If a span is empty or reaches beyond its text; names the first such row.

    Example:
        >>> tokens = torch.arange(4.0).reshape(1, 4, 1)
        >>> mean_of_spans(tokens, torch.ones(1, 4), torch.tensor([1]), torch.tensor([3]))
        tensor([[1.5000]])
    """
    mask = attention_mask.bool()
    lengths = mask.sum(dim=1)
    wrong = (start < 0) | (start >= end) | (end > lengths)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"the word of row {row} stands at tokens [{int(start[row])}, {int(end[row])}) of {int(lengths[row])}: "
            "find the words with the tokenizer and the max_seq_length that the encoder has, without prompts"
        )
    # Counted over tokens, so that padding on the left shifts nothing.
    position = mask.cumsum(dim=1) - 1
    chosen = mask & (position >= start[:, None]) & (position < end[:, None])
    weight = chosen.to(token_embeddings.dtype) / (end - start).to(token_embeddings.dtype)[:, None]
    return torch.einsum("bt,btd->bd", weight, token_embeddings)
