"""Encoders whose sentence vector is the mean over tokens of the first and the last layer (ML-CTL)."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling
from torch import nn


def first_last_encoder(
    model: str | SentenceTransformer | Transformer, *, max_seq_length: int | None = None
) -> SentenceTransformer:
    """Build an encoder with avg-first-last pooling (ML-CTL, Chen et al. 2022, section 2.2) from the host's own modules.

    The encoder is a Transformer, a `WeightedLayerPooling` that gives half of the weight to the first and half to the
    last transformer layer (not the embedding layer), and mean pooling. The saved model loads with Sentence Transformers
    alone. Its `token_embeddings` are the average of the two layers too, as `ContextualEncoder` needs them for words.
    The layer weights are fixed.

    Args:
        model: Hub name or folder of a checkpoint, or an encoder. The Transformer of an encoder is used as it is,
            sharing its weights, and the encoder's pooling is left out. Its prompts and its device are kept.
        max_seq_length: Maximum number of tokens of a text. Default: that of the Transformer.

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
    if isinstance(model, str):
        model = Transformer(model)
    options: dict[str, Any] = {}
    include_prompt = True
    if isinstance(model, SentenceTransformer):
        prompts = {name: prompt for name, prompt in model.prompts.items() if prompt is not None}
        options = {
            "prompts": prompts,
            "default_prompt_name": model.default_prompt_name,
            "device": str(model.device),
        }
        include_prompt = all(module.include_prompt for module in model if isinstance(module, Pooling))
    transformer = model[0] if isinstance(model, SentenceTransformer) else model
    if not isinstance(transformer, Transformer):
        raise ValueError(f"avg-first-last needs the layers of a Transformer, got {type(transformer).__name__}")
    if max_seq_length is not None:
        transformer.max_seq_length = max_seq_length
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
    pooling = Pooling(features, "mean", include_prompt=include_prompt)
    return SentenceTransformer(modules=[transformer, first_last, pooling], **options)


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
