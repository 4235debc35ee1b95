"""Time and peak memory of top_k and mine_bitext against Sentence Transformers, torch and faiss.

    OMP_NUM_THREADS=1 python -m benchmarks.search --output runs/search.json

Given embeddings, exact search, one thread. Queries and corpus are not part of the memory, except
that a corpus on disk starts on disk, so that what stays of it in memory counts. The whole needs
10 GB of memory and 4 GB of disk.
"""

import tempfile
from functools import lru_cache, partial
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

QUERIES = 1_000
ROWS = 1_000_000
DIMENSION = 384
K = 100

# A person who searches, a page of questions, batches.
FEW_QUERIES = (1, 8, 64, 512)
FEW_ROWS = 300_000
FEW_RESULTS = 10

_ROWS_AT_ONCE = 65_536

Pair = tuple[float, int, int]


def unit_vectors(rows: int, seed: int) -> Tensor:
    """Random rows of unit length."""
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(rows, DIMENSION, generator=generator), dim=1)


def fill(corpus: Any) -> Any:
    """Put a block of vectors after the other into a corpus, and return it."""
    for start in range(0, len(corpus), _ROWS_AT_ONCE):
        rows = min(_ROWS_AT_ONCE, len(corpus) - start)
        corpus[start : start + rows] = unit_vectors(rows, seed=start)
    return corpus


@lru_cache(maxsize=1)
def corpus_in_memory(rows: int) -> Tensor:
    """The same for all ways to search it: where its pages lie counts, too."""
    return fill(torch.empty(rows, DIMENSION))


def search(queries: int, rows: int, k: int) -> Step:
    """`top_k` over a float32 corpus in memory."""
    asked = unit_vectors(queries, seed=-1)
    corpus = corpus_in_memory(rows)
    return lambda: top_k(asked, corpus, k)


def host_search(queries: int, rows: int, k: int) -> Step:
    """The host's `util.semantic_search` with its default chunks."""
    asked = unit_vectors(queries, seed=-1)
    corpus = corpus_in_memory(rows)
    return lambda: util.semantic_search(asked, corpus, top_k=k, score_function=util.dot_score)


def torch_search(queries: int, rows: int, k: int) -> Step:
    """All scores at once, and PyTorch's selection."""
    asked = unit_vectors(queries, seed=-1)
    corpus = corpus_in_memory(rows)
    return lambda: torch.topk(asked @ corpus.T, k)


def faiss_search(queries: int, rows: int, k: int) -> Step:
    """A flat index of faiss, which was built before."""
    faiss.omp_set_num_threads(1)
    asked = unit_vectors(queries, seed=-1).numpy()
    index: Any = faiss.IndexFlatIP(DIMENSION)
    index.add(corpus_in_memory(rows).numpy())
    return lambda: index.search(asked, k)


def from_disk(rows: int) -> Step:
    """`top_k` over a float16 memory map."""
    queries = unit_vectors(QUERIES, seed=-1)
    # Mapped, the file stays until the process ends.
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        stored = np.lib.format.open_memmap(
            file.name, mode="w+", dtype=np.float16, shape=(rows, DIMENSION)
        )
        fill(stored).flush()
        corpus = np.load(file.name, mmap_mode="r")
    return lambda: top_k(queries, corpus, K)


def two_sides(rows: int, dimension: int = 768) -> tuple[Tensor, Tensor]:
    """Unit vectors; a fifth of the rows of either side are noisy copies of one another."""
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(rows, dimension, generator=generator)
    target = torch.randn(rows, dimension, generator=generator)
    noise = torch.randn(rows, dimension, generator=generator)
    target[: rows // 5] = source[: rows // 5] + noise[: rows // 5]
    order = torch.randperm(rows, generator=generator)
    return normalize(source, dim=1), normalize(target, dim=1)[order]


def mining(rows: int) -> Step:
    """`mine_bitext` with the ratio margin, k = 4."""
    source, target = two_sides(rows)
    return lambda: mine_bitext(source, target)


def two_searches(rows: int, k: int = 4) -> Step:
    """Searches both ways by faiss, and scoring in Python, as mining programs do."""
    faiss.omp_set_num_threads(1)
    source, target = two_sides(rows)

    def run() -> list[Pair]:
        forward = faiss_neighbours(source, target, k)
        backward = faiss_neighbours(target, source, k)
        mean = [mean_score(row) for row in forward]
        mean_back = [mean_score(row) for row in backward]
        candidates = []
        for i, row in enumerate(forward):
            scored = [(2 * score / (mean[i] + mean_back[j]), i, j) for score, j in row]
            candidates.append(max(scored))
        for j, row in enumerate(backward):
            scored = [(2 * score / (mean[i] + mean_back[j]), i, j) for score, i in row]
            candidates.append(max(scored))
        return one_to_one(candidates)

    return run


def faiss_neighbours(queries: Tensor, corpus: Tensor, k: int) -> list[list[tuple[float, int]]]:
    """Scores and rows of the k nearest rows of the corpus, for each query."""
    index: Any = faiss.IndexFlatIP(corpus.shape[1])
    index.add(corpus.numpy())
    scores, rows = index.search(queries.numpy(), k)
    found = []
    for of_query, rows_of_query in zip(scores, rows, strict=True):
        found.append(list(zip(of_query, rows_of_query, strict=True)))
    return found


def mean_score(row: list[tuple[float, int]]) -> float:
    """The mean over the neighbours of a row."""
    return sum(score for score, _ in row) / len(row)


def one_to_one(candidates: list[Pair]) -> list[Pair]:
    """The pairs, best first, of which no row is taken."""
    pairs = []
    sources = set()
    targets = set()
    for score, i, j in sorted(candidates, reverse=True):
        if i not in sources and j not in targets:
            pairs.append((score, i, j))
            sources.add(i)
            targets.add(j)
    return pairs


COMPARISONS = {
    "memory": Comparison(
        f"{QUERIES} queries, {ROWS} x {DIMENSION} in memory, k = {K}",
        {
            "top_k": partial(search, QUERIES, ROWS, K),
            "semantic_search": partial(host_search, QUERIES, ROWS, K),
        },
        goals={"time": 1.0, "memory": 0.5},
        rounds=1,
    ),
    "growth": Comparison(
        f"{QUERIES} queries, {ROWS} x {DIMENSION} in a float16 memory map, and four times as many, "
        f"k = {K}",
        {
            f"{4 * ROWS} rows": partial(from_disk, 4 * ROWS),
            f"{ROWS} rows": partial(from_disk, ROWS),
        },
        goals={"memory": 1.1},
    ),
}
for few in FEW_QUERIES:
    for rival, make in (("torch.topk", torch_search), ("IndexFlatIP", faiss_search)):
        COMPARISONS[f"{few}_{rival}"] = Comparison(
            f"{few} queries, {FEW_ROWS} x {DIMENSION} in memory, k = {FEW_RESULTS}",
            {
                "top_k": partial(search, few, FEW_ROWS, FEW_RESULTS),
                rival: partial(make, few, FEW_ROWS, FEW_RESULTS),
            },
            goals={"time": 1.0},
            rounds=15 if few < 64 else 5,
        )
for size in (10_000, 50_000):
    COMPARISONS[f"mining_{size}"] = Comparison(
        f"Mining with the ratio margin, {size} rows a side of 768, k = 4",
        {
            "mine_bitext": partial(mining, size),
            "two faiss searches": partial(two_searches, size),
        },
        goals={"time": 1 / 1.7},
        rounds=1,
    )


if __name__ == "__main__":
    measuring.main(COMPARISONS, __doc__)
