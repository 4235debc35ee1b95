"""Time and peak memory of top_k and mine_bitext against Sentence Transformers and faiss.

    OMP_NUM_THREADS=1 python -m benchmarks.search --output runs/search.json

Given embeddings, exact search, one thread. Queries and corpus are not part of the memory, except that a corpus on disk
starts on disk, so that what stays of it in memory counts. The whole needs 10 GB of memory and 4 GB of disk.
"""

import tempfile
from functools import partial
from typing import Any

import faiss
import numpy as np
import torch
from sentence_transformers import util
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks import measuring
from benchmarks.measuring import Comparison, Step
from st_xlret.search import mine_bitext, top_k

QUERIES, ROWS, DIMENSION, K = 1_000, 1_000_000, 384, 100
_ROWS_AT_ONCE = 65_536


def unit_vectors(rows: int, seed: int) -> Tensor:
    """Random rows of unit length."""
    return normalize(
        torch.randn(rows, DIMENSION, generator=torch.Generator().manual_seed(seed)), dim=1
    )


def fill(corpus: Any) -> Any:
    """Put a block of vectors after the other into a corpus, and return it."""
    for start in range(0, len(corpus), _ROWS_AT_ONCE):
        corpus[start : start + _ROWS_AT_ONCE] = unit_vectors(
            min(_ROWS_AT_ONCE, len(corpus) - start), seed=start
        )
    return corpus


def in_memory(ours: bool) -> Step:
    """`top_k` over a float32 corpus in memory, or the host's `util.semantic_search` with its default chunks."""
    queries, corpus = unit_vectors(QUERIES, seed=-1), fill(torch.empty(ROWS, DIMENSION))
    if ours:
        return lambda: top_k(queries, corpus, K)
    return lambda: util.semantic_search(queries, corpus, top_k=K, score_function=util.dot_score)


def from_disk(rows: int) -> Step:
    """`top_k` over a float16 memory map."""
    queries = unit_vectors(QUERIES, seed=-1)
    with tempfile.NamedTemporaryFile(
        suffix=".npy"
    ) as file:  # mapped, it stays until the process ends
        fill(
            np.lib.format.open_memmap(
                file.name, mode="w+", dtype=np.float16, shape=(rows, DIMENSION)
            )
        ).flush()
        corpus = np.load(file.name, mmap_mode="r")
    return lambda: top_k(queries, corpus, K)


def two_sides(rows: int, dimension: int = 768) -> tuple[Tensor, Tensor]:
    """Unit vectors; a fifth of the rows of either side are noisy copies of one another."""
    generator = torch.Generator().manual_seed(0)
    source, target, noise = (torch.randn(rows, dimension, generator=generator) for _ in range(3))
    target[: rows // 5] = source[: rows // 5] + noise[: rows // 5]
    return normalize(source, dim=1), normalize(target, dim=1)[
        torch.randperm(rows, generator=generator)
    ]


def mining(rows: int) -> Step:
    """`mine_bitext` with the ratio margin, k = 4."""
    source, target = two_sides(rows)
    return lambda: mine_bitext(source, target)


def two_searches(rows: int, k: int = 4) -> Step:
    """Searches both ways by faiss, and scoring in Python, as mining programs do."""
    faiss.omp_set_num_threads(1)
    source, target = two_sides(rows)

    def search(queries: Tensor, corpus: Tensor) -> list[list[tuple[float, int]]]:
        index: Any = faiss.IndexFlatIP(corpus.shape[1])
        index.add(corpus.numpy())
        return [
            list(zip(*row, strict=True))
            for row in zip(*index.search(queries.numpy(), k), strict=True)
        ]

    def run() -> list[tuple[float, int, int]]:
        forward, backward = search(source, target), search(target, source)
        ahead, back = (
            [sum(score for score, _ in row) / k for row in side] for side in (forward, backward)
        )
        candidates = [
            max((2 * s / (ahead[i] + back[j]), i, j) for s, j in row)
            for i, row in enumerate(forward)
        ]
        candidates += [
            max((2 * s / (ahead[i] + back[j]), i, j) for s, i in row)
            for j, row in enumerate(backward)
        ]
        pairs, sources, targets = [], set(), set()
        for score, i, j in sorted(candidates, reverse=True):
            if i not in sources and j not in targets:
                pairs.append((score, i, j))
                sources.add(i)
                targets.add(j)
        return pairs

    return run


COMPARISONS = {
    "memory": Comparison(
        f"{QUERIES} queries, {ROWS} x {DIMENSION} in memory, k = {K}",
        {"top_k": partial(in_memory, True), "semantic_search": partial(in_memory, False)},
        goals={"time": 1.0, "memory": 0.5},
        rounds=1,
    ),
    "growth": Comparison(
        f"{QUERIES} queries, {ROWS} x {DIMENSION} in a float16 memory map, and four times as many, k = {K}",
        {f"{rows} rows": partial(from_disk, rows) for rows in (4 * ROWS, ROWS)},
        goals={"memory": 1.1},
    ),
    **{
        f"mining_{rows}": Comparison(
            f"Mining with the ratio margin, {rows} rows a side of 768, k = 4",
            {
                "mine_bitext": partial(mining, rows),
                "two faiss searches": partial(two_searches, rows),
            },
            goals={"time": 1 / 1.7},
            rounds=1,
        )
        for rows in (10_000, 50_000)
    },
}


if __name__ == "__main__":
    measuring.main(COMPARISONS, __doc__)
