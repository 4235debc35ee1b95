"""The best of scores, of equal ones the first."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from st_xlret.search.finite import Device

_GROUP = 32  # columns of which only the maximum is looked at first
_LARGEST_INDEX = 2**32 - 1


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
        """Take a block of scores (rows, columns) into account."""
        self._columns = max(self._columns, first_column + scores.shape[1])
        keys = self._keys[first_row : first_row + len(scores)]
        _update_top_k(keys, scores, first_column)

    def sorted(self) -> tuple[Tensor, Tensor]:
        """Scores and columns, (rows, k or fewer), float32 and int64, best first.

        They are fewer where there were fewer columns. Scores that overflow are a `ValueError`.
        """
        found = self._keys.sort(descending=True).values
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
    return np.argpartition(scores, -k, axis=1)[:, -k:]


def best_of_groups(scores: NDArray[Any], groups: Sequence[Hashable], k: int) -> list[int]:
    """The places of the best scores of the k best groups, best first.

    Of equal scores, the first place counts.
    """
    chosen: list[int] = []
    seen: set[Hashable] = set()
    for place in np.argsort(-scores, kind="stable").tolist():
        if len(chosen) == k:
            break
        if groups[place] not in seen:
            seen.add(groups[place])
            chosen.append(place)
    return chosen


def merge_top_k(scores: Tensor, indices: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best of several searches' results for the same queries.

    Scores and indices are both (Q, n), n >= k.
    """
    keys = _sortable_keys(scores, indices)
    return _scores_and_indices(keys.topk(k, dim=1).values)


def _update_top_k(keys: Tensor, scores: Tensor, first_column: int) -> None:
    """Take a block of scores (rows, columns) into account, in place.

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
    worst_so_far = _scores_and_indices(keys.amin(dim=1, keepdim=True))[0]
    better = maxima > worst_so_far
    most_groups = min(k, int(better.sum(dim=1).max()))
    if most_groups == 0:
        return
    rows = better.any(dim=1).nonzero()[:, 0]
    group_numbers = torch.arange(maxima.shape[1], device=scores.device)
    group_keys = _sortable_keys(maxima[rows], group_numbers)
    best_group_keys = group_keys.topk(most_groups, sorted=False).values
    best_groups = _scores_and_indices(best_group_keys)[1]

    in_group = torch.arange(_GROUP, device=scores.device)
    columns = (best_groups[:, :, None] * _GROUP + in_group).flatten(1)
    candidates = groups[rows[:, None], best_groups].flatten(1)
    candidate_keys = _sortable_keys(candidates, columns + first_column)
    both = torch.cat([keys[rows], candidate_keys], dim=1)
    keys[rows] = both.topk(k, sorted=False).values


def _group_maxima(scores: Tensor, groups: Tensor) -> Tensor:
    if scores.stride(0) < scores.stride(1):
        # Transposed: a reduction into another memory order would be slow.
        return scores.T.unflatten(0, (-1, _GROUP)).amax(dim=1).T
    return groups.amax(dim=2)


def _require_no_overflow(scores: Tensor) -> None:
    if not bool(scores.isfinite().all()):
        raise ValueError(
            "the dot products overflow float32: normalise the rows first, see unit_rows."
        )


def _sortable_keys(scores: Tensor, indices: Tensor) -> Tensor:
    """Score and index as one int64: larger is a higher score or, among equals, a lower index."""
    bits = (scores + 0.0).view(torch.int32)  # adding zero turns -0.0 into 0.0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # negative floats count their bits downwards
    lower_index_is_larger = (~indices).to(torch.int32).expand_as(ordered)
    pairs = torch.stack([lower_index_is_larger, ordered], dim=-1)
    return pairs.view(torch.int64)[..., 0]


def _scores_and_indices(keys: Tensor) -> tuple[Tensor, Tensor]:
    ordered = (keys >> 32).to(torch.int32)
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    return bits.view(torch.float32), ~keys & _LARGEST_INDEX


_NOTHING = int(_sortable_keys(torch.tensor(-torch.inf), torch.tensor(_LARGEST_INDEX)))
