"""Approximate top-k search with a faiss index, for corpora on which an exact search takes too long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.search.blocks import (
    Corpus,
    Rows,
    RowsOnDisk,
    UnitRows,
    as_float32,
    check_rows,
    corpus_blocks,
    require_finite,
)
from st_xlret.search.both_ways import NeighboursBothWays
from st_xlret.search.exact import top_k
from st_xlret.search.running import sort_keys, unpack_keys

_BLOCK = 65_536
_TRAINING_ROWS_PER_LIST = 64  # faiss asks for at least 39


class ApproximateTopK(NamedTuple):
    """The result of an approximate search, with its recall.

    Attributes:
        scores: (Q, k) float32, exact dot products of the rows found, best first.
        indices: (Q, k) int64; -1 (with the score -inf) where the index found fewer than k rows.
        recall: Share of the exact k nearest rows that were found, averaged over the queries on which it was measured.
        index_used: The faiss index and its search parameters.
    """

    scores: Tensor
    indices: Tensor
    recall: float
    index_used: str


@torch.no_grad()
def approximate_top_k(
    queries: Rows,
    corpus: Corpus,
    k: int,
    *,
    index: str | None = None,
    parameters: str | None = None,
    rescored: int = 4,
    recall_queries: int = 100,
    seed: int = 0,
    show_progress_bar: bool = False,
) -> ApproximateTopK:
    """Find most of the k corpus rows with the highest dot product for every query, and measure the recall.

    A faiss index proposes candidates, which are then ranked by their exact dot products. By default the index is in
    memory and takes one byte per dimension. Building it reads the corpus twice, and measuring the recall costs an
    exact search for each measured query, so an index pays off for many thousands of queries.

    Measured on 120 000 vectors of real sentences (latent semantic analysis, 384 dimensions, 1 000 queries), the default
    index found 97.8 % of the 10 nearest rows, with `nprobe=8` 88.1 % and with `nprobe=128` 99.6 %:
    `python -m benchmarks.approximate_search DOCUMENTS --limit 121000`.

    Args:
        queries: Shape (Q, d), in memory or read by slices.
        corpus: Shape (C, d), or chunks as for `top_k`. It is read once for every 65 536 queries, and three times more:
            pass a list of memory maps, not a generator.
        k: Neighbours per query, from 1 to C.
        index: A faiss factory string, such as `"HNSW32"`. Default: `"IVF{n},SQ8"` with n about
            4 times the square root of C.
        parameters: Search parameters in faiss's notation, such as `"nprobe=64"` or `"efSearch=200"`. Higher values
            find more and take longer. Default: `"nprobe=32"` for IVF indexes.
        rescored: How many candidates per query are scored exactly, in multiples of k.
        recall_queries: Number of queries, evenly spaced, that are searched exactly as well to measure the recall.
        seed: Seed of the choice of rows on which the index is trained.
        show_progress_bar: Whether to show a bar over the queries.

    Returns:
        Scores, indices, recall and the index's name, on the CPU.

    Raises:
        ValueError: As `top_k`; if the corpus can be read only once, or an option is below 1.

    Example:
        >>> corpus = torch.nn.functional.normalize(torch.randn(500, 8, generator=torch.manual_seed(0)))
        >>> found = approximate_top_k(corpus[:5], corpus, 3, parameters="nprobe=1000")
        >>> found.recall, found.indices[:, 0].tolist(), found.index_used
        (1.0, [0, 1, 2, 3, 4], 'IVF7,SQ8 nprobe=1000')
    """
    import faiss

    if isinstance(corpus, Iterator):
        raise ValueError("the corpus is read several times: give an array or a list of chunks, not a generator.")
    if min(k, rescored, recall_queries) < 1:
        raise ValueError(f"k, rescored and recall_queries must be at least 1, got {(k, rescored, recall_queries)}.")
    check_rows(queries, "queries")
    is_matrix = isinstance(corpus, (np.ndarray, Tensor, RowsOnDisk))
    size = len(corpus) if is_matrix else sum(len(chunk) for chunk in corpus)  # type: ignore[arg-type]
    if k > size:
        raise ValueError(f"k={k} is larger than the corpus of {size} rows: ask for k=min(k, len(corpus)) at most.")
    if not len(queries):
        return ApproximateTopK(torch.empty(0, k), torch.empty(0, k, dtype=torch.int64), float("nan"), index or "none")

    lists = max(1, min(int(4 * size**0.5), size // _TRAINING_ROWS_PER_LIST))
    factory = index if index is not None else f"IVF{lists},SQ8"
    built = _build(factory, corpus, size, queries.shape[1], seed)
    setting = parameters if parameters is not None else "nprobe=32" if factory.startswith("IVF") else ""
    if setting:
        space: Any = faiss.ParameterSpace()
        space.set_index_parameters(built, setting)
    scores, indices = torch.empty(len(queries), k), torch.empty(len(queries), k, dtype=torch.int64)
    measured = torch.linspace(0, len(queries) - 1, min(recall_queries, len(queries))).long()
    samples = []
    with tqdm(desc="Search", total=len(queries), unit="row", disable=not show_progress_bar) as progress:
        for start in range(0, len(queries), _BLOCK):
            part = slice(start, start + _BLOCK)
            vectors = as_float32(queries[part], torch.device("cpu"))
            require_finite(vectors, start, "queries")
            candidates = torch.from_numpy(built.search(vectors.numpy(), min(rescored * k, size))[1])
            scores[part], indices[part] = _rescored(vectors, corpus, candidates, k)
            samples.append(vectors[measured[(measured >= start) & (measured < start + len(vectors))] - start])
            progress.update(len(vectors))

    exact = top_k(torch.cat(samples), corpus, k, device="cpu")[1]
    found = (exact[:, :, None] == indices[measured][:, None, :]).any(dim=2)
    return ApproximateTopK(scores, indices, float(found.float().mean()), f"{factory} {setting}".strip())


def approximate_neighbours_both_ways(
    source: Rows, target: Rows, k: int = 4, *, show_progress_bar: bool = False
) -> NeighboursBothWays:
    """Find most of the k nearest target rows of every source row by cosine, and vice versa, by two faiss searches.

    Args:
        source: Shape (S, d), in memory or read by slices.
        target: Shape (T, d).
        k: Number of neighbours. A side with fewer rows gives all of them.
        show_progress_bar: Whether to show a bar over the rows of each side, and the recall of each search.

    Returns:
        The neighbours of both sides, on the CPU. Where the index found fewer than k, the nearest one fills up.

    Raises:
        ValueError: As `neighbours_both_ways`.

    Example:
        >>> approximate_neighbours_both_ways(torch.eye(3), torch.eye(3), k=1).forward.T.tolist()
        [[0, 1, 2]]
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}.")
    check_rows(source, "the source")
    check_rows(target, "the target")
    sides = UnitRows(source, "source"), UnitRows(target, "target")
    results: list[Tensor] = []
    for queries, corpus in (sides, sides[::-1]):
        found = approximate_top_k(queries, corpus, min(k, len(corpus)), show_progress_bar=show_progress_bar)
        if show_progress_bar:
            tqdm.write(f"{found.index_used}: {100 * found.recall:.1f} % of the nearest neighbours were found")
        missing = found.indices < 0
        nearest = found.scores[:, :1].clamp(min=-1), found.indices[:, :1].clamp(min=0)
        results += [torch.where(missing, nearest[0], found.scores), torch.where(missing, nearest[1], found.indices)]
    return NeighboursBothWays(*results)


