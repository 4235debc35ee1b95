"""The encoders of ML-CTL: avg-first-last pooling, and the contextual embedding of a sentence and one of its words."""

from __future__ import annotations

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling
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
    """Compute the mean token vector of one span in each text."""
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


def first_last_encoder(model: SentenceTransformer) -> SentenceTransformer:
    """Build an encoder with avg-first-last pooling (ML-CTL, Chen et al. 2022, section 2.2) from the host's own modules.

    The encoder is a Transformer, a `WeightedLayerPooling` that gives half of the weight to the first and half to the
    last transformer layer (not the embedding layer), and mean pooling. The saved model loads with Sentence Transformers
    alone. Its `token_embeddings` are the average of the two layers too, as `ContextualEncoder` needs them for words.
    The layer weights are fixed.

    Args:
        model: An encoder. Its Transformer is used as it is, sharing its weights, and its pooling is left out. Its
            prompts and its device are kept.

    Returns:
        A model of built-in modules.

    Raises:
        ValueError: If the encoder does not start with a Transformer, or its layers cannot be read.

    Example:
        >>> from st_xlret.modules import train_tokenizer, transformer_encoder
        >>> plain = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), "tiny")
        >>> [type(module).__name__ for module in first_last_encoder(plain)]
        ['Transformer', 'WeightedLayerPooling', 'Pooling']
    """
    transformer = model[0]
    if not isinstance(transformer, Transformer):
        raise ValueError(f"avg-first-last needs the layers of a Transformer, got {type(transformer).__name__}")
    # In the configuration, so that the saved model gives its layers too.
    transformer.auto_model.config.output_hidden_states = True
    features = transformer.get_embedding_dimension()
    layers = _layers(transformer)
    weights = torch.zeros(layers)
    weights[0] += 0.5
    weights[-1] += 0.5
    first_last = WeightedLayerPooling(
        features,
        num_hidden_layers=layers,
        layer_start=1,
        layer_weights=nn.Parameter(weights, requires_grad=False),
    )
    include_prompt = all(module.include_prompt for module in model if isinstance(module, Pooling))
    return SentenceTransformer(
        modules=[transformer, first_last, Pooling(features, "mean", include_prompt=include_prompt)],
        prompts={name: prompt for name, prompt in model.prompts.items() if prompt is not None},
        default_prompt_name=model.default_prompt_name,
        device=str(model.device),
    )


def _layers(transformer: Transformer) -> int:
    """Count the layers by running the encoder, since configurations name the number in many ways."""
    device, training = transformer.auto_model.device, transformer.training
    tokens = {k: v.to(device) if hasattr(v, "to") else v for k, v in transformer.preprocess(["a"]).items()}
    with torch.no_grad():
        layers = transformer.eval()(tokens).get("all_layer_embeddings")
    transformer.train(training)
    if not layers or len(layers) < 2:
        raise ValueError(f"{type(transformer.auto_model).__name__} does not give the outputs of its layers")
    return len(layers) - 1
