"""Exact search by dot product, nearest neighbours of two sets in each other, and mining of translations.

Everything runs block by block: no score matrix is held as a whole. Of equal scores, the lower row comes first.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from tqdm.auto import tqdm

Matrix: TypeAlias = "np.ndarray | Tensor"
Rows: TypeAlias = "Matrix | Any"
"""A matrix in memory, or one with `shape` that is read by slices of consecutive rows, such as stored embeddings."""
Device: TypeAlias = "str | torch.device | None"
Margin = Literal["ratio", "distance", "absolute", "csls"]

_QUERIES_AT_ONCE, _ROWS_AT_ONCE = 512, 16_384
_BLOCK = 1_024  # Rows of the target at a time, on a CPU.
_GROUP = 32  # Columns of which only the maximum is looked at first.
_LARGEST_INDEX = 2**32 - 1
_FEW_QUERIES = 8


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


@torch.no_grad()
def top_k(
    queries: Matrix, corpus: Matrix | Iterable[Matrix], k: int, *, device: Device = None
) -> tuple[Tensor, Tensor]:
    """Find the k corpus rows with the highest dot product for every query. The search is exact.

    Gives scores and indices, (Q, k), float32 and int64, best first. A `ValueError` names rows that
    are not finite. To search by cosine, normalise both sides with `unit_rows` first.

    Args:
        queries: Shape (Q, d), NumPy or torch, any floating dtype.
        corpus: Shape (C, d), which may be a memory map, or an iterable of such chunks, read once.
        k: Neighbours per query, from 1 to C.
        device: Where the scores are computed. Default: the accelerator that an input is on, else
            the CPU.

    Example:
        >>> corpus = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> scores, indices = top_k(torch.tensor([[2.0, 1.0]]), corpus, k=2)
        >>> scores.tolist(), indices.tolist()
        ([[2.0, 2.0]], [[0, 2]])
    """
    place = _computing_device(device, queries, corpus)
    vectors = _finite_float32(queries, "queries", place)
    best = BestColumns(len(vectors), k, device=place)
    chunks = [corpus] if isinstance(corpus, (np.ndarray, Tensor)) else corpus
    seen = 0
    for chunk in chunks:
        for start in range(0, len(chunk), _ROWS_AT_ONCE):
            block = _finite_float32(chunk[start : start + _ROWS_AT_ONCE], "corpus", place, seen)
            for first in range(0, len(vectors), _QUERIES_AT_ONCE):
                some = vectors[first : first + _QUERIES_AT_ONCE]
                best.add(_dot_products(some, block), seen, first_row=first)
            seen += len(block)
    if k > seen:
        raise ValueError(f"k={k} is larger than the corpus of {seen} rows")
    return best.sorted()


def _dot_products(queries: Tensor, block: Tensor) -> Tensor:
    if 1 < len(queries) <= _FEW_QUERIES:  # the other way round is up to three times faster
        return (block @ queries.T).T
    return queries @ block.T


def merge_top_k(scores: Tensor, indices: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best of several searches' results for the same queries: scores and indices, both (Q, n), n >= k."""
    return _scores_and_indices(_sortable_keys(scores, indices).topk(k, dim=1).values)


def unit_rows(
    rows: Matrix, name: str = "embeddings", *, device: torch.device | None = None
) -> Tensor:
    """The rows (n, d) divided by their lengths, float32, to search by cosine. Rows of zeros stay, NaN is refused.

    Example:
        >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    return _finite_unit_rows(rows, name, _computing_device(device, rows), 0)


@torch.no_grad()
def neighbours_both_ways(
    source: Rows,
    target: Rows,
    k: int,
    *,
    cosine: bool = True,
    device: Device = None,
    show_progress_bar: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find the k nearest target rows of every source row, and vice versa, with one matrix product.

    The sides have the shapes (S, d) and (T, d). Without `cosine` they are compared by dot product.

    Returns scores and target rows of every source row, (S, min(k, T)), and scores and source rows of every target row,
    (T, min(k, S)), best first.
    """
    place, read = (
        _computing_device(device, source, target),
        _finite_unit_rows if cosine else _finite_float32,
    )
    wide = _BLOCK if place.type == "cpu" else 4 * _BLOCK
    high = (
        2 * wide
    )  # the target is read again for each block of the source, which therefore is larger
    forward = BestColumns(len(source), min(k, len(target)), device=place)
    backward = BestColumns(len(target), min(k, len(source)), device=place)
    with tqdm(desc="Mining", total=len(source), unit="row", disable=not show_progress_bar) as bar:
        for row in range(0, len(source), high):
            rows = read(source[row : row + high], "source", place, row)
            for column in range(0, len(target), wide):
                columns = read(target[column : column + wide], "target", place, column)
                # On the CPU, NumPy's BLAS gives equal rows equal bits.
                scores = (
                    torch.from_numpy(rows.numpy() @ columns.numpy().T)
                    if place.type == "cpu"
                    else rows @ columns.T
                )
                forward.add(scores, column, first_row=row)
                backward.add(scores.T, row, first_row=column)
            bar.update(len(rows))
    return *forward.sorted(), *backward.sorted()


