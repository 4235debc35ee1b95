"""The text columns of a batch: their embeddings, their tags, which of their rows share a text, and their encoder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from sentence_transformers.base.modules import Router
from sentence_transformers.util.distributed import all_gather, all_gather_with_grad, get_world_size
from torch import Tensor, nn

from st_xlret.losses.embedding import embed

PASSAGE_TASK = "document"
TAGS = ("language_id", "document_id", "text_id")


def embed_columns(
    model: nn.Module, columns: list[dict[str, Any]], *, mini_batch_num_tokens: int | None = None
) -> list[Tensor]:
    """Embed row-aligned text columns of one kind together, if their features allow it."""
    merged = merge_columns(columns) if len(columns) > 1 else None
    if merged is None:
        return [embed(model, features, mini_batch_num_tokens=mini_batch_num_tokens) for features in columns]
    vectors = embed(model, merged, mini_batch_num_tokens=mini_batch_num_tokens)
    return list(vectors.split([_rows(features) for features in columns]))


def _rows(features: dict[str, Any]) -> int:
    return len(features["offsets" if "offsets" in features else "input_ids"])


def merge_columns(columns: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Put the rows of text columns into one column, one after the other; None if their features do not allow it.

    The host merges padded inputs. It does not merge the flattened inputs of a `StaticEmbedding`, whose backward pass
    costs as much for one column as for all of them.
    """
    if not all("offsets" in features for features in columns):
        return merge_feature_batches(columns)
    if any(features.get("task") != columns[0].get("task") for features in columns):
        return None
    starts, tokens = [], 0
    for features in columns:
        starts.append(features["offsets"] + tokens)
        tokens += len(features["input_ids"])
    merged = {"input_ids": torch.cat([f["input_ids"] for f in columns]), "offsets": torch.cat(starts)}
    # A Router reads these.
    return merged | {key: columns[0][key] for key in ("task", "modality") if key in columns[0]}


def read_tags(features: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Collect the metadata tensors that the collator attached, one column after the other."""
    columns = list(features)
    return {tag: torch.cat([f[tag] for f in columns]) for tag in TAGS if all(tag in f for f in columns)}


def gather_columns(vectors: Sequence[Tensor], tags: dict[str, Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Gather the vectors of equally long columns from all ranks, and the tags of all columns in the same order."""
    if get_world_size() == 1:
        return list(vectors), tags
    parts = {name: tag.chunk(len(vectors)) for name, tag in tags.items()}
    tags = {name: torch.cat([all_gather(part.contiguous()) for part in parts[name]]) for name in tags}
    return [all_gather_with_grad(column) for column in vectors], tags


def translation_groups(text: Tensor) -> Tensor:
    """Number the groups of pairs that are connected by shared texts.

    Two pairs that share a sentence are two translations of one meaning, so none of their rows is a negative of
    another. Pass the group numbers as `text` to the functional losses to leave all of them out.

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


class PassageSide:
    """Sends text columns through the encoder of passages (lang-contrastive, section 4).

    A shared encoder needs nothing. With a `Router`, a column that was made for another route than that of
    `encode_document` is refused; one that names no route is taken where passages are the Router's default. A Router
    without the task "document" is left as it is.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        router = next((module for module in model.children() if isinstance(module, Router)), None)
        self.routed = router is not None and (
            PASSAGE_TASK in router.sub_modules or any(key[0] == PASSAGE_TASK for key in router.route_mappings)
        )
        self.by_default = router is None or (router.default_route == PASSAGE_TASK and not router.route_mappings)

    def __call__(self, columns: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the features of the columns, routed to the passage encoder."""
        if not self.routed:
            return columns
        for number, features in enumerate(columns):
            task = features.get("task")
            if task != PASSAGE_TASK and not (task is None and self.by_default):
                raise ValueError(
                    f"this loss acts on the passage encoder, and text column {number} was made for "
                    f"{'no route' if task is None else f'the route {task!r}'}: give the collator a router_mapping of "
                    f"its columns to {PASSAGE_TASK!r}, such as CrossLingualDataCollator(model.preprocess, "
                    f"router_mapping={{'source': {PASSAGE_TASK!r}, 'target': {PASSAGE_TASK!r}}})"
                )
        return [{**features, "task": PASSAGE_TASK} for features in columns]
