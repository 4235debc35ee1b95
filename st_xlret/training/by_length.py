"""Padded batches of which a Transformer reads the short texts and the long ones apart (length bucketing)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling, WeightedLayerPooling
from torch import Tensor, nn
from torch.nn.functional import pad

from st_xlret.losses.gradient_cache import take_texts
from st_xlret.training.forwards import other_forward

ATTEND_BY_MASK = frozenset(
    {
        *("albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "eurobert", "gemma3_text"),
        *("modernbert", "mpnet", "nomic_bert", "qwen2", "qwen3", "rembert", "roberta", "xlm-roberta", "xlm-roberta-xl"),
    }
)
"""Model types of Transformers in which a text does not depend on its padding: it is masked, and never mixed in.

Embeddings and gradients of a small encoder of each type were checked to be the same in parts as in whole batches.
"""
_TEXT_BY_TEXT = (Pooling, WeightedLayerPooling, Dense, Normalize, LayerNorm, Dropout)
_BY_LENGTH = frozenset({"dynamic", "longrope"})
"""Rotary position embeddings that depend on the length of the batch."""
_LAYERS = "all_layer_embeddings"
_PARTS = 4
"""Parts of a batch. More of them leave less padding, but smaller matrices take more time for each text."""
_FEWEST = 8
"""The fewest texts in a part."""
_BLOCK = 16
"""Lengths of the parts are multiples of this, so that there are few different ones: see `few_lengths`."""
_LEAST_SAVED = 0.2
"""The least share of a batch's tokens, padding included, that must be saved."""


@contextmanager
def short_and_long_apart(model: SentenceTransformer) -> Iterator[None]:
    """A context in which, in training, the Transformer of an encoder reads a batch in parts of similar lengths.

    A text that is shorter than the longest one of its batch is padded, and the padding takes as much time as the text.
    Here a batch is sorted by length and read in up to four parts, each padded to its own longest text. The embeddings
    of the tokens come back in the order and at the length of the batch, with zeros beyond the length of their part.
    Sentence vectors, losses and gradients are those of the whole batch, up to rounding and to which values are dropped.

    That holds for encoders in which a text does not depend on its padding. So it is done for the host's Transformer
    with a model type of `ATTEND_BY_MASK`, in the code of Transformers, if all modules after it are the host's Pooling,
    WeightedLayerPooling, Dense, Normalize, LayerNorm or Dropout. All other encoders read whole batches, such as those
    with rotary position embeddings that depend on the length (`dynamic`, `longrope`) and subclasses of Transformer with
    a `forward` of their own.

    Batches that would save less than a fifth, fewer than 16 texts, texts with the padding before them, and flattened
    ones are read as they are.

    Args:
        model: The encoder.

    Example:
        >>> from st_xlret.modules import train_tokenizer, transformer_encoder
        >>> from st_xlret.training.layers import dropout
        >>> model = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), "tiny").to("cpu").train()
        >>> texts = model.preprocess(["a"] * 12 + ["a b c d " * 8] * 4)
        >>> with dropout(model, 0):
        ...     whole = model(dict(texts))["sentence_embedding"]
        ...     with short_and_long_apart(model):
        ...         in_parts = model(dict(texts))["sentence_embedding"]
        >>> torch.allclose(whole, in_parts, atol=1e-5)
        True
    """
    with other_forward(_readable_in_parts(model), _forward):
        yield


def _readable_in_parts(chain: nn.Module) -> list[Transformer]:
    """The Transformers at the start of a chain of modules, of which a Router has several."""
    modules = list(chain.children())
    if not modules or not all(type(module) in _TEXT_BY_TEXT for module in modules[1:]):
        return []
    first = modules[0]
    if isinstance(first, Router):
        return [found for route in first.sub_modules.values() for found in _readable_in_parts(route)]
    return [first] if isinstance(first, Transformer) and _attends_by_mask(first) else []


def _attends_by_mask(module: Transformer) -> bool:
    # A subclass may add features of its own, which would not be put together.
    if type(module).forward is not Transformer.forward or module.module_output_name != "token_embeddings":
        return False
    # Code that comes with a checkpoint may have the name of a known model type.
    if not type(module.model).__module__.startswith("transformers."):
        return False
    config: Any = module.model.config
    rope = getattr(config, "rope_parameters", None) or {}
    of_layers = [rope, *(found for found in rope.values() if isinstance(found, dict))]
    return config.model_type in ATTEND_BY_MASK and _BY_LENGTH.isdisjoint(found.get("rope_type") for found in of_layers)


def _forward(module: Transformer, read: Any, features: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Read the parts of a batch one after the other, and put their token embeddings together."""
    inputs = {name: value for name, value in features.items() if name not in ("token_embeddings", _LAYERS)}
    # A tensor among the options may have a row for each text.
    divisible = module.training and not any(isinstance(value, Tensor) for value in options.values())
    parts = _parts(inputs) if divisible else []
    if not parts:
        found: dict[str, Any] = read(features, **options)
        return found
    of_parts = [read(take_texts(inputs, rows, multiple=_BLOCK), **options) for rows in parts]
    place, width = torch.argsort(torch.cat(parts)), features["input_ids"].shape[1]

    def together(tokens: Iterable[Tensor]) -> Tensor:
        return torch.cat([pad(part, (0, 0, 0, width - part.shape[1])) for part in tokens])[place]

    features["token_embeddings"] = together(part["token_embeddings"] for part in of_parts)
    if _LAYERS in of_parts[0]:
        features[_LAYERS] = tuple(map(together, zip(*(part[_LAYERS] for part in of_parts), strict=True)))
    return features


def _parts(features: dict[str, Any]) -> list[Tensor]:
    """Rows of each part, the longest texts first; none if the batch is better read as it is."""
    ids, mask = features.get("input_ids"), features.get("attention_mask")
    if not isinstance(ids, Tensor) or not isinstance(mask, Tensor) or ids.shape != mask.shape:
        return []
    texts, longest = ids.shape
    count = min(_PARTS, texts // _FEWEST)
    # Positions that all texts share cannot be divided, and queries are expanded by tokens that the mask leaves out.
    divisible = all(len(value) == texts for value in features.values() if isinstance(value, Tensor) and value.ndim > 1)
    if count < 2 or not divisible or "query_expansion_positions" in features:
        return []
    # Padding before a text cannot be cut: what counts is where it ends.
    ends = (mask.bool() * torch.arange(1, longest + 1, device=mask.device)).amax(1)
    lengths, order = ends.sort(descending=True, stable=True)
    parts = order.tensor_split(count)
    widths = [min(longest, -(-max(1, int(part[0])) // _BLOCK) * _BLOCK) for part in lengths.tensor_split(count)]
    read = sum(len(part) * width for part, width in zip(parts, widths, strict=True))
    return list(parts) if read <= (1 - _LEAST_SAVED) * texts * longest else []
