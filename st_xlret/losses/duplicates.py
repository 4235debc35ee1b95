"""Pairs of a batch that are translations of each other, and so no negatives."""

from __future__ import annotations

import torch
from torch import Tensor


def translation_groups(text: Tensor) -> Tensor:
    """Number the groups of pairs that hang together by a common text.

    Two pairs that share a sentence are two translations of one meaning: none of their rows is a negative of
    another. Passed as ``text`` to the functional losses, the numbers leave all of them out.

    Args:
        text: Text ids of the first column's N rows, then of the second's, integers (2N,).

    Returns:
        Group numbers, integers (2N,): the same for both sides of a pair.

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
