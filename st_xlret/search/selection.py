"""The best of scores, of equal ones the first."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from st_xlret.search.inputs import Device, check_k

_GROUP = 32  # columns of which only the maximum is looked at first
_LARGEST_INDEX = 2**32 - 1
_ALL_BUT_SIGN = 2**31 - 1


class BestColumns:
    """The k best columns of each row of scores that come block by block, of all rows or of some.

    Blocks of a row come in ascending order of their columns. Of equal scores, the lower column
    comes first.

    Args:
        rows: Rows of scores.
        k: Columns that are kept of each.
        device: Where the scores are.
    """

    def __init__(self, rows: int, k: int, *, device: Device = "cpu") -> None:
        self._keys = torch.full((rows, k), _NOTHING, device=device)
        self._columns = 0

    def add(self, scores: Tensor, first_column: int = 0, *, first_row: int = 0) -> None:
        """Take a block of scores (rows, columns) into account, of rows from `first_row` on.

        Its columns are numbered from `first_column`; each column is given once.
        """
        columns = first_column + scores.shape[1]
        self._columns = max(self._columns, columns)
        keys = self._keys[first_row : first_row + len(scores)]
        _update_top_k(keys, scores, first_column)

    def best_first(self) -> tuple[Tensor, Tensor]:
        """Scores and columns, (rows, k or fewer), float32 and int64, best first.

        They are fewer where there were fewer columns. Scores that overflow are a `ValueError`.
        """
        ordered = self._keys.sort(descending=True)
        found = ordered.values
        if len(found):
            found = found[:, : self._columns]
        scores, columns = _scores_and_indices(found)
        _require_no_overflow(scores)
        return scores, columns


def best_columns(scores: NDArray[Any], k: int) -> NDArray[np.int64]:
    """The k best columns (rows, k) of each row of a matrix that is there as a whole.

    They are in no order, and of equal scores any may be among them: where neither counts, this
    takes half the time of `BestColumns`.
    """
    columns = np.argpartition(scores, -k, axis=1)
    return columns[:, -k:]


def best_of_groups(scores: NDArray[Any], groups: Sequence[Hashable], k: int) -> list[int]:
    """The places of the best scores of the k best groups, or of all if they are fewer, best first.

    Of equal scores, the first place counts.
    """
    chosen: list[int] = []
    seen: set[Hashable] = set()
    best_first = np.argsort(-scores, kind="stable")
    for place in best_first.tolist():
        if len(chosen) == k:
            break
        if groups[place] not in seen:
            seen.add(groups[place])
            chosen.append(place)
    return chosen


def merge_top_k(scores: Tensor, indices: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best of several searches' results for the same queries, best first.

    Scores and indices are both (Q, n), n >= k; of equal scores, the lower index comes first.
    """
    check_k(k, indices.shape[1])
    keys = _sortable_keys(scores, indices)
    best = keys.topk(k, dim=1)
    return _scores_and_indices(best.values)


def _update_top_k(keys: Tensor, scores: Tensor, first_column: int) -> None:
    """Take a block of scores (rows, columns) into account, in the keys (rows, k), in place.

    The k best of a row are in the k groups of columns with the highest maxima, and none in groups
    at or below the row's k-th best so far. For k = 2, groups of 2 columns and 5 and 4 so far, the
    scores 1 9 | 3 2 | 6 7 leave the first and the third group, and 9 and 7 are the best. Selecting
    from whole blocks would cost more than their matrix product.
    """
    if not scores.numel():
        return
    missing = -scores.shape[1] % _GROUP
    if missing:
        scores = F.pad(scores, (0, missing), value=-torch.inf)
    groups = scores.unflatten(1, (-1, _GROUP))
    maxima = _group_maxima(scores, groups)
    if not bool(maxima.sum().isfinite()):
        _require_no_overflow(maxima)
    k = keys.shape[1]
    if len(keys) == 1 and maxima.shape[1] >= k:
        columns = _best_columns_of_one(maxima, k)
        _merge(keys, scores[:, columns], columns + first_column)
        return
    rows, best_groups = _best_groups(keys, maxima)
    if not len(rows):
        return
    in_group = torch.arange(_GROUP, device=scores.device)
    first_of_group = best_groups[:, :, None] * _GROUP
    columns = (first_of_group + in_group).flatten(1)
    candidates = groups[rows[:, None], best_groups]
    kept = keys[rows]
    _merge(kept, candidates.flatten(1), columns + first_column)
    keys[rows] = kept


