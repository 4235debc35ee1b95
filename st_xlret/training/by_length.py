"""Batches of padded texts, of which the Transformer reads the short ones and the long ones apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn
from torch.nn.functional import pad

from st_xlret.losses.gradient_cache import take_texts

_PARTS = 4
"""Parts of a batch. More of them leave less padding, but the processor multiplies smaller matrices less well."""
_FEWEST = 4
"""Texts of the smallest part."""
_BLOCK = 16
"""Lengths of the parts are multiples of this, so that there are few different ones: see `few_lengths`."""
_LEAST_SAVED = 0.1
"""Share of the padded tokens that must be saved."""


@contextmanager
def short_and_long_apart(model: nn.Module) -> Iterator[None]:
    """A context in which, in training, the Transformer of an encoder reads a batch in parts of similar lengths.

    A text that is shorter than the longest one of its batch is padded, and the padding is computed like the text. Here
    a batch is sorted by length and read in four parts, each padded to its own longest text. Token embeddings come back
    in the order and at the length of the batch, zero where no token is, so that poolings, losses and gradients are
    those of the whole batch, up to rounding and what layers drop out.

    Batches that would save less than a tenth of the computed tokens, and flattened ones, are read as they are.

    Args:
        model: The encoder.

    Example:
        >>> from st_xlret.modules import train_tokenizer, transformer_encoder
        >>> from st_xlret.training.layers import dropout
        >>> model = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), "tiny").train()
        >>> texts = model.preprocess(["a"] * 12 + ["a b c d " * 8] * 4)
        >>> with dropout(model, 0):
        ...     whole = model(dict(texts))["sentence_embedding"]
        ...     with short_and_long_apart(model):
        ...         in_parts = model(dict(texts))["sentence_embedding"]
        >>> torch.allclose(whole, in_parts, atol=1e-5)
        True
    """
    changed = [module for module in model.modules() if isinstance(module, Transformer)]
    for module in changed:
        module.forward = partial(_forward, module, module.forward)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for module in changed:
            del module.forward


def _forward(module: Transformer, read: Any, features: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Read the parts of a batch one after the other, and put their token embeddings together."""
    shows_tokens = module.module_output_name == "token_embeddings"
    parts = _parts(features) if module.training and shows_tokens else []
    if not parts:
        found: dict[str, Any] = read(features, **options)
        return found
    of_parts = [read(take_texts(features, rows, multiple=_BLOCK), **options) for rows in parts]
    place, width = torch.argsort(torch.cat(parts)), features["input_ids"].shape[1]

    def together(tokens: Iterable[Tensor]) -> Tensor:
        return torch.cat([pad(part, (0, 0, 0, width - part.shape[1])) for part in tokens])[place]

    features["token_embeddings"] = together(part["token_embeddings"] for part in of_parts)
    if "all_layer_embeddings" in of_parts[0]:
        layers = zip(*(part["all_layer_embeddings"] for part in of_parts), strict=True)
        features["all_layer_embeddings"] = tuple(map(together, layers))
    return features


def _parts(features: dict[str, Any]) -> list[Tensor]:
    """Rows of each part, the longest texts first; none if the batch is better read as it is."""
    ids, mask = features.get("input_ids"), features.get("attention_mask")
    if not isinstance(ids, Tensor) or not isinstance(mask, Tensor) or ids.ndim != 2 or ids.shape != mask.shape:
        return []
    texts, longest = ids.shape
    # Padding before a text cannot be cut: what counts is where it ends.
    ends = (mask.bool() * torch.arange(1, longest + 1, device=mask.device)).amax(1)
    lengths, order = ends.sort(descending=True, stable=True)
    parts = order.tensor_split(min(_PARTS, texts // _FEWEST) or 1)
    widths = [min(longest, -(-max(1, int(part[0])) // _BLOCK) * _BLOCK) for part in lengths.tensor_split(len(parts))]
    read = sum(len(part) * width for part, width in zip(parts, widths, strict=True))
    return list(parts) if read < (1 - _LEAST_SAVED) * texts * longest else []