class MinedPairs(NamedTuple):
    """Likely translations, best first, each row in one pair at most: scores (P,), and rows (P,) int64, on the CPU."""

    scores: Tensor
    source: Tensor
    target: Tensor


def mine_bitext(
    source: Rows,
    target: Rows,
    *,
    k: int = 4,
    margin: Margin = "ratio",
    threshold: float | None = None,
    device: Device = None,
    show_progress_bar: bool = False,
) -> list[tuple[float, int, int]]:
    """Find pairs (score, source row, target row) that are likely translations, best first, each row in one at most.

    Margin-based mining as in [Artetxe and Schwenk (2019)](https://arxiv.org/abs/1811.01136), section 4.3, and LASER.
    With m(x, y) the mean of two averages, the cosines of x with its k nearest target rows and of y with its k nearest
    source rows, a pair scores

    - `"ratio"`: cos(x, y) / m(x, y), where negative cosines count as 0 in m: a score is 2k at most; 0 where m is 0;
    - `"distance"`: cos(x, y) - m(x, y);
    - `"absolute"`: cos(x, y);
    - `"csls"`: 2 cos(x, y) - 2 m(x, y).

    Each row proposes the best of its k neighbours. The candidates are accepted greedily, best first, if neither of
    their rows is taken (LASER's `--retrieval max`). Mine distinct texts: copies crowd other rows out.

    The sides have the shapes (S, d) and (T, d), and need not be normalised. `threshold` is the lowest score of a pair.

    Example:
        >>> pairs = mine_bitext(torch.tensor([[1.0, 0.1], [0.1, 1.0], [1.0, 1.0]]), torch.eye(2), k=2)
        >>> [(round(score, 2), i, j) for score, i, j in pairs]
        [(1.42, 0, 0), (1.42, 1, 1)]
    """
    options: Any = {"k": k, "margin": margin, "threshold": threshold, "device": device}
    pairs = mine_pairs(source, target, **options, show_progress_bar=show_progress_bar)
    return list(zip(*(column.tolist() for column in pairs), strict=True))


def mine_pairs(
    source: Rows,
    target: Rows,
    *,
    k: int = 4,
    margin: Margin = "ratio",
    threshold: float | None = None,
    device: Device = None,
    show_progress_bar: bool = False,
) -> MinedPairs:
    """The same as [`mine_bitext`][st_xlret.search.mine_bitext] for millions of rows: three tensors are the result."""
    if not len(source) or not len(target):
        return MinedPairs(torch.empty(0), *torch.empty(2, 0, dtype=torch.int64))
    near = neighbours_both_ways(
        source, target, k, device=device, show_progress_bar=show_progress_bar
    )
    lowest = 0.0 if margin == "ratio" else -1.0
    forward_mean, backward_mean = (
        cosines.clamp(min=lowest).mean(dim=1) for cosines in (near[0], near[2])
    )
    score_a, j_a, i_a = _best_pairs(near[0], near[1], forward_mean, backward_mean, margin)
    score_b, i_b, j_b = _best_pairs(near[2], near[3], backward_mean, forward_mean, margin)
    return _one_to_one_pairs(
        torch.cat([score_a, score_b]), torch.cat([i_a, i_b]), torch.cat([j_a, j_b]), threshold
    )


