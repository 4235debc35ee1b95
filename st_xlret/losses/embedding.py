"""Embedding the text columns of a batch in one forward pass."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.base.losses.merged_forward import embed_columns
from torch import Tensor, nn


def embed_in_one_pass(model: nn.Module, columns: list[dict[str, Any]]) -> list[Tensor]:
    """Embed row-aligned text columns together, where their features allow it.

    Padded inputs are merged by the host. It does not merge the flattened inputs of a ``StaticEmbedding``,
    whose backward pass costs as much for one column as for all: those are put one behind the other here.

    Args:
        model: The encoder.
        columns: One feature dict per text column.

    Returns:
        Sentence vectors (rows, features) of each column.
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
