"""Two ranks encode a corpus by shards and find exactly what one finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from st_xlret.evaluation.embedding_cache import EmbeddingCache
from st_xlret.evaluation.retrieval import RetrievalEvaluator
from st_xlret.evaluation.retrieval_data import RetrievalData, TextCollection
from tests import tiny
from tests.distributed.workers import Result

pytestmark = pytest.mark.distributed
DIMENSION, K = 12, 9
# Rows 30 to 59 repeat rows 0 to 29: ties, mostly between the two ranks.
TEXTS = [f"text {row % 30}" for row in range(67)]


def vectors(texts: Sequence[str], _: Sequence[str]) -> np.ndarray:
    return np.array([np.random.default_rng(sum(text.encode())).standard_normal(DIMENSION) for text in texts])


class Stream:
    def __iter__(self) -> Iterator[str]:
        yield from TEXTS


def queries() -> torch.Tensor:
    return torch.randn(6, DIMENSION, generator=torch.Generator().manual_seed(1))


def cache_of(folder: Path, ranks: int, shard_size: int = 8) -> EmbeddingCache:
    return EmbeddingCache(folder, shard_size=shard_size, distributed=ranks > 1, show_progress_bar=False)


def work(rank: int, ranks: int, folder: Path) -> Result:
    """What each rank, and the single process, does."""
    result: dict[str, Any] = {}
    # On one disk; on a disk each; with one shard, so that the second rank has none.
    own = folder / f"disk-{rank}-of-{ranks}"
    for name, place, shard_size in (("shared", folder / f"disk-of-{ranks}", 8), ("own", own, 8), ("one", own, 100)):
        corpus = cache_of(place, ranks, shard_size).embed(Stream(), vectors, identity={"shards": shard_size})
        scores, rows = corpus.top_k(queries(), K)
        result[name] = {"scores": scores, "rows": rows, "shards": len(corpus.files), "length": len(corpus)}
    # A run by as many ranks again, or by another number on the same disk, encodes nothing that is there.
    encoded: list[str] = []

    def noting(texts: Sequence[str], languages: Sequence[str]) -> np.ndarray:
        encoded.extend(texts)
        return vectors(texts, languages)

    dist.barrier() if ranks > 1 else None
    cache_of(folder / f"disk-of-{ranks}", ranks).embed(Stream(), noting, identity={"shards": 8})
    result["encoded again"] = len(encoded)
    result["too far"] = refused(corpus, len(TEXTS) + 1)
    result["metrics"] = metrics(cache_of(own, ranks))
    return result


def refused(corpus: Any, k: int) -> str:
    try:
        corpus.top_k(queries(), k)
    except ValueError as error:
        return str(error)
    return ""


def metrics(cache: EmbeddingCache) -> dict[str, dict[str, float]]:
    documents = [" ".join(tiny.WORDS[row % 11 : row % 11 + 3]) for row in range(30)]
    corpus = TextCollection([str(row) for row in range(30)], documents, "sw")
    questions = TextCollection(["a", "b", "c"], ["moon star", "snow tree", "wolf"], "sw")
    qrels = {"a": {"3": 1, "12": 1}, "b": {"5": 1}, "c": {"29": 1}}
    data = RetrievalData(corpus, questions, qrels)
    return RetrievalEvaluator({"sw": data}, embed_corpus=cache).evaluate(tiny.static()).scores


@pytest.mark.parametrize("name", ["shared", "own", "one"])
def test_two_ranks_find_exactly_what_one_finds(results: tuple[Result, Result, Result], name: str) -> None:
    single, *ranks = (result[name] for result in results)
    for found in ranks:
        assert torch.equal(found["scores"], single["scores"])
        assert torch.equal(found["rows"], single["rows"])
        assert found["length"] == single["length"] == 67
    assert sum(found["shards"] for found in ranks) == single["shards"]


def test_it_is_the_answer_of_a_search_in_memory(results: tuple[Result, Result, Result]) -> None:
    corpus = torch.from_numpy(vectors(TEXTS, []).astype(np.float16)).float()
    exact = queries() @ corpus.T
    expected = [sorted(range(67), key=lambda row: (-scores[row].item(), row))[:K] for scores in exact]
    assert results[1]["shared"]["rows"].tolist() == expected


def test_shards_are_divided(results: tuple[Result, Result, Result]) -> None:
    assert [result["shared"]["shards"] for result in results] == [9, 5, 4]
    assert [result["one"]["shards"] for result in results] == [1, 1, 0]


def test_nothing_is_encoded_twice(results: tuple[Result, Result, Result]) -> None:
    assert [result["encoded again"] for result in results] == [0, 0, 0]


def test_errors_are_those_of_one(results: tuple[Result, Result, Result]) -> None:
    assert {result["too far"] for result in results} == {"k must be from 1 to the 67 rows of the corpus, got 68."}


def test_metrics_are_those_of_one(results: tuple[Result, Result, Result]) -> None:
    assert results[0]["metrics"] == results[1]["metrics"] == results[2]["metrics"]
    assert 0 < results[0]["metrics"]["sw"]["mrr_at_100"] < 1
