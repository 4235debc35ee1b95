"""Two ranks that search a shard each find exactly what one finds in the whole corpus."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from st_xlret.search import merge_top_k_across_ranks, top_k
from tests.distributed.workers import Result, run_on_two_ranks

pytestmark = pytest.mark.distributed
ROWS, K = 1_000, 20


def corpus_and_queries() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    corpus = generator.standard_normal((ROWS, 24)).astype(np.float16)
    corpus[600:650] = corpus[100:150]  # ties across the shards
    return corpus, generator.standard_normal((9, 24)).astype(np.float32)


def search_my_shards(rank: int, ranks: int, folder: Path) -> Result:
    corpus, queries = corpus_and_queries()
    result: Result = {}
    for name, bounds in {"even": (0, 512, ROWS), "short": (0, 992, ROWS), "empty": (0, ROWS, ROWS)}.items():
        start, end = (0, ROWS) if ranks == 1 else bounds[rank : rank + 2]
        file = folder / f"{name}-{rank}-of-{ranks}.npy"
        np.save(file, corpus[start:end])
        scores, indices = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
        if end > start:
            shard = np.load(file, mmap_mode="r")
            scores, indices = top_k(queries, shard, min(K, len(shard)), first_row=start, chunk_size=32)
        result[f"{name} scores"], result[f"{name} indices"] = merge_top_k_across_ranks(scores, indices, K)
    try:
        merge_top_k_across_ranks(torch.ones(1 + rank, 1), torch.zeros(1 + rank, 1, dtype=torch.int64), 1)
        result["error"] = ""
    except ValueError as error:
        result["error"] = str(error)
    return result


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    folder = tmp_path_factory.mktemp("ranks")
    return [search_my_shards(0, 1, folder), *run_on_two_ranks(search_my_shards, folder)]


@pytest.mark.parametrize("shards", ["even", "short", "empty"])
def test_both_ranks_have_exactly_the_answer_of_one(results: list[Result], shards: str) -> None:
    single, *ranks = results
    assert single[f"{shards} indices"].shape == (9, K)
    for rank in ranks:
        assert torch.equal(rank[f"{shards} indices"], single[f"{shards} indices"])
        assert torch.equal(rank[f"{shards} scores"], single[f"{shards} scores"])


def test_ranks_with_other_queries_are_an_error_on_every_rank(results: list[Result]) -> None:
    assert results[0]["error"] == ""
    assert all("[1, 2] queries" in rank["error"] for rank in results[1:])
