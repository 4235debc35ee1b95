"""Metrics at their edges and by language; their values are compared with pytrec_eval in `test_parity.py`."""

from __future__ import annotations

import numpy as np
import pytest

from st_xlret.evaluation.retrieval import (
    hits_of_ranking,
    language_metrics,
    language_preference,
    map_at_k,
    mrr_at_k,
    ndcg_at_k,
    parse_metric,
    recall_at_k,
)


def test_fewer_results_than_k_and_no_queries() -> None:
    assert mrr_at_k([[False, True]], [1], 100).tolist() == [0.5]
    assert recall_at_k(np.zeros((0, 5), dtype=bool), [], 3).tolist() == []
    assert hits_of_ranking(np.zeros((0, 5)), [], 10).shape == (0, 5)
    for metric in (mrr_at_k, recall_at_k, map_at_k):
        assert metric(np.zeros((2, 0), dtype=bool), [1, 1], 3).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("hits", "counts", "k", "message"),
    [
        ([[True]], [1], 0, "k must be at least 1, got 0"),
        ([[True]], [1, 1], 3, r"got \(1, 1\), \(2,\)"),
        ([True], [1], 3, r"got \(1,\)"),
        ([[False], [False]], [1, 0], 3, "query row 1 has 0 hits and 0 relevant"),
        ([[True, True]], [1], 3, "query row 0 has 2 hits and 1 relevant"),
    ],
)
@pytest.mark.parametrize("metric", [mrr_at_k, recall_at_k, map_at_k])
def test_bad_input_is_named(metric, hits, counts, k, message) -> None:
    with pytest.raises(ValueError, match=message):
        metric(hits, counts, k)


@pytest.mark.parametrize("name", ["mrr", "f1_at_10", "mrr_at_0", "map_at_-1", "recall_at_2kt"])
def test_unknown_metrics(name) -> None:
    with pytest.raises(ValueError, match="unknown metric"):
        parse_metric(name)


LANGUAGES = ["en", "fr", "de"] * 4
RELEVANT = [np.array([0, 1, 2]), np.array([3, 4, 5]), np.array([6, 7, 8])]


def preference(*rows: list[int], k: int = 20) -> list[float]:
    return language_preference(np.array(rows), RELEVANT, ["en", "fr", "en"], LANGUAGES, k=k).tolist()


def test_preference_for_the_language_of_the_query() -> None:
    assert preference([2, 1, 0, 3], [5, 4, 3, 0], [6, 8, 7, 0]) == pytest.approx([0, 0, 0])  # a perfect ranking
    assert preference([0, 3, 6, 9], [0, 2, 3, 5], [0, 1, 4, 9]) == pytest.approx([2 / 3, -1 / 3, 0])
    assert preference([0, 1, 2], [1, 0, 2], [1, 0, 2], k=1) == pytest.approx([2 / 3, 2 / 3, -1 / 3])
    assert language_preference(np.array([[0]]), [np.array([0])], ["sw"], ["en"]).tolist() == [0]


def test_metrics_by_language() -> None:
    ranking = np.array([[0, 1, 9], [9, 10, 5], [0, 1, 8]])
    found = language_metrics(ranking, RELEVANT, ["en", "fr", "en"], LANGUAGES)
    assert found["recall_at_10_same_language"].tolist() == [1, 0, 0]
    assert found["recall_at_10_other_languages"].tolist() == [0.5, 0.5, 0.5]
    assert found["language_preference_rate"].tolist() == [1, 0, 0]
    ideal = 2 + 1 / np.log2(3) + 0.5
    np.testing.assert_allclose(found["language_ndcg_at_10"], np.array([2 + 1 / np.log2(3), 0.5, 0.5]) / ideal)
    split = [found[f"{what}_{which}_language"] for what in ("right", "wrong") for which in ("same", "other")]
    assert np.array(split).T.tolist() == [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    alone = language_metrics(ranking, RELEVANT, ["sw", "fr", "en"], LANGUAGES)
    assert np.isnan([alone["recall_at_10_same_language"][0], alone["language_preference_rate"][0]]).all()


def test_ndcg_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import ndcg_score

    hits = np.random.default_rng(0).random((50, 12)) < 0.3
    hits[:, 0] |= ~hits.any(axis=1)
    ranks = np.tile(-np.arange(12.0), (50, 1))
    expected = [ndcg_score(row[None].astype(float), rank[None], k=7) for row, rank in zip(hits, ranks, strict=True)]
    np.testing.assert_allclose(ndcg_at_k(hits, hits.sum(axis=1), 7), expected)