def _build(factory: str, corpus: Corpus, size: int, dimension: int, seed: int) -> Any:
    import faiss

    built = faiss.index_factory(dimension, factory, faiss.METRIC_INNER_PRODUCT)
    wanted = _TRAINING_ROWS_PER_LIST * max(1_024, int(4 * size**0.5))
    generator = torch.Generator().manual_seed(seed)
    if not built.is_trained:
        sample = []
        for _, block in corpus_blocks(corpus, _BLOCK, dimension, torch.device("cpu")):
            chosen = torch.rand(len(block), generator=generator) <= wanted / size
            sample.append(block[chosen])
        built.train(torch.cat(sample).numpy())
    for _, block in corpus_blocks(corpus, _BLOCK, dimension, torch.device("cpu")):
        built.add(block.contiguous().numpy())
    return built


def _rescored(queries: Tensor, corpus: Corpus, candidates: Tensor, k: int) -> tuple[Tensor, Tensor]:
    scores = torch.full(candidates.shape, -torch.inf)
    for first_row, block in corpus_blocks(corpus, _BLOCK, queries.shape[1], torch.device("cpu")):
        inside = (candidates >= first_row) & (candidates < first_row + len(block))
        for query, place in zip(*(part.split(_BLOCK) for part in inside.nonzero(as_tuple=True)), strict=True):
            rows = block[candidates[query, place] - first_row]
            scores[query, place] = (queries[query] * rows).sum(dim=1)
    best, indices = unpack_keys(sort_keys(scores, candidates.clamp(min=0)).topk(k, dim=1).values)
    return best, indices.masked_fill(best == -torch.inf, -1)
