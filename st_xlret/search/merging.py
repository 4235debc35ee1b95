"""Merging the top-k of several shards, on one machine or across the ranks of torch.distributed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from st_xlret.search.running import sort_keys, unpack_keys


def merge_top_k(parts: Sequence[tuple[Tensor, Tensor]], k: int) -> tuple[Tensor, Tensor]:
    """Merge several results of `top_k` for the same queries.

    Args:
        parts: `(scores, indices)` of each shard, shapes (Q, k_i). Indices count over all shards (see `first_row` of
            `top_k`); a shard with fewer than k rows contributes all of them.
        k: Number of results per query.

    Returns:
        `(scores, indices)`, shapes (Q, k), as one search over all shards returns them.

    Raises:
        ValueError: If the parts are of different numbers of queries, or hold fewer than k results together.

    Example:
        >>> one = torch.tensor([[0.9, 0.1]]), torch.tensor([[4, 2]])
        >>> other = torch.tensor([[0.9, 0.5]]), torch.tensor([[10, 11]])
        >>> merge_top_k([one, other], k=3)
        (tensor([[0.9000, 0.9000, 0.5000]]), tensor([[ 4, 10, 11]]))
    """
    queries = {scores.shape[0] for scores, _ in parts}
    if len(queries) > 1:
        raise ValueError(f"the parts are results for {sorted(queries)} queries: search every shard for the same ones.")
    results = sum(scores.shape[1] for scores, _ in parts)
    if k < 1 or k > results:
        raise ValueError(f"k={k} of {results} results from {len(parts)} shards: k must be from 1 to {results}.")
    keys = torch.cat([sort_keys(scores.float(), indices) for scores, indices in parts], dim=1)
    return unpack_keys(keys.topk(k, dim=1).values)


def merge_top_k_across_ranks(scores: Tensor, indices: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Merge the results of all ranks of `torch.distributed`, on every rank.

    Each rank searches its own shards, with `first_row` so that indices count over the whole corpus, and all ranks
    call this function. A rank with fewer than k rows passes what it has, which may be nothing (shape (Q, 0)).
    Without a process group, or with one rank, the result is returned as it is.

    Args:
        scores: This rank's, shape (Q, k_rank), as from `top_k`; on a device that the process group's backend
            can send from (the GPU with NCCL).
        indices: This rank's, same shape.
        k: How many are kept.

    Returns:
        As `merge_top_k`, equal on all ranks, on the device of `scores`.

    Raises:
        ValueError: As `merge_top_k`, on every rank.

    Example:
        >>> from st_xlret.search import merge_top_k_across_ranks, top_k
        >>> scores, indices = top_k(torch.ones(1, 2), torch.ones(3, 2), 2, first_row=0)
        >>> merge_top_k_across_ranks(scores, indices, k=2)[1]
        tensor([[0, 1]])
    """
    if not (dist.is_available() and dist.is_initialized()):
        return merge_top_k([(scores, indices)], k)
    shape = torch.tensor(scores.shape, device=scores.device)
    shapes = [torch.empty_like(shape) for _ in range(dist.get_world_size())]
    dist.all_gather(shapes, shape)
    sizes = [tuple(each.tolist()) for each in shapes]
    if len({queries for queries, _ in sizes}) > 1:
        raise ValueError(f"the ranks have results for {[queries for queries, _ in sizes]} queries: give all the same.")
    # Ranks exchange tensors of one shape: the widest, of which each rank fills what it has.
    widest = max(width for _, width in sizes)
    keys = torch.zeros(scores.shape[0], widest, dtype=torch.int64, device=scores.device)
    keys[:, : scores.shape[1]] = sort_keys(scores.float(), indices)
    gathered = [torch.empty_like(keys) for _ in sizes]
    dist.all_gather(gathered, keys)
    parts = [unpack_keys(part[:, :width]) for part, (_, width) in zip(gathered, sizes, strict=True)]
    return merge_top_k(parts, k)
