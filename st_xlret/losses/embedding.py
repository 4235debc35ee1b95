"""Sentence vectors of the text columns of a batch, at once or in micro-batches, and the layout that these need."""

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from sentence_transformers.base.modules import Transformer
from sentence_transformers.util.distributed import get_world_size
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


def embed_columns(
    model: nn.Module,
    columns: list[dict[str, Any]],
    mini_batch_size: int | None = None,
    *,
    num_tokens: int | None = None,
) -> list[Tensor]:
    """The sentence vectors (rows, d) of text columns, which are read together where the host can merge them.

    A batch of more than `mini_batch_size` texts, or of more than `num_tokens` tokens with padding, is cut into
    micro-batches of similar lengths. Their activations are not kept: the backward pass runs each of them again with the
    same dropout and autocast (gradient caching, Gao et al. 2021, by checkpointing), for a quarter more time.
    """
    merged = merge_feature_batches(columns) if len(columns) > 1 else None
    if merged is not None:
        return list(
            embed_columns(model, [merged], mini_batch_size, num_tokens=num_tokens)[0].chunk(
                len(columns)
            )
        )
    return [_embed_column(model, features, mini_batch_size, num_tokens) for features in columns]


def _embed_column(
    model: nn.Module, features: dict[str, Any], size: int | None, num_tokens: int | None
) -> Tensor:
    if num_tokens is not None and "attention_mask" in features:
        size = max(1, num_tokens // features["attention_mask"].shape[1])
    parts = parts_by_length(features, size)
    if not parts:
        return model(features)["sentence_embedding"]

    def embed_rows(rows: Tensor, encoders: Iterator[nn.Module]) -> Tensor:
        return next(encoders)(select_texts(features, rows))["sentence_embedding"]

    # A second time, the encoder runs without its distributed wrapper: amid a backward pass that would start another.
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    vectors = []
    for rows in parts:
        part = rows, chain([model], repeat(inner))
        vectors.append(
            checkpoint(embed_rows, *part, use_reentrant=False) if size else embed_rows(*part)
        )
    return torch.cat(vectors)[torch.cat(parts).argsort()]


def parts_by_length(features: dict[str, Any], size: int | None = None) -> list[Tensor]:
    """The rows of each part of `size` texts, the longest first; none if the batch is read at once.

    Without a size, one process on a CPU reads 32 texts and more in four parts: padding takes as much time as text.
    """
    mask = features.get("attention_mask")
    if mask is None:  # the inputs of a static encoder have no padding
        return []
    if size is None and mask.device.type == "cpu" and get_world_size() == 1 and len(mask) >= 32:
        size = -(-len(mask) // 4)
    if size is None or len(mask) <= size:
        return []
    return list(mask.sum(1).argsort(descending=True, stable=True).split(size))


def select_texts(features: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    """Select some texts of a padded column, trimmed to the longest of them; padding before the texts stays."""
    shape = features["attention_mask"].shape
    ends = features["attention_mask"][rows].any(0).nonzero()
    # Multiples of 16: each new length costs oneDNN and compilers time, and oneDNN memory.
    width = min(shape[1], -(-(int(ends.max()) + 1) // 16) * 16) if len(ends) else shape[1]

    def select_rows(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.ndim or len(value) != shape[0]:
            return value
        return value[rows, :width] if value.shape[:2] == shape else value[rows]

    return {name: select_rows(value) for name, value in features.items()}


def keep_padding(model: SentenceTransformer, size: int | None) -> None:
    """Turn off the unpadding of Transformers if there is a size of micro-batches: padded rows are cut into them."""
    for module in model.modules() if size is not None else ():
        if isinstance(module, Transformer):
            module.unpad_inputs = False