def _merge(keys: Tensor, candidates: Tensor, columns: Tensor) -> None:
    """Keep the best of the keys (n, k) and of candidates (n, m), in place, in no order."""
    new_keys = _sortable_keys(candidates, columns)
    both = torch.cat([keys, new_keys], dim=1)
    best = both.topk(keys.shape[1], sorted=False)
    keys.copy_(best.values)


def _best_columns_of_one(maxima: Tensor, k: int) -> Tensor:
    """The columns of a single row's groups that are as high as its k-th group.

    One query is what a person waits for: this takes a third of the operations.
    """
    lowest = maxima.topk(k).values[0, -1]
    best_groups = (maxima[0] >= lowest).nonzero()
    first_of_group = best_groups * _GROUP
    in_group = torch.arange(_GROUP, device=maxima.device)
    return (first_of_group + in_group).flatten()


def _best_groups(keys: Tensor, maxima: Tensor) -> tuple[Tensor, Tensor]:
    """The rows (n,) that have groups above their k-th best so far, and their best groups (n, m)."""
    worst_keys = keys.amin(dim=1, keepdim=True)
    worst_so_far, _ = _scores_and_indices(worst_keys)
    is_better = maxima > worst_so_far
    most = int(is_better.sum(dim=1).max())
    rows = is_better.any(dim=1).nonzero()[:, 0]
    numbers = torch.arange(maxima.shape[1], device=maxima.device)
    group_keys = _sortable_keys(maxima[rows], numbers)
    count = min(keys.shape[1], most)
    best = group_keys.topk(count, sorted=False)
    _, best_groups = _scores_and_indices(best.values)
    return rows, best_groups


def _group_maxima(scores: Tensor, groups: Tensor) -> Tensor:
    """The maximum of each group of columns, (rows, groups)."""
    is_transposed = scores.stride(0) < scores.stride(1)
    if is_transposed:  # a reduction into another memory order would be slow
        groups = scores.T.unflatten(0, (-1, _GROUP))
        return groups.amax(dim=1).T
    return groups.amax(dim=2)


def _require_no_overflow(scores: Tensor) -> None:
    """Raise a `ValueError` if a score is infinite or NaN."""
    if not bool(scores.isfinite().all()):
        raise ValueError(
            "the dot products overflow float32: normalise the rows first, see unit_rows."
        )


def _sortable_keys(scores: Tensor, indices: Tensor) -> Tensor:
    """Score and index as one int64: larger is a higher score or, among equals, a lower index."""
    positive_zeros = scores + 0.0  # -0.0 becomes 0.0
    high = _as_ordered(positive_zeros.view(torch.int32))
    low = (~indices).to(torch.int32).expand_as(high)
    pairs = torch.stack([low, high], dim=-1)
    return pairs.view(torch.int64)[..., 0]


def _scores_and_indices(keys: Tensor) -> tuple[Tensor, Tensor]:
    """What `_sortable_keys` made keys of: scores in float32, and indices in int64."""
    high = (keys >> 32).to(torch.int32)
    scores = _as_ordered(high).view(torch.float32)
    return scores, ~keys & _LARGEST_INDEX


def _as_ordered(bits: Tensor) -> Tensor:
    """The bits of floats as whole numbers in their order, and back.

    Negative floats count their bits downwards.
    """
    sign = bits >> 31
    return bits ^ (sign & _ALL_BUT_SIGN)


_NOTHING = int(_sortable_keys(torch.tensor(-torch.inf), torch.tensor(_LARGEST_INDEX)))
