"""The same numbers as pytrec_eval, which mteb uses too, from the same ranking."""

from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval
import torch

from st_xlret.evaluation.retrieval import score_ranking
from st_xlret.evaluation.retrieval_data import RetrievalData, TextCollection
from st_xlret.search import top_k

CORPUS, QUERIES, DIMENSION = 700, 90, 24


@pytest.fixture(scope="module")
def found() -> tuple[RetrievalData, np.ndarray, np.ndarray]:
    """Graded judgements, one language without a hit at the top, queries with up to 130 relevant documents."""
    generator = np.random.default_rng(5)
    corpus = generator.normal(size=(CORPUS, DIMENSION)).astype(np.float32)
    queries = generator.normal(size=(QUERIES, DIMENSION)).astype(np.float32)
    qrels = {}
    for query in range(QUERIES):
        count = [1, 3, 25, 130][query % 4]
        near = np.argsort(-queries[query] @ corpus.T)[:60]
        drawn = generator.permutation(np.r_[near[: count // 3], generator.permutation(CORPUS)])
        grades = {f"d{row}": int(generator.integers(1, 4)) for row in dict.fromkeys(drawn.tolist())}
        qrels[f"q{query}"] = dict(list(grades.items())[:count]) | {f"d{near[0]}": 0}
        qrels[f"q{query}"].setdefault(f"d{near[30]}", 1)
    data = RetrievalData(
        TextCollection([f"d{row}" for row in range(CORPUS)], ["text"] * CORPUS, "en"),
        TextCollection([f"q{row}" for row in range(QUERIES)], ["text"] * QUERIES, ["fr", "de", "fr"] * (QUERIES // 3)),
        qrels,
    )
    scores, rows = top_k(torch.from_numpy(queries), torch.from_numpy(corpus), 100)
    return data, rows.numpy(), scores.numpy()


def as_run(data: RetrievalData, ranking: np.ndarray, similarities: np.ndarray) -> dict[str, dict[str, float]]:
    return {
        query: {data.corpus.ids[row]: float(score) for row, score in zip(rows, scores, strict=True)}
        for query, rows, scores in zip(data.judged.ids, ranking, similarities, strict=True)
    }


def per_language(data: RetrievalData, values: dict[str, float]) -> dict[str, float]:
    languages = dict(zip(data.judged.ids, data.judged.languages, strict=True))
    return {
        language: float(np.mean([value for query, value in values.items() if languages[query] == language]))
        for language in set(languages.values())
    }


def test_mrr_and_recall_equal_pytrec_eval(found) -> None:
    data, ranking, similarities = found
    scores = score_ranking(ranking, data, ["mrr_at_100", "recall_at_100", "recall_at_20"])
    measures = {"recip_rank", "recall.20,100"}
    theirs = pytrec_eval.RelevanceEvaluator(data.qrels, measures).evaluate(as_run(data, ranking, similarities))
    assert len(theirs) == QUERIES
    for ours, name in (("mrr_at_100", "recip_rank"), ("recall_at_100", "recall_100"), ("recall_at_20", "recall_20")):
        expected = per_language(data, {query: values[name] for query, values in theirs.items()})
        for language, value in expected.items():
            assert scores[language][ours] == pytest.approx(value, abs=1e-6)


def test_map_equals_pytrec_eval_where_no_query_has_more_than_k_relevant(found) -> None:
    data, ranking, similarities = found
    few = {query: judged for query, judged in data.qrels.items() if sum(map(bool, judged.values())) <= 20}
    part = RetrievalData(data.corpus, data.queries, few)
    rows = [data.judged.ids.index(query) for query in part.judged.ids]
    chosen = ranking[rows]
    theirs = pytrec_eval.RelevanceEvaluator(few, {"map_cut.20"}).evaluate(as_run(part, chosen, similarities[rows]))
    expected = per_language(part, {query: values["map_cut_20"] for query, values in theirs.items()})
    ours = score_ranking(chosen, part, ["map_at_20"])
    assert 0 < len(part.judged) < QUERIES
    for language, value in expected.items():
        assert ours[language]["map_at_20"] == pytest.approx(value, abs=1e-6)
