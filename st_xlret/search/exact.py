"""Exact search by dot product, in one direction or in both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.search.inputs import (
    Device,
    Embeddings,
    as_float32,
    check_k,
    check_matrix,
    computing_device,
    finite_float32,
    finite_unit_rows,
    is_read_in_place,
    refuse_not_finite,
)
from st_xlret.search.selection import BestColumns

SlicedEmbeddings: TypeAlias = "Embeddings | Any"
"""A matrix, or what has `shape` and is read by slices of consecutive rows: stored embeddings."""

_QUERIES_AT_ONCE = 512
_SCORES_AT_ONCE = 2**21  # on a CPU, whose caches larger blocks of scores do not fit
_ROWS_AT_ONCE = 16_384  # at most, where they have to be converted
_ROWS_PER_RESULT = 160  # of smaller blocks, most columns would be selected from
_BLOCK = 1_024  # rows of the target at a time, on a CPU
_FEW_QUERIES = 8


@torch.no_grad()
def top_k(
    queries: Embeddings,
    corpus: Embeddings | Iterable[Embeddings],
    k: int,
    *,
    device: Device = None,
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
    check_k(k)
    chunks = corpus
    if isinstance(corpus, (np.ndarray, Tensor)):
        check_k(k, len(corpus))
        chunks = [corpus]
    check_matrix(queries, "queries")
    place = computing_device(device, queries, corpus)
    vectors = finite_float32(queries, "queries", place)
    best = BestColumns(len(vectors), k, device=place)
    seen = 0
    for chunk in chunks:
        check_matrix(chunk, "corpus", vectors.shape[1])
        high = _rows_at_once(len(vectors), k, is_read_in_place(chunk, place), place)
        for start in range(0, len(chunk), high):
            block = as_float32(chunk[start : start + high], place)
            for first in range(0, len(vectors), _QUERIES_AT_ONCE):
                some = vectors[first : first + _QUERIES_AT_ONCE]
                scores = _dot_products(some, block)
                # A row that is not finite has no finite product with any query: one tells.
                if first == 0 and not bool(scores[0].sum().isfinite()):
                    refuse_not_finite(block, "corpus", seen)
                best.add(scores, seen, first_row=first)
            seen += len(block)
    check_k(k, seen)
    return best.best_first()


def _rows_at_once(queries: int, k: int, is_in_place: bool, device: torch.device) -> int:
    """Rows of the corpus that are searched at once, which decides time and memory, not results.

    They are the more, the fewer queries there are, and the more results.
    """
    scores = _SCORES_AT_ONCE if device.type == "cpu" else 4 * _SCORES_AT_ONCE
    rows = scores // max(1, min(queries, _QUERIES_AT_ONCE))
    fewest = min(k * _ROWS_PER_RESULT, _ROWS_AT_ONCE)
    if is_in_place:
        return max(rows, fewest)
    return max(min(rows, _ROWS_AT_ONCE), fewest)


def _dot_products(queries: Tensor, block: Tensor) -> Tensor:
    """The scores (queries, rows), of few queries as a transposed view."""
    if 1 < len(queries) <= _FEW_QUERIES:  # the other way round is up to three times faster
        return (block @ queries.T).T
    return queries @ block.T


class NeighboursBothWays(NamedTuple):
    """The nearest rows of each row of two sides, best first.

    Attributes:
        scores: Of every source row (S, min(k, T)).
        target_rows: Likewise.
        scores_back: Of every target row (T, min(k, S)).
        source_rows: Likewise.
    """

    scores: Tensor
    target_rows: Tensor
    scores_back: Tensor
    source_rows: Tensor


@torch.no_grad()
def neighbours_both_ways(
    source: SlicedEmbeddings,
    target: SlicedEmbeddings,
    k: int,
    *,
    cosine: bool = True,
    device: Device = None,
    show_progress_bar: bool = False,
) -> NeighboursBothWays:
    """Find the k nearest target rows of every source row, and vice versa, with one matrix product.

    The sides have the shapes (S, d) and (T, d). Without `cosine` they are compared by dot product.
    A `ValueError` names rows that are not finite.
    """
    check_k(k)
    check_matrix(source, "source")
    check_matrix(target, "target", source.shape[1])
    place = computing_device(device, source, target)
    read = finite_unit_rows if cosine else finite_float32
    wide = _BLOCK if place.type == "cpu" else 4 * _BLOCK
    high = 2 * wide  # larger, as the target is read again for each block of the source
    forward = BestColumns(len(source), min(k, len(target)), device=place)
    backward = BestColumns(len(target), min(k, len(source)), device=place)
    with tqdm(desc="Mining", total=len(source), unit="row", disable=not show_progress_bar) as bar:
        for row in range(0, len(source), high):
            rows = read(source[row : row + high], "source", place, row)
            for column in range(0, len(target), wide):
                columns = read(target[column : column + wide], "target", place, column)
                scores = _equal_dot_products(rows, columns)
                forward.add(scores, column, first_row=row)
                backward.add(scores.T, row, first_row=column)
            bar.update(len(rows))
    return NeighboursBothWays(*forward.best_first(), *backward.best_first())


def _equal_dot_products(rows: Tensor, columns: Tensor) -> Tensor:
    """The dot products; on the CPU by NumPy, whose BLAS gives equal rows equal bits."""
    if rows.device.type == "cpu":
        return torch.from_numpy(rows.numpy() @ columns.numpy().T)
    return rows @ columns.T
