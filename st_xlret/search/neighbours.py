"""Cross-domain similarity local scaling (CSLS), and mutual nearest neighbours by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from st_xlret.search.blocks import unit_rows
from st_xlret.search.both_ways import neighbours_both_ways
from st_xlret.search.exact import top_k


class MutualNeighbours(NamedTuple):
    """Pairs of rows that are each other's nearest neighbours, ordered by source row.

    Attributes:
        source: Rows of the source, (P,) int64.
        target: The row of the target that each of them is matched with, (P,) int64.
        scores: CSLS of each match, (P,) float32.
    """

    source: Tensor
    target: Tensor
    scores: Tensor


def mean_neighbour_similarity(queries: Tensor, corpus: Tensor, k: int = 10, *, chunk_size: int = 1024) -> Tensor:
    """Mean cosine of each query with its k nearest rows of the corpus, which is r(x) in CSLS.

    Args:
        queries: (Q, d). Rows need not be normalised.
        corpus: (C, d).
        k: Number of neighbours in the mean; the whole corpus if it has fewer rows.
        chunk_size: Query rows compared at a time. Memory is `chunk_size x C`.

    Returns:
        (Q,) float32.

    Raises:
        ValueError: If an input is empty or not a matrix, the two differ in width, a row holds NaN or infinite values,
            or k is below 1.

    Example:
        >>> axes = torch.eye(3)
        >>> mean_neighbour_similarity(axes, axes, k=2)
        tensor([0.5000, 0.5000, 0.5000])
    """
    queries, corpus = _checked(queries, corpus, k)
    return top_k(queries, corpus, min(k, len(corpus)), query_chunk_size=chunk_size)[0].mean(dim=1)


def csls_scores(source: Tensor, target: Tensor, k: int = 10, *, chunk_size: int = 1024) -> Iterator[tuple[int, Tensor]]:
    """CSLS of every source row with every target row, one chunk of source rows at a time.

    `CSLS(x, y) = 2 cos(x, y) - r_T(x) - r_S(y)` (Conneau et al. 2018, section 2.3), where r_T(x) is the
    mean cosine of x with its k nearest target rows, and r_S(y) that of y with its k nearest source rows. Hubs, which
    are near to everything, thus lose their advantage.

    Args:
        source: (S, d).
        target: (T, d).
        k: Number of neighbours in r_T and r_S.
        chunk_size: Source rows per chunk. Memory is `chunk_size x T`, never S x T.

    Yields:
        The first row of the chunk and its scores, (rows, T) float32.

    Raises:
        ValueError: As `mean_neighbour_similarity`.

    Example:
        >>> for start, scores in csls_scores(torch.eye(2), torch.eye(2), k=1):
        ...     print(start, scores)
        0 tensor([[ 0., -2.],
                [-2.,  0.]])
    """
    for start, cosines, penalty in _cosine_chunks(source, target, k, chunk_size):
        yield start, cosines.mul_(2).sub_(penalty)


def csls_nearest(source: Tensor, target: Tensor, k: int = 10, *, chunk_size: int = 1024) -> tuple[Tensor, Tensor]:
    """The target row of highest CSLS for every source row, and the cosine of the two.

    Args:
        source: (S, d).
        target: (T, d).
        k: Neighbours in r_T and r_S.
        chunk_size: Source rows compared at a time.

    Returns:
        Target rows, (S,) int64, and cosines, (S,) float32.

    Raises:
        ValueError: As `mean_neighbour_similarity`.

    Example:
        >>> csls_nearest(torch.eye(2), torch.eye(2).flip(0), k=1)[0]
        tensor([1, 0])
    """
    nearest, similarity = [], []
    for _, cosines, penalty in _cosine_chunks(source, target, k, chunk_size):
        best = (2 * cosines - penalty).argmax(dim=1)
        nearest.append(best)
        similarity.append(cosines.gather(1, best[:, None])[:, 0])
    return torch.cat(nearest), torch.cat(similarity)


def mutual_nearest_neighbours(
    source: Tensor, target: Tensor, k: int = 10, *, chunk_size: int = 1024
) -> MutualNeighbours:
    """Pairs of rows that are each other's best match under CSLS.

    Args:
        source: (S, d).
        target: (T, d).
        k: Neighbours in r_T and r_S.
        chunk_size: Source rows compared at a time: memory is `chunk_size x T`, never S x T.

    Returns:
        The matches, possibly none. Of equal scores, the lower row wins.

    Raises:
        ValueError: As `mean_neighbour_similarity`.

    Example:
        >>> source = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.1, 1.0]])
        >>> target = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> matches = mutual_nearest_neighbours(source, target, k=1)
        >>> list(zip(matches.source.tolist(), matches.target.tolist()))
        [(0, 1), (1, 0)]
    """
    forward: list[Tensor] = []
    backward_score = torch.full((len(target),), float("-inf"), device=target.device)
    backward = torch.zeros(len(target), dtype=torch.long, device=target.device)
    forward_score: list[Tensor] = []
    for start, scores in csls_scores(source, target, k, chunk_size=chunk_size):
        row_best = scores.max(dim=1)
        forward.append(row_best.indices)
        forward_score.append(row_best.values)
        column_best = scores.max(dim=0)
        better = column_best.values > backward_score
        backward_score = torch.where(better, column_best.values, backward_score)
        backward = torch.where(better, column_best.indices + start, backward)
    best, best_score = torch.cat(forward), torch.cat(forward_score)
    rows = torch.arange(len(source), device=source.device)
    mutual = backward[best] == rows
    return MutualNeighbours(rows[mutual], best[mutual], best_score[mutual])


def _cosine_chunks(source: Tensor, target: Tensor, k: int, chunk_size: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """First row, cosines and r_T(x) + r_S(y) of each chunk of source rows."""
    source, target = _checked(source, target, k)
    found = neighbours_both_ways(source, target, k)
    source_mean, target_mean = found.forward_scores.mean(dim=1), found.backward_scores.mean(dim=1)
    for start in range(0, len(source), chunk_size):
        cosines = source[start : start + chunk_size] @ target.T
        yield start, cosines, source_mean[start : start + chunk_size, None] + target_mean


def _checked(source: Tensor, target: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Both as unit-length float32 rows."""
    if source.ndim != 2 or target.ndim != 2 or source.shape[1] != target.shape[1]:
        raise ValueError(
            f"expected two matrices of one width, got shapes {tuple(source.shape)} and {tuple(target.shape)}"
        )
    if not len(source) or not len(target):
        raise ValueError(f"nothing to compare: {len(source)} rows with {len(target)} rows")
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    return unit_rows(source, "source"), unit_rows(target, "target")
