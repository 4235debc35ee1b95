"""Two ranks embed a corpus by shards and find exactly what one finds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from st_xlret.encoding import KeptVectors
from st_xlret.evaluation import RetrievalData, RetrievalEvaluator, texts_table
from tests import tiny
from tests.distributed.workers import Result

pytestmark = [pytest.mark.distributed, pytest.mark.slow]
ROWS, DIMENSION, K = 67, 12, 9


def vectors() -> np.ndarray:
    """Rows 30 to 59 repeat rows 0 to 29: ties, mostly between the two ranks."""
    rows = np.random.default_rng(0).standard_normal((30, DIMENSION))
    return np.concatenate([rows, rows, rows[:7]]).astype(np.float16)


def queries() -> torch.Tensor:
    return torch.randn(6, DIMENSION, generator=torch.Generator().manual_seed(1))


def work(rank: int, ranks: int, folder: Path) -> Result:
    """What each rank, and the single process, does."""
    result: dict[str, Any] = {}
    # On one disk; on a disk each; with one shard, so that the second rank has none.
    own = folder / f"disk-{rank}-of-{ranks}"
    places = {"shared": (folder / f"disk-of-{ranks}", 8), "own": (own, 8), "one": (own / "1", 100)}
    for name, (place, shard_size) in places.items():
        kept = KeptVectors(place, shard_size=shard_size, distributed=ranks > 1).write(
            vectors(), vectors().__getitem__
        )
        scores, rows = kept.top_k(queries(), K)
        result[name] = {
            "scores": scores,
            "rows": rows,
            "shards": len(kept.files),
            "length": len(kept),
        }
    dist.barrier() if ranks > 1 else None
    embedded: list[slice] = []
    # A run by as many ranks again, or by another number on the same disk, embeds nothing that is
    # there.
    KeptVectors(folder / f"disk-of-{ranks}", shard_size=8).write(vectors(), embedded.append)
    result["embedded again"] = len(embedded)
    result["metrics"] = metrics(own, ranks)
    return result


def metrics(folder: Path, ranks: int) -> dict[str, dict[str, float]]:
    texts = [" ".join(tiny.WORDS[row % 11 : row % 11 + 3]) for row in range(30)]
    corpus = texts_table((str(row), "", text, "sw") for row, text in enumerate(texts))
    asked = {"a": "moon star", "b": "snow", "c": "wolf"}
    questions = texts_table((name, "", text, "sw") for name, text in asked.items())
    data = RetrievalData(corpus, questions, {"a": {"3": 1, "12": 1}, "b": {"5": 1}, "c": {"29": 1}})
    options: dict[str, Any] = {"keep_vectors": folder, "distributed": ranks > 1}
    return RetrievalEvaluator({"sw": data}, **options).evaluate(tiny.static()).scores


def test_two_ranks_find_exactly_what_a_search_in_memory_finds(
    results: tuple[Result, Result, Result],
) -> None:
    exact = queries() @ torch.from_numpy(vectors()).float().T
    expected = [
        sorted(range(ROWS), key=lambda row: (-scores[row].item(), row))[:K] for scores in exact
    ]
    for name in ("shared", "own", "one"):
        single, *ranks = (result[name] for result in results)
        for of_rank in (single, *ranks):
            assert torch.equal(of_rank["scores"], single["scores"])
            assert of_rank["rows"].tolist() == expected and of_rank["length"] == ROWS
        assert sum(of_rank["shards"] for of_rank in ranks) == single["shards"]


def test_shards_are_divided_nothing_is_embedded_twice_and_metrics_are_those_of_one(
    results: tuple[Result, Result, Result],
) -> None:
    assert [result["shared"]["shards"] for result in results] == [9, 5, 4]
    assert [result["one"]["shards"] for result in results] == [1, 1, 0]
    assert [result["embedded again"] for result in results] == [0, 0, 0]
    assert results[0]["metrics"] == results[1]["metrics"] == results[2]["metrics"]
    assert 0 < results[0]["metrics"]["sw"]["mrr_at_100"] < 1
