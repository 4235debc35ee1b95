"""Concatenated contextual embedding of a sentence and one of its words (ML-CTL, section 2.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ContextualEncoder(nn.Module):
    """Concatenated contextual embedding: Linear over [sentence vector ; mean vector of a word's tokens] (ML-CTL, 2.2).

    The layer is used beside the SentenceTransformer during training and is discarded afterwards (Chen et al. 2022). It
    takes token vectors as they are. `first_last_encoder` builds an encoder that gives the paper's average of the first
    and the last layer. Inputs are converted to the type of the weights.

    Args:
        sentence_features: Size of the sentence vectors.
        token_features: Size of the token vectors. Default: `sentence_features`.
        out_features: Size of the output. Default: `sentence_features`.

    Raises:
        ValueError: If a size is below 1.

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
        sizes = tuple(sentence_features if n is None else n for n in (sentence_features, token_features, out_features))
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
        """Embed each sentence together with one of its words.

        Args:
            sentence_embedding: Sentence vectors (B, sentence_features).
            token_embeddings: Token vectors (B, T, token_features).
            attention_mask: 1 for tokens, 0 for padding (B, T).
            word_start: Position of the word's first token in the text without padding, integers (B,).
            word_end: Position after its last token (B,).

        Returns:
            Embeddings (B, out_features).

        Raises:
            ValueError: If a span is empty or reaches beyond its text.
        """
        words = mean_of_spans(token_embeddings, attention_mask, word_start, word_end)
        return self.linear(torch.cat([sentence_embedding, words], dim=1).to(self.linear.weight.dtype))


def mean_of_spans(token_embeddings: Tensor, attention_mask: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Compute the mean token vector of one span in each text.

    Args:
        token_embeddings: Token vectors (B, T, d).
        attention_mask: 1 for tokens, 0 for padding on either side (B, T).
        start: First position of the span, counted without padding, integers (B,).
        end: Position after its last token (B,).

    Returns:
        Mean vectors (B, d).

    Raises:
        ValueError: If a span is empty or reaches beyond its text; the message names the first such row.

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
