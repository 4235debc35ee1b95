"""The layers over a sentence and a word of it, which ML-CTL trains with."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from st_xlret.ranges import check_range


class ContextualEncoder(nn.Module):
    """Concatenated contextual embedding of a sentence and a word of it (ML-CTL, section 2.2).

    Layers over [sentence vector ; mean vector of the word's tokens]. They are those of the authors'
    program (Chen et al. 2022): Linear, ReLU and Linear, as wide as the input. `first_last_encoder`
    builds the paper's encoder. Inputs are converted to the type of the weights.

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
        check_range(1, token_features=token_features, out_features=out_features)
        both = sentence_features + (token_features or sentence_features)
        self.linear = nn.Linear(both, both)
        self.linear_out = nn.Linear(both, out_features or both)

    def forward(
        self,
        sentence_embedding: Tensor,
        token_embeddings: Tensor,
        attention_mask: Tensor,
        word_start: Tensor,
        word_end: Tensor,
    ) -> Tensor:
        """Embed sentences, each with a word of its tokens.

        The word of a row stands at the tokens [start, end) of the text without padding.

        Args:
            sentence_embedding: (B, sentence_features).
            token_embeddings: (B, T, token_features).
            attention_mask: (B, T).
            word_start: (B,).
            word_end: (B,).
        """
        words = _mean_of_spans(token_embeddings, attention_mask, word_start, word_end)
        both = torch.cat([sentence_embedding, words], dim=1).to(self.linear.weight.dtype)
        return self.linear_out(F.relu(self.linear(both)))


def _mean_of_spans(
    token_embeddings: Tensor, attention_mask: Tensor, start: Tensor, end: Tensor
) -> Tensor:
    """The mean token vector of one span of each text."""
    mask = attention_mask.bool()
    _check_spans(start, end, mask.sum(dim=1))
    # Counted over tokens, so that padding on the left shifts nothing.
    position = mask.cumsum(dim=1) - 1
    inside = mask & (position >= start[:, None]) & (position < end[:, None])
    kind = token_embeddings.dtype
    weight = inside.to(kind) / (end - start).to(kind)[:, None]
    return torch.einsum("bt,btd->bd", weight, token_embeddings)


def _check_spans(start: Tensor, end: Tensor, lengths: Tensor) -> None:
    """Refuse spans that are no tokens of their texts."""
    wrong = (start < 0) | (start >= end) | (end > lengths)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"the word of row {row} stands at tokens [{int(start[row])}, {int(end[row])}) of "
            f"{int(lengths[row])}: find words with the encoder's tokenizer and max_seq_length, "
            "without prompts"
        )
