"""The text columns of a batch: their embeddings, their metadata, and which of their rows share a text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers.base.losses.merged_forward import embed_columns
from sentence_transformers.util.distributed import all_gather, get_world_size
from torch import Tensor, nn

TAGS = ("language_id", "document_id", "text_id")


def embed_in_one_pass(model: nn.Module, columns: list[dict[str, Any]]) -> list[Tensor]:
    """Embed row-aligned text columns in one forward pass if their features allow it.

    The host merges padded inputs. It does not merge the flattened inputs of a `StaticEmbedding`, whose backward
    pass costs as much for one column as for all of them, so those are concatenated here.

    Args:
        model: The encoder.
        columns: One feature dict per text column.

    Returns:
        Sentence vectors (rows, d) of each column.
    """
    tasks = [features.get("task") for features in columns]
    mergeable = all("offsets" in features for features in columns) and tasks.count(tasks[0]) == len(tasks)
    if len(columns) == 1 or not mergeable:
        return embed_columns(model, columns, separate_first=False)
    starts, tokens = [], 0
    for features in columns:
        starts.append(features["offsets"] + tokens)
        tokens += len(features["input_ids"])
    merged = {"input_ids": torch.cat([f["input_ids"] for f in columns]), "offsets": torch.cat(starts)}
    # A Router reads these.
    merged |= {key: columns[0][key] for key in ("task", "modality") if key in columns[0]}
    vectors = model(merged)["sentence_embedding"]
    return list(vectors.split([len(start) for start in starts]))


def read_tags(features: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Collect the metadata tensors that the collator attached, one column after the other.

    Args:
        features: One feature dict per text column.

    Returns:
        Those of `language_id`, `document_id` and `text_id` that every column has, each with one integer per row of
        all columns.
    """
    columns = list(features)
    return {tag: torch.cat([f[tag] for f in columns]) for tag in TAGS if all(tag in f for f in columns)}


def gather_tags(tags: dict[str, Tensor], columns: int) -> dict[str, Tensor]:
    """Gather the tags of all ranks in the order of the gathered embeddings of `columns` equally long columns."""
    if get_world_size() == 1:
        return tags
    return {k: torch.cat([all_gather(part.contiguous()) for part in v.chunk(columns)]) for k, v in tags.items()}


def translation_groups(text: Tensor) -> Tensor:
    """Number the groups of pairs that are connected by shared texts.

    Two pairs that share a sentence are two translations of one meaning, so none of their rows is a negative of
    another. Pass the group numbers as `text` to the functional losses to leave all of them out.

    Args:
        text: Text ids of the first column's N rows followed by the second's, integers (2N,).

    Returns:
        Group numbers, integers (2N,), equal for both sides of a pair.

    Example:
        >>> translation_groups(torch.tensor([1, 2, 1, 5, 6, 7])).tolist()   # pairs (1, 5), (2, 6), (1, 7)
        [0, 1, 0, 0, 1, 0]
    """
    pairs = len(text) // 2
    distinct, code = text.unique(return_inverse=True)
    group = torch.arange(pairs, device=text.device).repeat(2)
    while True:
        lowest = group.new_full(distinct.shape, pairs).scatter_reduce(0, code, group, "amin")[code]
        joined = torch.minimum(lowest[:pairs], lowest[pairs:]).repeat(2)
        if torch.equal(joined, group):
            return group
        group = joined
