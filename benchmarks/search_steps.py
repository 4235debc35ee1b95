"""Ways to the k best corpus rows of every query. Each returns the sum of the scores it found."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import faiss
import numpy as np
import torch
from sentence_transformers import util
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from torch import Tensor
from tqdm import trange

from benchmarks.steps import Step
from st_xlret.search import top_k

_ROWS_AT_ONCE = 65_536


def unit_vectors(rows: int, dimension: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(rows, dimension, generator=generator), dim=1)


@cache
def queries_of(rows: int, dimension: int) -> Tensor:
    return unit_vectors(rows, dimension, seed=-1)


@cache
def corpus_of(rows: int, dimension: int) -> Tensor:
    """The corpus in memory, float32; the same rows as in `write_corpus`, up to their rounding there."""
    corpus = torch.empty(rows, dimension)
    for start in range(0, rows, _ROWS_AT_ONCE):
        corpus[start : start + _ROWS_AT_ONCE] = unit_vectors(min(_ROWS_AT_ONCE, rows - start), dimension, seed=start)
    return corpus


def write_corpus(path: Path, rows: int, dimension: int) -> None:
    """A float16 memory map of the corpus."""
    mapped = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(rows, dimension))
    for start in trange(0, rows, _ROWS_AT_ONCE, desc=f"Writing {path.name}", leave=False):
        count = min(_ROWS_AT_ONCE, rows - start)
        mapped[start : start + count] = unit_vectors(count, dimension, seed=start).numpy()
    mapped.flush()


def streamed(queries: int, rows: int, dimension: int, k: int) -> Step:
    """`top_k` over a corpus in memory."""
    given, corpus = queries_of(queries, dimension), corpus_of(rows, dimension)
    return Step(lambda: top_k(given, corpus, k)[0].double().sum())


def streamed_from_disk(queries: int, path: Path, k: int) -> Step:
    """`top_k` over a float16 memory map."""
    corpus = np.load(path, mmap_mode="r")
    given = queries_of(queries, corpus.shape[1])
    return Step(lambda: top_k(given, corpus, k)[0].double().sum())


def semantic_search(queries: int, rows: int, dimension: int, k: int) -> Step:
    """The host's `util.semantic_search` with its default chunks."""
    given, corpus = queries_of(queries, dimension), corpus_of(rows, dimension)

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
    given, corpus = queries_of(queries, dimension), corpus_of(rows, dimension)
    names = [str(row) for row in range(rows)]
    cutoffs = ("mrr_at_k", "ndcg_at_k", "accuracy_at_k", "precision_recall_at_k", "map_at_k")
    options: dict[str, Any] = dict.fromkeys(cutoffs, [k])
    evaluator: Any = _Given(
        {str(row): "" for row in range(queries)},
        dict.fromkeys(names, ""),
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

    given, corpus = queries_of(queries, dimension), corpus_of(rows, dimension)
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
    index = faiss.IndexFlatIP(dimension)
    index.add(corpus_of(rows, dimension).numpy())
    given = queries_of(queries, dimension).numpy()
    return Step(lambda: torch.from_numpy(index.search(given, k)[0]).double().sum())


RIVALS: dict[str, Callable[[int, int, int, int], Step]] = {
    "semantic_search": semantic_search,
    "InformationRetrievalEvaluator": retrieval_evaluator,
    "mteb": mteb_search,
}


def ways(queries: int, rows: int, dimension: int, k: int) -> dict[str, Callable[[], Step]]:
    """`top_k` and its rivals at these sizes."""
    return {name: partial(way, queries, rows, dimension, k) for name, way in {"top_k": streamed, **RIVALS}.items()}
