"""Sentence vectors of the text columns of a batch, at once or in micro-batches."""

from typing import Any, TypeAlias

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from sentence_transformers.base.modules import Transformer
from sentence_transformers.util.distributed import get_world_size
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from st_xlret.ranges import check_range

Features: TypeAlias = dict[str, Any]
"""What the encoder reads of one text column, and the tags of its rows."""


def embed_columns(
    model: nn.Module,
    columns: list[Features],
    mini_batch_size: int | None = None,
    *,
    num_tokens: int | None = None,
) -> list[Tensor]:
    """The sentence vectors (rows, d) of text columns, read together where the host merges them.

    A batch of more than `mini_batch_size` texts, or of more than `num_tokens` tokens with padding,
    is cut into micro-batches of similar lengths. Their activations are not kept: the backward pass
    runs each of them again with the same dropout and autocast (gradient caching, Gao et al. 2021,
    by checkpointing), for a quarter more time.
    """
    merged = None
    if len(columns) > 1:
        merged = merge_feature_batches(columns)
    if merged is not None:
        vectors = _embed_column(model, merged, mini_batch_size, num_tokens)
        return list(vectors.chunk(len(columns)))
    return [_embed_column(model, features, mini_batch_size, num_tokens) for features in columns]


def _embed_column(
    model: nn.Module, features: Features, size: int | None, num_tokens: int | None
) -> Tensor:
    """Vectors (n, d) of the texts of a column, in their order, a part of them at a time.

    Texts of like length go together; with a size, the backward pass computes each part again.
    """
    if num_tokens is not None and "attention_mask" in features:
        length = features["attention_mask"].shape[1]
        size = max(1, num_tokens // length)
    parts = parts_by_length(features, size)
    if not parts:
        return model(features)["sentence_embedding"]
    vectors = []
    for rows in parts:
        embed = _PartOfColumn(model, features)
        if size is None:
            vectors.append(embed(rows))
        else:
            vectors.append(checkpoint(embed, rows, use_reentrant=False))
    order = torch.cat(parts)
    return torch.cat(vectors)[order.argsort()]


class _PartOfColumn:
    """Embeds rows of a column, first by the wrapped encoder, and then by the encoder itself.

    The second time is amid a backward pass, in which a distributed wrapper would start another.
    """

    def __init__(self, model: nn.Module, features: Features) -> None:
        self.model = model
        self.features = features

    def __call__(self, rows: Tensor) -> Tensor:
        model = self.model
        if isinstance(model, DistributedDataParallel):
            self.model = model.module
        return model(select_texts(self.features, rows))["sentence_embedding"]


def parts_by_length(features: Features, size: int | None = None) -> list[Tensor]:
    """The rows of each part of `size` texts, the longest first; none if the batch is read at once.

    Without a size, one process on a CPU reads 32 texts and more in four parts: padding takes as
    much time as text.
    """
    mask = features.get("attention_mask")
    if mask is None:  # the inputs of a static encoder have no padding
        return []
    texts = len(mask)
    if size is None and mask.device.type == "cpu" and get_world_size() == 1 and texts >= 32:
        size = _divide_up(texts, 4)
    if size is None or texts <= size:
        return []
    lengths = mask.sum(1)
    return list(lengths.argsort(descending=True, stable=True).split(size))


def select_texts(features: Features, rows: Tensor) -> Features:
    """Select some texts of a padded column, trimmed to the longest of them.

    Padding before the texts stays.
    """
    mask = features["attention_mask"]
    texts, width = mask.shape
    places_with_tokens = mask[rows].any(0).nonzero()
    if len(places_with_tokens):
        end = int(places_with_tokens.max()) + 1
        # Multiples of 16: each new length costs oneDNN and compilers time, and oneDNN memory.
        width = min(width, 16 * _divide_up(end, 16))
    selected: Features = {}
    for name, value in features.items():
        if not isinstance(value, Tensor) or not value.ndim or len(value) != texts:
            selected[name] = value
        elif value.shape[:2] == mask.shape:
            selected[name] = value[rows, :width]
        else:
            selected[name] = value[rows]
    return selected


def _divide_up(number: int, divisor: int) -> int:
    return -(-number // divisor)


def keep_padding(model: SentenceTransformer, **mini_batch: float | None) -> None:
    """Turn off the unpadding of Transformers where padded rows are cut into micro-batches.

    `mini_batch` is the name and the value of the option; a `ValueError` refuses one below 1.
    """
    check_range(1, **mini_batch)
    if not any(mini_batch.values()):
        return
    for module in model.modules():
        if isinstance(module, Transformer):
            module.unpad_inputs = False
