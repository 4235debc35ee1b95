from __future__ import annotations

import numpy as np
import pytest

from st_xlret.evaluation.retrieval.data import RetrievalData, TextCollection
from st_xlret.evaluation.retrieval.metrics import (
    Ranking,
    hits_of_ranking,
    language_preference,
    map_at_k,
    mrr_at_k,
    parse_metric,
    recall_at_k,
)


def naive(ranking: list[int], gold: set[int], k: int) -> dict[str, float]:
    """One query, from the definitions."""
    reciprocal_rank = found = precisions = 0.0
    for rank, row in enumerate(ranking[:k], start=1):
        if row in gold:
            found += 1
            precisions += found / rank
            reciprocal_rank = reciprocal_rank or 1 / rank
    return {"mrr": reciprocal_rank, "recall": found / len(gold), "map": precisions / min(len(gold), k)}


@pytest.mark.parametrize("k", [1, 2, 7, 20, 100])
def test_equal_loops_over_the_definitions(k: int) -> None:
    generator = np.random.default_rng(k)
    corpus, queries, depth = 60, 50, 40
    rankings = np.stack([generator.permutation(corpus)[:depth] for _ in range(queries)])
    gold = [set(generator.choice(corpus, generator.integers(1, 31), replace=False).tolist()) for _ in range(queries)]
    hits = hits_of_ranking(rankings, [sorted(rows) for rows in gold], corpus)
    counts = [len(rows) for rows in gold]
    expected = [naive(ranking.tolist(), rows, k) for ranking, rows in zip(rankings, gold, strict=True)]
    for name, metric in (("mrr", mrr_at_k), ("recall", recall_at_k), ("map", map_at_k)):
        np.testing.assert_allclose(metric(hits, counts, k), [values[name] for values in expected], rtol=0, atol=1e-12)


def test_a_perfect_ranking_has_average_precision_one_also_beyond_k() -> None:
    assert map_at_k([[True] * 20], [25], 20) == 1.0
    assert recall_at_k([[True] * 20], [25], 20) == 20 / 25


def test_map_with_one_gold_is_mrr() -> None:
    hits = np.eye(6, 30, dtype=bool)
    np.testing.assert_array_equal(map_at_k(hits, np.ones(6), 20), mrr_at_k(hits, np.ones(6), 20))


def test_fewer_results_than_k_and_no_queries() -> None:
    assert mrr_at_k([[False, True]], [1], 100).tolist() == [0.5]
    assert recall_at_k(np.zeros((0, 5), dtype=bool), [], 3).tolist() == []
    assert hits_of_ranking(np.zeros((0, 5)), [], 10).shape == (0, 5)
    for metric in (mrr_at_k, recall_at_k, map_at_k):
        assert metric(np.zeros((2, 0), dtype=bool), [1, 1], 3).tolist() == [0.0, 0.0]


def test_rows_of_one_query_are_no_hits_of_another() -> None:
    assert hits_of_ranking([[0, 9], [0, 9]], [[0], [9]], 10).tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize(
    ("hits", "counts", "k", "message"),
    [
        ([[True]], [1], 0, "k must be at least 1, got 0"),
        ([[True]], [1, 1], 3, r"got \(1, 1\) and \(2,\)"),
        ([True], [1], 3, r"got \(1,\)"),
        ([[False], [False]], [1, 0], 3, "query row 1 has no relevant document"),
        ([[True, True]], [1], 3, "query row 0 has 2 hits, but 1 relevant"),
    ],
)
@pytest.mark.parametrize("metric", [mrr_at_k, recall_at_k, map_at_k])
def test_bad_input_is_named(metric, hits, counts, k, message) -> None:
    with pytest.raises(ValueError, match=message):
        metric(hits, counts, k)


@pytest.mark.parametrize("name", ["mrr", "ndcg_at_10", "mrr_at_0", "map_at_-1", "recall_at_2kt"])
def test_unknown_metrics(name) -> None:
    with pytest.raises(ValueError, match="unknown metric"):
        parse_metric(name)


LANGUAGES = ["en", "fr", "de"] * 4


def three_languages() -> RetrievalData:
    corpus = TextCollection([f"d{row}" for row in range(12)], ["text"] * 12, LANGUAGES)
    queries = TextCollection(["a", "b", "c"], ["one", "un", "zwei"], ["en", "fr", "en"])
    gold = {"a": ["d0", "d1", "d2"], "b": ["d3", "d4", "d5"], "c": ["d6", "d7", "d8"]}
    return RetrievalData(corpus, queries, {query: dict.fromkeys(rows, 1) for query, rows in gold.items()})


def ranking(*rows: list[int]) -> Ranking:
    return Ranking(np.array(rows), np.zeros((len(rows), len(rows[0])), dtype=np.float32))


def test_a_perfect_ranking_prefers_no_language() -> None:
    shares = language_preference(ranking([2, 1, 0, 3], [5, 4, 3, 0], [6, 8, 7, 0]), three_languages())
    assert shares == {
        language: {"results": pytest.approx(1 / 3), "relevant": pytest.approx(1 / 3), "preference": 0.0}
        for language in ("en", "fr")
    }


def test_grouping_by_language_is_seen_per_query_language() -> None:
    shares = language_preference(ranking([0, 3, 6, 9], [0, 2, 3, 5], [0, 1, 4, 9]), three_languages())
    assert shares["en"]["results"] == pytest.approx((1 + 1 / 3) / 2)
    assert shares["en"]["preference"] == pytest.approx(1 / 3)
    assert shares["fr"] == {"results": 0.0, "relevant": pytest.approx(1 / 3), "preference": pytest.approx(-1 / 3)}


def test_depth_is_at_most_k() -> None:
    shares = language_preference(ranking([0, 1, 2], [1, 0, 2], [1, 0, 2]), three_languages(), k=1)
    assert shares["en"]["results"] == 0.5 and shares["fr"]["results"] == 1.0
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        language_preference(ranking([0], [0], [0]), three_languages(), k=0)


def test_a_query_language_that_no_document_has() -> None:
    corpus = TextCollection(["d"], ["text"], "en")
    swahili = RetrievalData(corpus, TextCollection(["q"], ["nini"], "sw"), {"q": {"d": 1}})
    assert language_preference(ranking([0]), swahili) == {"sw": {"results": 0.0, "relevant": 0.0, "preference": 0.0}}
