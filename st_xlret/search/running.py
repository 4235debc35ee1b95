"""A running top-k: the best scores so far, updated block by block."""

from __future__ import annotations

import torch
from torch import Tensor

_INDEX_BITS = 32
LARGEST_CORPUS = 2**_INDEX_BITS - 1
_WORST_KEY = -(2**63)
_GROUP = 32
"""Number of columns of which only the maximum is compared at first. This costs 1 % of computing the block."""


class RunningTopK:
    """Keeps the k best (score, index) of every row; of equal scores, the lower index comes first.

    Blocks must come in ascending order of their columns. On the CPU, selecting the k best of every block would cost
    more than its matrix product. A block is therefore only searched for scores above the k-th best so far, of which
    there are few, one group of columns at a time.

    Args:
        rows: Number of rows.
        k: How many are kept.
        device: Where the blocks are.

    Example:
        >>> best = RunningTopK(1, 2, torch.device("cpu"))
        >>> best.update(torch.tensor([[1.0, 3.0]]), first_column=0)
        >>> best.update(torch.tensor([[2.0, 3.0]]), first_column=2)
        >>> best.result()
        (tensor([[3., 3.]]), tensor([[1, 3]]))
    """

    def __init__(self, rows: int, k: int, device: torch.device) -> None:
        self.k = k
        self.seen = 0
        self.keys = torch.full((rows, k), _WORST_KEY, dtype=torch.int64, device=device)
        self.threshold = torch.empty(0, device=device)

    def update(self, scores: Tensor, first_column: int) -> None:
        """Takes a block of scores into account.

        Args:
            scores: (rows, columns) float32, with any strides.
            first_column: The index of its first column; higher than those of all columns so far.
        """
        on_cpu, width = scores.device.type == "cpu", scores.shape[1]
        if on_cpu:
            # Whole groups come first. Of the very first block, a small part sets the threshold for the rest.
            part = width - width % _GROUP if self.seen >= self.k else max(8, -(-4 * self.k // _GROUP)) * _GROUP
            if 0 < part < width:
                self.update(scores[:, :part], first_column)
                self.update(scores[:, part:], first_column + part)
                return
        if on_cpu and self.seen >= self.k:
            self._add_better_ones(scores, first_column)
        else:
            keys = best_of_block(scores, self.k, first_column)
            self.keys = torch.cat([self.keys, keys], dim=1).topk(self.k, dim=1).values
            self.threshold = unpack_keys(self.keys[:, -1])[0]
        self.seen += width

    def result(self) -> tuple[Tensor, Tensor]:
        """Scores (rows, k) float32 and indices (rows, k) int64, best first; at least k columns were seen."""
        return unpack_keys(self.keys)

    def _add_better_ones(self, scores: Tensor, first_column: int) -> None:
        rows, columns = _above(scores, self.threshold)
        if not len(rows):
            return
        keys = sort_keys(scores[rows, columns], columns + first_column)
        changed, place, counts = torch.unique_consecutive(rows, return_inverse=True, return_counts=True)
        position = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[place]
        candidates = torch.full((len(changed), int(counts.max())), _WORST_KEY)
        candidates[place, position] = keys
        best = torch.cat([self.keys[changed], candidates], dim=1).topk(self.k, dim=1).values
        self.keys[changed] = best
        self.threshold[changed] = unpack_keys(best[:, -1])[0]


def _above(scores: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the scores above the threshold of their row, ordered by row."""
    if scores.shape[1] % _GROUP == 0:
        groups = scores.unflatten(1, (-1, _GROUP))
        row, group = _groups_above(groups, threshold)
        if 4 * len(row) * _GROUP < scores.numel():  # otherwise the whole block is faster
            which, offset = (groups[row, group] > threshold[row, None]).nonzero(as_tuple=True)
            return row[which], group[which] * _GROUP + offset
    return (scores > threshold[:, None]).contiguous().nonzero(as_tuple=True)  # type: ignore[return-value]


def _groups_above(groups: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and groups whose maximum is above the threshold of the row, ordered by row."""
    # A reduction whose result has another memory order than its input takes ten times as long.
    if groups.stride(0) < groups.stride(1):
        maxima = groups.permute(1, 2, 0).amax(dim=1)
        rows = (maxima.amax(dim=0) > threshold).nonzero()[:, 0]
        maxima = maxima[:, rows].T
    else:
        maxima = groups.amax(dim=2)
        rows = (maxima.amax(dim=1) > threshold).nonzero()[:, 0]
        maxima = maxima[rows]
    place, group = (maxima > threshold[rows, None]).contiguous().nonzero(as_tuple=True)
    return rows[place], group


def best_of_block(scores: Tensor, k: int, first_column: int) -> Tensor:
    """Sort keys of the k best columns of every row, or of all columns if there are fewer, in no particular order."""
    if k >= scores.shape[1]:
        columns = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
        return sort_keys(scores, columns + first_column)
    # torch.topk picks any of several equal scores. If the k-th equals the next, a stable sort decides.
    scores = scores.contiguous()
    values, columns = torch.topk(scores, k + 1, dim=1)
    tied = values[:, k - 1] == values[:, k]
    values, columns = values[:, :k], columns[:, :k]
    if bool(tied.any()):
        rows = tied.nonzero()[:, 0]
        columns = columns.clone()
        columns[rows] = torch.sort(scores[rows], dim=1, descending=True, stable=True).indices[:, :k]
    return sort_keys(values, columns + first_column)


def sort_keys(scores: Tensor, indices: Tensor) -> Tensor:
    """Packs score and index into one int64: larger means a higher score or, among equals, a lower index."""
    bits = (scores.contiguous() + 0.0).view(torch.int32).to(torch.int64)  # adding zero turns -0.0 into 0.0
    ordered = torch.where(bits < 0, -(bits + 2**31), bits)  # negative floats count their bits downwards
    return ordered * 2**_INDEX_BITS + (LARGEST_CORPUS - indices)


def unpack_keys(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Scores, float32, and indices, int64, of packed keys."""
    ordered = keys >> _INDEX_BITS
    indices = LARGEST_CORPUS - (keys & LARGEST_CORPUS)
    bits = torch.where(ordered < 0, -ordered - 2**31, ordered)
    return bits.to(torch.int32).view(torch.float32), indices
