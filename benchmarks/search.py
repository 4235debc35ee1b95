"""Time and peak memory of top_k and mine_bitext against Sentence Transformers, mteb and faiss.

    OMP_NUM_THREADS=1 python -m benchmarks.search --output runs/search.json

Given embeddings, exact search, one thread. Queries and corpus are not part of the memory, except that a corpus on disk
starts on disk, so that what stays of it in memory counts. The whole needs 10 GB of memory and 4 GB of disk.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any
from unittest import mock

import faiss
import numpy as np
import torch
from sentence_transformers import util
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from torch import Tensor

from benchmarks import measuring
from benchmarks.measuring import Comparison, Step
from st_xlret.search import mine_bitext, top_k

_ROWS_AT_ONCE = 65_536


def unit_vectors(rows: int, dimension: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(rows, dimension, generator=generator), dim=1)


@cache
def queries_and_corpus(queries: int, rows: int, dimension: int) -> tuple[Tensor, Tensor]:
    """Queries and a corpus in memory, float32."""
    corpus = torch.empty(rows, dimension)
    for start in range(0, rows, _ROWS_AT_ONCE):
        corpus[start : start + _ROWS_AT_ONCE] = unit_vectors(min(_ROWS_AT_ONCE, rows - start), dimension, seed=start)
    return unit_vectors(queries, dimension, seed=-1), corpus


def ours(queries: int, rows: int, dimension: int, k: int) -> Step:
    """`top_k` over a corpus in memory."""
    given, corpus = queries_and_corpus(queries, rows, dimension)
    return Step(lambda: top_k(given, corpus, k)[0].double().sum())


def from_disk(queries: int, rows: int, dimension: int, k: int) -> Step:
    """`top_k` over a float16 memory map."""
    file = tempfile.NamedTemporaryFile(suffix=".npy")  # noqa: SIM115
    mapped = np.lib.format.open_memmap(file.name, mode="w+", dtype=np.float16, shape=(rows, dimension))
    for start in range(0, rows, _ROWS_AT_ONCE):
        count = min(_ROWS_AT_ONCE, rows - start)
        mapped[start : start + count] = unit_vectors(count, dimension, seed=start).numpy()
    mapped.flush()
    del mapped
    corpus, given = np.load(file.name, mmap_mode="r"), unit_vectors(queries, dimension, seed=-1)
    return Step(lambda: top_k(given, corpus, k)[0].double().sum(), lambda: file)


def semantic_search(queries: int, rows: int, dimension: int, k: int) -> Step:
    """The host's `util.semantic_search` with its default chunks."""
    given, corpus = queries_and_corpus(queries, rows, dimension)

    def run() -> Tensor:
        hits = util.semantic_search(given, corpus, top_k=k, score_function=util.dot_score)
        return torch.tensor(sum(hit["score"] for found in hits for hit in found))

    return Step(run)


