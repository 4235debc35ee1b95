"""The text columns of a batch: their sentence vectors, in one pass or in parts, their tags, and their encoder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import RandContext, has_static_embedding_input
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.util.distributed import all_gather, all_gather_with_grad, get_world_size
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

PASSAGE_TASK = "document"
TAGS = ("language_id", "document_id", "text_id")

_PARTS = 4  # More of them leave less padding, but smaller matrices take more time for each text.
_FEWEST = 8  # texts in a part
_BLOCK = 16  # Lengths of parts are multiples of it: each new length costs oneDNN and compilers time, and oneDNN memory.
_LEAST_SAVED = 0.2  # of a batch's tokens, padding included


def embed(
    model: nn.Module,
    features: dict[str, Any],
    mini_batch_size: int | None = None,
    *,
    mini_batch_num_tokens: int | None = None,
) -> Tensor:
    """Embed the texts of a column.

    A text that is shorter than the longest one of its batch is padded, and padding takes as much time as text. Where
    this saves a fifth of the tokens, a batch is read in up to four parts, each of texts of similar lengths and padded
    to its own longest text. Vectors and gradients are those of the whole batch, up to rounding and to which values
    dropout drops. Several processes read whole batches, since each pass exchanges messages.

    A batch of more than `mini_batch_size` texts or `mini_batch_num_tokens` tokens is cut into micro-batches of similar
    lengths. They first run without gradients, and once more in the backward pass, with the same dropout and autocast,
    each with the gradients of its vectors (gradient caching, Gao et al. 2021). This needs the memory of one
    micro-batch, takes about a quarter more time, and gives the gradients of a single pass.

    Args:
        model: The encoder.
        features: Features of the column.
        mini_batch_size: Texts per micro-batch; None for no gradient caching.
        mini_batch_num_tokens: Tokens per micro-batch, padding included, in its place. Several processes read whole
            batches.

    Returns:
        Sentence vectors (rows, d) in the order of the column.
    """
    cached = _micro_batches(features, mini_batch_size, mini_batch_num_tokens)
    parts = cached or parts_by_length(features)
    if not parts:
        return model(features)["sentence_embedding"]
    batches = [take_texts(features, rows, multiple=_BLOCK) for rows in parts]
    if cached and torch.is_grad_enabled():
        vectors = _with_gradients_later(model, batches)
    else:
        vectors = torch.cat([model(batch)["sentence_embedding"] for batch in batches])
    return vectors[torch.argsort(torch.cat(parts))]


def _micro_batches(features: dict[str, Any], size: int | None, tokens: int | None) -> list[Tensor]:
    """The rows of each micro-batch, the longest texts first; none if the batch is read at once."""
    tokens = tokens if get_world_size() == 1 else None
    if "attention_mask" not in features or not (size or tokens):
        return []
    lengths, order = _by_length(features)
    if size:
        return list(order.split(size))
    parts, start = [], 0
    while start < len(order):
        rows = max(1, (tokens or 0) // _in_blocks(int(lengths[start])))
        parts.append(order[start : start + rows])
        start += rows
    return parts if len(parts) > 1 else []


def check_mini_batch(model: SentenceTransformer, value: int | None, name: str = "mini_batch_size") -> int | None:
    """Check the size of a micro-batch; None for a `StaticEmbedding`, whose inputs have no padding."""
    if value is not None and value < 1:
        raise ValueError(f"{name} must be at least 1, or None for one pass, got {value}")
    if value is None or has_static_embedding_input(model):
        return None
    if isinstance(model[0], Transformer):
        # Micro-batches are cut out of the padded layout.
        model[0].unpad_inputs = False
    return value


def parts_by_length(features: dict[str, Any]) -> list[Tensor]:
    """The rows of each part of a padded batch, the longest texts first; none if it is better read as it is.

    Example:
        >>> mask = (torch.arange(64) < torch.tensor([[64]] * 4 + [[9]] * 12)).long()
        >>> [rows.tolist() for rows in parts_by_length({"input_ids": mask, "attention_mask": mask})]
        [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15]]
    """
    # The host merges what can be cut and put together by rows, unless a wrapper loss needs the columns as they are.
    if get_world_size() > 1 or "attention_mask" not in features or merge_feature_batches([features]) is None:
        return []
    texts, longest = features["attention_mask"].shape
    count = min(_PARTS, texts // _FEWEST)
    if count < 2:
        return []
    lengths, order = _by_length(features)
    parts = list(order.tensor_split(count))
    widths = [min(longest, _in_blocks(int(part[0]))) for part in lengths.tensor_split(count)]
    read = sum(len(part) * width for part, width in zip(parts, widths, strict=True))
    return parts if read <= (1 - _LEAST_SAVED) * texts * longest else []


def take_texts(features: dict[str, Any], rows: Tensor, *, multiple: int = 1) -> dict[str, Any]:
    """Select some texts of a column; padded ones are trimmed to the longest of them.

    Example:
        >>> ids = torch.tensor([[5, 0], [6, 7]])
        >>> take_texts({"input_ids": ids, "attention_mask": (ids > 0).long()}, torch.tensor([0]))["input_ids"].tolist()
        [[5]]
    """
    if "offsets" in features:
        ids = torch.tensor_split(features["input_ids"], features["offsets"][1:].cpu())
        chosen = [ids[row] for row in rows.tolist()]
        ends = torch.tensor([len(text) for text in chosen], device=rows.device).cumsum(0)
        return {**features, "input_ids": torch.cat(chosen), "offsets": torch.cat([ends[:1] * 0, ends[:-1]])}
    count, longest = features["attention_mask"].shape
    used = features["attention_mask"][rows].any(0).nonzero()
    width = min(longest, -(-(int(used.max()) + 1) // multiple) * multiple) if len(used) else longest
    taken = dict(features)
    for name, tensor in features.items():
        if isinstance(tensor, Tensor) and tensor.ndim and len(tensor) == count:
            # Padding before the texts stays: it tells positions.
            padded = tensor.ndim > 1 and tensor.shape[1] == longest
            taken[name] = tensor[rows, :width] if padded else tensor[rows]
    return taken


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


def backward_one_after_the_other(first: Tensor, then: Tensor) -> Tensor:
    """Return a scalar with the value of `then` whose `backward` runs that of `first` and afterwards that of `then`.

    It is for two losses on one encoder of which `then` has micro-batches. Their second runs must not meet the backward
    pass of `first`, and in distributed training the gradients of the encoder are exchanged once, at the end. Compute
    `first` before `then`, within `without_exchange`.

    Example:
        >>> x = torch.ones((), requires_grad=True)
        >>> backward_one_after_the_other(2 * x, 3 * x).backward()
        >>> x.grad
        tensor(5.)
    """
    both = then.detach().requires_grad_()

    def run(scale: Tensor) -> None:
        first.backward(scale)
        then.backward(scale)

    both.register_hook(run)
    return both


def without_exchange(model: nn.Module) -> AbstractContextManager:
    """Return a context in which passes through a distributed encoder leave its gradients on their rank."""
    # torch.compile wraps the distributed encoder.
    distributed = (module for module in model.modules() if isinstance(module, DistributedDataParallel))
    return next((module.no_sync() for module in distributed), nullcontext())


def _in_blocks(length: int) -> int:
    """The length that a text of so many tokens is padded to."""
    return max(1, -(-length // _BLOCK)) * _BLOCK


def _by_length(features: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Where each text of a padded column ends, the longest first, and the rows in that order."""
    mask = features["attention_mask"].bool()
    ends = (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1)
    return ends.sort(descending=True, stable=True)


def _with_gradients_later(model: nn.Module, batches: list[dict[str, Any]]) -> Tensor:
    """Vectors of micro-batches, whose gradient runs the micro-batches again and passes on to the encoder."""
    states, vectors = [], []
    with torch.no_grad():
        for batch in batches:
            states.append(RandContext(*batch.values()))
            vectors.append(model(dict(batch))["sentence_embedding"])
    whole = torch.cat(vectors).requires_grad_()
    device = whole.device.type
    # Without the cache: what it holds from the first run was cast without gradients.
    autocast: dict[str, Any] = {"enabled": torch.is_autocast_enabled(device), "cache_enabled": False}
    autocast["dtype"] = torch.get_autocast_dtype(device)

    def run_again(gradient: Tensor) -> None:
        parts = gradient.split([len(part) for part in vectors])
        for number, (batch, state, part) in enumerate(zip(batches, states, parts, strict=True), start=1):
            with without_exchange(model) if number < len(batches) else nullcontext():
                with torch.enable_grad(), state, torch.autocast(device, **autocast):
                    again = model(dict(batch))["sentence_embedding"]
                if again.requires_grad:
                    again.backward(part)

    whole.register_hook(run_again)
    return whole
