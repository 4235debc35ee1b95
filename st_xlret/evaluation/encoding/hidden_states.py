"""Embeddings from the hidden states of a layer instead of the output of the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.modules.encoding import TOKENS_PER_TEXT, token_batches, token_budget, token_lengths

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@torch.inference_mode()
def encode_hidden_states(
    model: SentenceTransformer,
    texts: Sequence[str],
    layer: int | None,
    pooling: Literal["model", "mean"],
    batch_size: int,
    show_progress_bar: bool,
) -> Tensor:
    """Embed texts by a layer or by the mean of the hidden states, see `encode_layer`."""
    from sentence_transformers.util import batch_to_device

    transformer = _transformer_of(model)
    later_modules = list(model)[1:]
    lengths = token_lengths(model, texts) or [TOKENS_PER_TEXT] * len(texts)
    batches = list(token_batches(lengths, token_budget(model, batch_size)))
    parts: list[Tensor] = []
    with (
        _hidden_states_exposed(model, transformer),
        tqdm(total=sum(lengths), desc="Encoding", unit=" tokens", disable=not show_progress_bar) as bar,
    ):
        for rows in batches:
            batch = [texts[row] for row in rows]
            features = transformer(batch_to_device(model.preprocess(batch), model.device))
            hidden_states = features.pop("all_layer_embeddings", None)
            if hidden_states is None:
                raise ValueError(
                    f"the {type(transformer).__name__} of this model returns no hidden states: leave layer "
                    "and pooling at their defaults."
                )
            chosen = len(hidden_states) - 1 if layer is None else layer
            if not 0 <= chosen < len(hidden_states):
                raise ValueError(
                    f"layer={layer} is not in this model's range 0..{len(hidden_states) - 1} "
                    "(0: the input embeddings, n: the output of layer n)."
                )
            features["token_embeddings"] = hidden_states[chosen]
            parts.append(_pool(features, pooling, later_modules).float())
            bar.update(sum(lengths[row] for row in rows))
    in_batch_order = torch.cat(parts)
    embeddings = torch.empty_like(in_batch_order)
    embeddings[torch.tensor([row for rows in batches for row in rows], device=embeddings.device)] = in_batch_order
    return embeddings


def _pool(features: dict[str, Any], pooling: Literal["model", "mean"], later_modules: list[torch.nn.Module]) -> Tensor:
    if pooling == "mean":
        mask = features["attention_mask"].unsqueeze(-1).float()
        return (features["token_embeddings"].float() * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)
    for module in later_modules:
        features = module(features)
    return features["sentence_embedding"]


def _transformer_of(model: SentenceTransformer) -> Any:
    from sentence_transformers.base.modules import Transformer

    first = model[0] if len(model) else None
    if isinstance(first, Transformer):
        return first
    raise ValueError(
        f"a layer or the mean of hidden states needs a model that starts with a Transformer; this one "
        f"starts with {type(first).__name__}, which has no hidden states. "
        "Leave layer and pooling at their defaults."
    )


@contextmanager
def _hidden_states_exposed(model: SentenceTransformer, transformer: Any) -> Iterator[None]:
    config = transformer.model.config
    before = (config.output_hidden_states, transformer.unpad_inputs, model.training)
    config.output_hidden_states = True
    if before[1] is not False:
        transformer.unpad_inputs = False  # without padding there is no attention mask for the average
    model.eval()
    try:
        yield
    finally:
        config.output_hidden_states = before[0]
        if before[1] is not False:
            transformer.unpad_inputs = before[1]
        model.train(before[2])
