"""Documents cut into blocks, and the blocks of a batch shared out to processes."""

from __future__ import annotations

import numpy as np


def cut_into_blocks(
    lengths: np.ndarray, size: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut documents into blocks; longer documents are cut every `size` sentences, from a random first border on.

    Args:
        lengths: Sentences of each document (documents,).
        size: Largest number of sentences in a block.
        generator: Source of randomness.

    Returns:
        For each block: the index of its document, its first sentence in the document, and its length.

    Example:
        >>> document, begin, length = cut_into_blocks(np.array([3, 10]), 4, np.random.default_rng(0))
        >>> document.tolist(), begin.tolist(), length.tolist()
        ([0, 1, 1, 1], [0, 0, 2, 6], [3, 2, 4, 4])
    """
    offset = np.where(lengths > size, generator.integers(0, size, len(lengths)), 0)
    count = (offset > 0) + -(-(lengths - offset) // size)
    document = np.repeat(np.arange(len(lengths)), count)
    number = np.arange(len(document)) - np.repeat(np.cumsum(count) - count, count)
    # The first block is the end of one that would begin before the document.
    origin = np.where(offset > 0, offset - size, 0)[document] + number * size
    begin = np.maximum(origin, 0)
    return document, begin, np.minimum(origin + size, lengths[document]) - begin


def share_blocks(lengths: np.ndarray, ranks: int) -> list[tuple[int, int]]:
    """Share the blocks of a batch out to processes: runs of blocks with about as many sentences each.

    Args:
        lengths: Sentences of each block.
        ranks: Number of processes.

    Returns:
        For each process, its first row of the batch and one past its last. No share is empty: the first blocks serve
        again where there are fewer blocks than processes.

    Example:
        >>> share_blocks(np.array([3, 2, 2, 4]), 2), share_blocks(np.array([3]), 2)
        ([(0, 5), (5, 11)], [(0, 3), (0, 3)])
    """
    ends = np.cumsum(lengths)
    blocks = len(ends)
    if blocks < ranks:
        return [(int(ends[i] - lengths[i]), int(ends[i])) for i in np.arange(ranks) % blocks]
    borders = [0]
    for rank in range(1, ranks):
        nearest = 1 + int(np.argmin(np.abs(ends - ends[-1] * rank / ranks)))
        borders.append(min(max(nearest, borders[-1] + 1), blocks - (ranks - rank)))
    rows = [0, *(int(ends[border - 1]) for border in borders[1:]), int(ends[-1])]
    return list(zip(rows[:-1], rows[1:], strict=True))
