"""Rows of a batch as ragged blocks of documents: arranged, checked, and gathered from ranks of different lengths."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sentence_transformers.util.distributed import all_gather, all_gather_with_grad
from torch import Tensor

WAY_OUT = "draw the batches with BlockBatchSampler (batch_sampler=BlockBatchSampler in the training arguments)"


def arrange_blocks(block: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
    """Find which row of the batch stands at which place of which block.

    Args:
        block: Block id of each row, integers (S,). The rows of a block may be anywhere in the batch.
        position: Integers that grow along a block (S,). Places are their ranks.

    Returns:
        Rows (blocks, places) in the order of block ids, 0 at padding, and a boolean mask (blocks, places) that is
        True where there is a row.

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
            f"block {int(sorted_block[at])} has two sentences at position {int(sorted_position[at])}, and a batch may "
            f"contain a block once: {WAY_OUT}"
        )
    _, number, counts = torch.unique_consecutive(sorted_block, return_inverse=True, return_counts=True)
    starts = counts.cumsum(0) - counts
    place = torch.arange(len(block), device=block.device) - starts[number]
    shape = (len(counts), int(counts.max()) if len(counts) else 0)
    rows = order.new_zeros(shape)
    present = torch.zeros(shape, dtype=torch.bool, device=block.device)
    rows[number, place], present[number, place] = order, True
    return rows, present


def check_blocks(rows: Tensor, present: Tensor, tags: dict[str, Tensor]) -> None:
    """Refuse blocks that mix documents or languages: on them the loss would teach nonsense without an error.

    Args:
        rows: Which row stands at which place of which block (blocks, places).
        present: Where there is one, boolean (blocks, places).
        tags: Ids of the rows (S,). `document_id` and `language_id` are read if they are given.

    Raises:
        ValueError: If a block has sentences of two documents or languages.
    """
    for kind in ("document", "language"):
        if f"{kind}_id" not in tags:
            continue
        ids = tags[f"{kind}_id"][rows]
        mixed = ((ids != ids[:, :1]) & present).any(1)
        if mixed.any():
            block = int(mixed.nonzero()[0])
            found = ids[block][present[block]].unique().tolist()
            raise ValueError(
                f"block {block} of the batch has sentences of {len(found)} {kind}s (ids {found[:4]}), and a block is "
                f"a run of one document's sentences: {WAY_OUT}"
            )


def check_neighbours(rows: Tensor, present: Tensor, position: Tensor) -> None:
    """Refuse blocks that are scattered sentences of a document, as any other sampler would draw them.

    Args:
        rows: Which row stands at which place of which block (blocks, places).
        present: Where there is one, boolean (blocks, places).
        position: Number of each row's sentence in its document (S,).

    Raises:
        ValueError: If less than half of the neighbours in the blocks are consecutive sentences.
    """
    both = present[:, 1:]
    steps = position[rows[:, 1:]] - position[rows[:, :-1]]
    consecutive, neighbours = int(((steps == 1) & both).sum()), int(both.sum())
    if 2 * consecutive < neighbours:
        raise ValueError(
            f"of {neighbours} neighbours in the blocks of this batch {consecutive} are consecutive sentences (their "
            f"'position' differs by 1), so these are not runs of a document's sentences: {WAY_OUT}"
        )


def gather_ragged(vectors: Tensor, flags: Tensor, tags: dict[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Gather the rows of all ranks, one rank after the other. Ranks may have different numbers of rows.

    Args:
        vectors: Vectors (S, d). Gradients flow back to the rank that they came from.
        flags: Booleans (S,).
        tags: Integers (S,), with the same names on all ranks.

    Returns:
        Vectors, flags and tags of all ranks.
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
