"""A model cut after a layer of its Transformer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn


@contextmanager
def cut_at_layer(
    model: SentenceTransformer, layer: int | None, pooling: Literal["model", "mean"] | None = None
) -> Iterator[SentenceTransformer]:
    """The model cut after a layer of its Transformer, as the CCP paper embeds.

    The model is left as it was.

    Args:
        model: A Sentence Transformer.
        layer: 0 for the input embeddings, n for the output of the n-th layer, None for the last
            one.
        pooling: `"mean"` averages the hidden states of all tokens, special ones included; `"model"`
            runs the modules after the Transformer. Default: `"mean"` if a layer is given, else
            `"model"`.
    """
    if layer is None and pooling in (None, "model"):
        yield model
        return
    first: Any = model[0]
    _check_layer(first, layer)
    following = list(model)[1:]
    if pooling != "model":
        following = [Pooling(first.get_embedding_dimension(), pooling_mode="mean")]
    config = first.model.config
    had_hidden_states = config.output_hidden_states
    had_unpadded_inputs = first.unpad_inputs
    was_training = model.training
    config.output_hidden_states = True
    first.unpad_inputs = False  # without padding, no attention mask for the average
    try:
        yield SentenceTransformer(
            modules=[first, _Layer(layer), *following],
            device=str(model.device),
            prompts=cast(dict[str, str], model.prompts),
            default_prompt_name=model.default_prompt_name,
        )
    finally:
        config.output_hidden_states = had_hidden_states
        first.unpad_inputs = had_unpadded_inputs
        model.train(was_training)


def _check_layer(first: Any, layer: int | None) -> None:
    """Refuse a layer that the Transformer does not have, and a model that begins with none."""
    last = first.model.config.num_hidden_layers if isinstance(first, Transformer) else -1
    cut = last if layer is None else layer
    if not 0 <= cut <= last:
        layers = f"the layers of {type(first).__name__} (-1: it has none)"
        raise ValueError(f"layer={layer} is not in 0..{last}, {layers}")


class _Layer(nn.Module):
    """Puts the hidden states of a layer in the place of the token embeddings."""

    def __init__(self, layer: int | None) -> None:
        super().__init__()
        self.layer = -1 if layer is None else layer

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        layers = features.pop("all_layer_embeddings")
        return {**features, "token_embeddings": layers[self.layer]}

    def get_config_dict(self) -> dict[str, Any]:
        """What `fingerprint` tells layers apart by."""
        return {"layer": self.layer}
