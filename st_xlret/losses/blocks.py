"""Rows of a batch as ragged blocks of documents, and gathered from ranks with different numbers of rows."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sentence_transformers.util.distributed import all_gather, all_gather_with_grad
from torch import Tensor


def arrange_blocks(block: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
    """Which row of the batch stands at which place of which block.

    Args:
        block: Block id of each row, integers (S,); rows of a block may stand anywhere.
        position: Integers that grow along a block (S,); places are their ranks, so gaps do not matter.

    Returns:
        Rows (blocks, places), in the order of block ids, 0 at padding; and where there is one, boolean (blocks,
        places).

    Raises:
        ValueError: If two rows of a block have the same position.

    Example:
        >>> rows, present = arrange_blocks(torch.tensor([7, 3, 7]), torch.tensor([5, 0, 2]))
        >>> rows.tolist(), present.tolist()
        ([[1, 0], [2, 0]], [[True, False], [True, True]])
    """
    order = torch.argsort(position, stable=True)
    order = order[torch.argsort(block[order], stable=True)]
    sorted_block, sorted_position = block[order], position[order]
    twice = (sorted_block[1:] == sorted_block[:-1]) & (sorted_position[1:] == sorted_position[:-1])
    if twice.any():
        at = int(twice.nonzero()[0, 0])
        raise ValueError(
            f"block {int(sorted_block[at])} has two sentences at position {int(sorted_position[at])}: "
            "a batch may hold a block once"
        )
    _, number, counts = torch.unique_consecutive(sorted_block, return_inverse=True, return_counts=True)
    starts = counts.cumsum(0) - counts
    place = torch.arange(len(block), device=block.device) - starts[number]
    shape = (len(counts), int(counts.max()) if len(counts) else 0)
    rows = order.new_zeros(shape)
    present = torch.zeros(shape, dtype=torch.bool, device=block.device)
    rows[number, place], present[number, place] = order, True
    return rows, present


def gather_ragged(vectors: Tensor, flags: Tensor, tags: dict[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Rows of all ranks, one rank after the other, where ranks may have different numbers of rows.

    Args:
        vectors: Vectors (S, d); gradients flow back to the rank they came from.
        flags: Booleans (S,).
        tags: Integers (S,), of equal names on all ranks.

    Returns:
        The same of all ranks together.
    """
    rows = torch.tensor(len(vectors), device=vectors.device)
    most = rows.clone()
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    missing = int(most - rows)
    names = sorted(tags)
    integers = torch.stack([*(tags[name] for name in names), flags.long(), torch.ones_like(flags).long()], 1)
    integers = all_gather(F.pad(integers, (0, 0, 0, missing)))
    filled = integers[:, -1].bool()
    gathered = all_gather_with_grad(F.pad(vectors, (0, 0, 0, missing)).contiguous())
    columns = integers[filled].unbind(1)
    return gathered[filled], columns[-2].bool(), dict(zip(names, columns, strict=False))
