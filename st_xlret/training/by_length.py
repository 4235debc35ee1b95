"""Padded batches of which a Transformer reads the short texts and the long ones apart (length bucketing)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn
from torch.nn.functional import pad

from st_xlret.losses.gradient_cache import take_texts
from st_xlret.training.forwards import other_forward

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
def short_and_long_apart(model: nn.Module) -> Iterator[None]:
    """A context in which, in training, the Transformer of an encoder reads a batch in parts of similar lengths.

    A text that is shorter than the longest one of its batch is padded, and the padding takes as much time as the text.
    Here a batch is sorted by length and read in up to four parts, each padded to its own longest text. The embeddings
    of the tokens come back in the order and at the length of the batch, zero where no token is. Sentence vectors,
    losses and gradients are those of the whole batch, up to rounding and to which values are dropped.

    That holds for encoders in which a text does not depend on its padding, as in all that attend by a mask. Batches
    that would save less than a fifth, fewer than 16 texts, texts with the padding before them, and flattened ones are
    read as they are. So are those of a subclass of Transformer with a `forward` of its own.

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
    modules = (module for module in model.modules() if isinstance(module, Transformer))
    # A subclass may add features of its own, which would not be put together.
    with other_forward([module for module in modules if type(module).forward is Transformer.forward], _forward):
        yield


def _forward(module: Transformer, read: Any, features: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Read the parts of a batch one after the other, and put their token embeddings together."""
    shows_tokens = module.module_output_name == "token_embeddings"
    inputs = {name: value for name, value in features.items() if name not in ("token_embeddings", _LAYERS)}
    parts = _parts(inputs) if module.training and shows_tokens else []
    of_parts: list[dict[str, Any]] = []
    for rows in parts:
        texts = take_texts(inputs, rows, multiple=_BLOCK)
        length = texts["input_ids"].shape[1]
        of_parts.append(read(texts, **options))
        if of_parts[-1]["token_embeddings"].shape[1] != length:  # the encoder has embeddings of something else
            of_parts = []
            break
    if not of_parts:
        found: dict[str, Any] = read(features, **options)
        return found
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
    if not isinstance(ids, Tensor) or not isinstance(mask, Tensor) or ids.ndim != 2 or ids.shape != mask.shape:
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