def _best_pairs(
    cosines: Tensor, near: Tensor, mean: Tensor, other_mean: Tensor, margin: Margin
) -> tuple[Tensor, ...]:
    """Each row with that of its k neighbours (n, k) of best margin: scores, neighbours, and the rows 0 to n - 1."""
    means = (mean[:, None] + other_mean[near]) / 2
    if margin == "ratio":
        scores = torch.where(means > 0, cosines / means, 0.0)
    else:
        scores = (
            cosines
            if margin == "absolute"
            else (cosines - means) * {"distance": 1, "csls": 2}[margin]
        )
    best, place = scores.max(dim=1)
    return best, near.gather(1, place[:, None])[:, 0], torch.arange(len(best), device=best.device)


def _one_to_one_pairs(
    scores: Tensor, source: Tensor, target: Tensor, threshold: float | None
) -> MinedPairs:
    scores, source, target = scores.cpu(), source.cpu(), target.cpu()
    if threshold is not None:
        above = scores >= threshold
        scores, source, target = scores[above], source[above], target[above]
    order = torch.from_numpy(
        np.lexsort((target, source, -scores))
    )  # by score, then by source row, then by target row
    is_paired_source, is_paired_target = (
        bytearray(int(x.max()) + 1 if len(x) else 0) for x in (source, target)
    )
    accepted = array("q")
    for part in order.split(65_536):
        for place, i, j in zip(
            part.tolist(), source[part].tolist(), target[part].tolist(), strict=True
        ):
            if not is_paired_source[i] and not is_paired_target[j]:
                is_paired_source[i] = is_paired_target[j] = 1
                accepted.append(place)
    best = torch.tensor(accepted, dtype=torch.int64)
    return MinedPairs(scores[best], source[best], target[best])


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
    """Score and index as one int64: larger means a higher score or, among equals, a lower index."""
    bits = (scores + 0.0).view(torch.int32)  # adding zero turns -0.0 into 0.0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # negative floats count their bits downwards
    return torch.stack([(~indices).to(torch.int32).expand_as(ordered), ordered], dim=-1).view(
        torch.int64
    )[..., 0]


def _scores_and_indices(keys: Tensor) -> tuple[Tensor, Tensor]:
    ordered = (keys >> 32).to(torch.int32)
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(torch.float32), ~keys & _LARGEST_INDEX


_NOTHING = int(_sortable_keys(torch.tensor(-torch.inf), torch.tensor(_LARGEST_INDEX)))


def _computing_device(device: Device, *inputs: Any) -> torch.device:
    accelerators = (
        each.device for each in inputs if isinstance(each, Tensor) and each.device.type != "cpu"
    )
    return torch.device(device or next(accelerators, "cpu"))


def _finite_float32(rows: Matrix, name: str, device: torch.device, first_row: int = 0) -> Tensor:
    """The rows as float32 on the device; a `ValueError` names the first not finite, counted from `first_row`."""
    if isinstance(rows, np.ndarray):
        # A copy, as files are read-only; float16 is converted by PyTorch, which is faster.
        rows = torch.from_numpy(
            np.array(rows, dtype=None if rows.dtype == np.float16 else np.float32)
        )
    vectors = rows.detach().to(device=device, dtype=torch.float32)
    if not bool(
        vectors.sum().isfinite()
    ):  # a sum over values that are not all finite is not finite
        for row in (~vectors.isfinite().all(dim=1)).nonzero()[:1, 0].tolist():
            raise ValueError(
                f"{name} row {first_row + row} holds NaN or infinite values: drop it, or its text"
            )
    return vectors


def _finite_unit_rows(rows: Matrix, name: str, device: torch.device, first_row: int) -> Tensor:
    """`unit_rows` of a block that begins at `first_row` of its matrix, which is what an error counts from."""
    vectors = _finite_float32(rows, name, device, first_row)
    lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    if not bool(
        ((lengths > 1e-15) & (lengths < 1e18)).all()
    ):  # squares under- or overflow: rows would become zeros
        vectors = vectors / vectors.abs().amax(dim=1, keepdim=True).clamp(
            min=torch.finfo(torch.float32).tiny
        )
        lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return vectors / lengths.clamp(min=1e-30)
