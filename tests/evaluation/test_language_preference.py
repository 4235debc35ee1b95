from __future__ import annotations

import numpy as np
import pytest

from st_xlret.evaluation.retrieval.data import RetrievalData, TextCollection
from st_xlret.evaluation.retrieval.language_preference import language_preference
from st_xlret.evaluation.retrieval.ranking import Ranking

LANGUAGES = ["en", "fr", "de"] * 4


def data() -> RetrievalData:
    corpus = TextCollection([f"d{row}" for row in range(12)], ["text"] * 12, LANGUAGES)
    queries = TextCollection(["a", "b", "c"], ["one", "un", "zwei"], ["en", "fr", "en"])
    gold = {"a": ["d0", "d1", "d2"], "b": ["d3", "d4", "d5"], "c": ["d6", "d7", "d8"]}
    return RetrievalData(corpus, queries, {query: dict.fromkeys(rows, 1) for query, rows in gold.items()})


def ranking(*rows: list[int]) -> Ranking:
    return Ranking(np.array(rows), np.zeros((len(rows), len(rows[0])), dtype=np.float32))


def test_a_perfect_ranking_prefers_no_language() -> None:
    shares = language_preference(ranking([2, 1, 0, 3], [5, 4, 3, 0], [6, 8, 7, 0]), data())
    assert shares == {
        language: {"results": pytest.approx(1 / 3), "relevant": pytest.approx(1 / 3), "preference": 0.0}
        for language in ("en", "fr")
    }


def test_grouping_by_language_is_seen_per_query_language() -> None:
    shares = language_preference(ranking([0, 3, 6, 9], [0, 2, 3, 5], [0, 1, 4, 9]), data())
    assert shares["en"]["results"] == pytest.approx((1 + 1 / 3) / 2)
    assert shares["en"]["preference"] == pytest.approx(1 / 3)
    assert shares["fr"] == {"results": 0.0, "relevant": pytest.approx(1 / 3), "preference": pytest.approx(-1 / 3)}


def test_depth_is_at_most_k() -> None:
    shares = language_preference(ranking([0, 1, 2], [1, 0, 2], [1, 0, 2]), data(), k=1)
    assert shares["en"]["results"] == 0.5 and shares["fr"]["results"] == 1.0
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        language_preference(ranking([0], [0], [0]), data(), k=0)


def test_a_query_language_that_no_document_has() -> None:
    corpus = TextCollection(["d"], ["text"], "en")
    swahili = RetrievalData(corpus, TextCollection(["q"], ["nini"], "sw"), {"q": {"d": 1}})
    assert language_preference(ranking([0]), swahili) == {"sw": {"results": 0.0, "relevant": 0.0, "preference": 0.0}}