class _Given(InformationRetrievalEvaluator):
    """The host's evaluator on given embeddings: what it does after encoding and before the metrics."""

    def embed_inputs(self, model: Any, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        return model

    def compute_metrics(self, queries_result_list: list[Any]) -> Any:
        return {"sum": sum(hit["score"] for found in queries_result_list for hit in found)}

    def output_scores(self, scores: Any) -> None:
        pass


def retrieval_evaluator(queries: int, rows: int, dimension: int, k: int) -> Step:
    """The host's `InformationRetrievalEvaluator`: its search, on given embeddings."""
    given, corpus = queries_and_corpus(queries, rows, dimension)
    cutoffs = ("mrr_at_k", "ndcg_at_k", "accuracy_at_k", "precision_recall_at_k", "map_at_k")
    options: dict[str, Any] = dict.fromkeys(cutoffs, [k])
    evaluator: Any = _Given(
        {str(row): "" for row in range(queries)},
        {str(row): "" for row in range(rows)},
        {str(row): {"0"} for row in range(queries)},
        score_functions={"dot": util.dot_score},
        **options,
    )
    return Step(lambda: torch.tensor(evaluator.compute_all_metrics(given, corpus_embeddings=corpus)["dot"]["sum"]))


class _Names:
    """As much of a data set as mteb's search reads: the names of its rows."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def select(self, rows: range) -> _Names:
        return _Names(self.names[rows.start : rows.stop])

    def __getitem__(self, column: str) -> Sequence[str]:
        return self.names


def mteb_search(queries: int, rows: int, dimension: int, k: int) -> Step:
    """mteb's `chunked_full_corpus_search` on given embeddings, without the loader that only encoding needs."""
    from mteb.models import search_wrappers  # here, as it takes long to import and only this needs it

    given, corpus = queries_and_corpus(queries, rows, dimension)
    names, size = [str(row) for row in range(rows)], 50_000
    search: Callable[..., Any] = search_wrappers.chunked_full_corpus_search

    def run() -> Tensor:
        chunks = iter(corpus.split(size))
        with mock.patch.object(search_wrappers, "create_dataloader"):
            heaps = search(
                task_corpus=_Names(names),
                corpus_chunk_size=size,
                query_idx_to_id={row: str(row) for row in range(queries)},
                query_embeddings=given,
                task_metadata=None,
                hf_subset="default",
                hf_split="test",
                top_k=k,
                encode_kwargs={"show_progress_bar": False},
                encode_fn=lambda *args, **options: next(chunks),
                similarity_fn=util.dot_score,
                search_k_offset=1,
            )
        return torch.tensor(sum(score for heap in heaps.values() for score, _ in heap))

    return Step(run)


def faiss_flat(queries: int, rows: int, dimension: int, k: int) -> Step:
    """faiss's exact index, filled beforehand: its copy of the corpus counts as an input."""
    faiss.omp_set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    given, corpus = queries_and_corpus(queries, rows, dimension)
    index = faiss.IndexFlatIP(dimension)
    index.add(corpus.numpy())
    return Step(lambda: torch.from_numpy(index.search(given.numpy(), k)[0]).double().sum())


@cache
def two_sides(rows: int, dimension: int) -> tuple[Tensor, Tensor]:
    """Unit vectors; a fifth of the rows of either side are noisy copies of one another."""
    generator = torch.Generator().manual_seed(0)
    source, target, noise = (torch.randn(rows, dimension, generator=generator) for _ in range(3))
    shared = rows // 5
    target[:shared] = source[:shared] + noise[:shared]
    source, target = (torch.nn.functional.normalize(side, dim=1) for side in (source, target))
    return source, target[torch.randperm(rows, generator=generator)]


def mining(rows: int, dimension: int, k: int) -> Step:
    source, target = two_sides(rows, dimension)
    return Step(lambda: torch.tensor(sum(score for score, _, _ in mine_bitext(source, target, k=k))))


def two_searches(rows: int, dimension: int, k: int, by: str) -> Step:
    """Searches both ways by faiss or the host, and scoring in Python, as mining programs do."""
    faiss.omp_set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    source, target = two_sides(rows, dimension)

    def search(queries: Tensor, corpus: Tensor) -> list[list[tuple[float, int]]]:
        if by == "faiss":
            index = faiss.IndexFlatIP(dimension)
            index.add(corpus.numpy())
            return [list(zip(*row, strict=True)) for row in zip(*index.search(queries.numpy(), k), strict=True)]
        hits: Any = util.semantic_search(queries, corpus, top_k=k, score_function=util.dot_score)
        return [[(hit["score"], hit["corpus_id"]) for hit in found] for found in hits]

    def run() -> Tensor:
        forward, backward = search(source, target), search(target, source)
        ahead, back = ([sum(score for score, _ in row) / k for row in found] for found in (forward, backward))
        candidates = [max((2 * s / (ahead[i] + back[j]), i, j) for s, j in row) for i, row in enumerate(forward)]
        candidates += [max((2 * s / (ahead[i] + back[j]), i, j) for s, i in row) for j, row in enumerate(backward)]
        taken: tuple[set[int], set[int]] = set(), set()
        total = 0.0
        for score, i, j in sorted(candidates, key=lambda candidate: -candidate[0]):
            if i not in taken[0] and j not in taken[1]:
                taken[0].add(i)
                taken[1].add(j)
                total += float(score)
        return torch.tensor(total)

    return Step(run)


RIVALS: dict[str, Callable[[int, int, int, int], Step]] = {
    "semantic_search": semantic_search,
    "InformationRetrievalEvaluator": retrieval_evaluator,
    "mteb": mteb_search,
}


def comparisons(quick: bool) -> Mapping[str, Comparison]:
    """What is compared, at the sizes of the figures or (`quick`) at toy sizes."""
    queries, rows, dimension, k = sizes = (12, 700, 8, 5) if quick else (1_000, 1_000_000, 384, 100)
    found = {
        "rivals": Comparison(
            f"{queries} queries, {rows} x {dimension} in memory, k = {k}",
            {name: partial(way, *sizes) for name, way in {"top_k": ours, **RIVALS}.items()},
            [("top_k", rival) for rival in RIVALS],
            goals={"time": 1.0, "memory": 0.5},
            rounds=1,
        ),
        "faiss": Comparison(
            f"{queries} queries, {rows // 8} x {dimension} in memory, k = {k}",
            {
                name: partial(way, queries, rows // 8, dimension, k)
                for name, way in (("top_k", ours), ("faiss", faiss_flat))
            },
            [("top_k", "faiss")],
            rounds=3,
            memory=False,
        ),
        "growth": Comparison(
            f"{queries} queries, {rows} x {dimension} in a float16 memory map, and four times as many, k = {k}",
            {f"{n} rows": partial(from_disk, queries, n, dimension, k) for n in (4 * rows, rows)},
            [(f"{4 * rows} rows", f"{rows} rows")],
            goals={"memory": 1.1},
        ),
    }
    for rows in (150,) if quick else (10_000, 50_000):
        sides = rows, 8 if quick else 768, 4
        ways = {f"two {by} searches": partial(two_searches, *sides, by) for by in ("faiss", "host")}
        found[f"mining {rows}"] = Comparison(
            f"Mining with the ratio margin, {rows} rows a side of {sides[1]}, k = 4",
            {"mine_bitext": partial(mining, *sides), **ways},
            [("mine_bitext", other) for other in ways],
            goals={"time": 1 / 1.7},
            rounds=1,
        )
    return found


if __name__ == "__main__":
    measuring.main(comparisons, __doc__)
