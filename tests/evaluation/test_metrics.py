"""Metrics equal those of pytrec_eval, or of a definition that is computed apart."""

from dataclasses import dataclass

import numpy as np
import pytest
import pytrec_eval
import torch
from datasets import Dataset

from st_xlret.evaluation import RetrievalData, score_ranking, texts_table
from st_xlret.evaluation.lareqa import average_precisions

QUERIES = 30
DOCUMENTS = 300
DEPTH = 100
NAMES = {
    "mrr_at_100": "recip_rank",
    "recall_at_100": "recall_100",
    "success_at_5": "success_5",
}
"""Our metrics to those of trec_eval."""
NAMES_OF_FEW = {
    **NAMES,
    "map_at_20": "map_cut_20",
    "ndcg_at_10": "ndcg_cut_10",
}
"""trec_eval divides map_cut by all relevant documents: so do we where there are at most k."""


@dataclass(frozen=True)
class Ranked:
    """Rankings (Q, K) with judgements; the first result is never right, the seventh always."""

    rows: np.ndarray
    qrels: dict[str, dict[str, int]]

    def measured(self, names: dict[str, str]) -> dict[str, dict[str, float]]:
        """Query to metric to its value by pytrec_eval."""
        run = {}
        for query, rows in enumerate(self.rows):
            scores = {f"d{row}": -float(rank) for rank, row in enumerate(rows[:DEPTH])}
            run[f"q{query}"] = scores
        return pytrec_eval.RelevanceEvaluator(self.qrels, set(names.values())).evaluate(run)


def ranked(most: int, grades: int) -> Ranked:
    """At most so many right answers, judged up to this grade."""
    generator = np.random.default_rng(5)
    rows_of = generator.permuted(np.tile(np.arange(DOCUMENTS), (QUERIES, 1)), axis=1)
    qrels = {}
    for query, rows in enumerate(rows_of):
        others = [1, 3, most - 1][query % 3]
        right = [rows[6], *generator.choice(rows[: 20 * others], others, replace=False)]
        judged = {f"d{row}": int(generator.integers(1, grades + 1)) for row in right}
        judged[f"d{rows[0]}"] = 0
        qrels[f"q{query}"] = judged
    return Ranked(rows_of, qrels)


def table(prefix: str, languages: list[str]) -> Dataset:
    rows = [(f"{prefix}{row}", "", "text", code) for row, code in enumerate(languages)]
    return texts_table(rows)


@pytest.mark.parametrize(
    ("most", "grades", "names"),
    [(20, 1, NAMES_OF_FEW), (130, 3, NAMES)],  # our nDCG has no grades
)
def test_scores_equal_pytrec_eval(most: int, grades: int, names: dict[str, str]) -> None:
    results = ranked(most, grades)
    corpus = table("d", ["en"] * DOCUMENTS)
    queries = table("q", ["fr", "de"] * (QUERIES // 2))
    in_another_order = dict(reversed(results.qrels.items()))
    data = RetrievalData(corpus, queries, in_another_order)

    scores = score_ranking(results.rows[:, :DEPTH], data, list(names))

    measured = results.measured(names)
    for code, first in (("fr", 0), ("de", 1)):
        of_language = [measured[f"q{query}"] for query in range(first, QUERIES, 2)]
        for ours, theirs in names.items():
            expected = np.mean([values[theirs] for values in of_language])
            assert scores[code][ours] == pytest.approx(expected, abs=1e-6)
        assert 0.01 < scores[code]["success_at_5"] < 0.9


def test_missing_documents_count_as_pytrec_eval_counts_them() -> None:
    corpus = table("d", ["en"] * 3)
    qrels = {"q0": {"d1": 1, "gone": 1}, "q1": {"d2": 1}}
    data = RetrievalData(corpus, table("q", ["en", "en"]), qrels)
    run = {name: {"d0": 3.0, "d1": 2.0, "d2": 1.0} for name in qrels}
    measured = pytrec_eval.RelevanceEvaluator(qrels, {"recall_100", "recip_rank"}).evaluate(run)
    [scores] = score_ranking(np.array([[0, 1, 2], [0, 1, 2]]), data).values()
    recalls = [values["recall_100"] for values in measured.values()]
    ranks = [values["recip_rank"] for values in measured.values()]
    assert recalls == [0.5, 1.0]
    assert scores["recall_at_100"] == pytest.approx(np.mean(recalls))
    assert scores["mrr_at_100"] == pytest.approx(np.mean(ranks))


def test_average_precision_over_the_whole_ranking_takes_the_lower_row_first() -> None:
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 9, size=(300, 40)).astype(np.float32)  # with many ties
    relevant = []
    expected = []
    for query, of_query in enumerate(scores):
        gold = np.sort(generator.choice(40, size=1 + query % 7, replace=False))
        relevant.append(gold)
        order = np.argsort(-of_query, kind="stable")
        ranks = np.flatnonzero(np.isin(order, gold)) + 1
        expected.append(np.mean(np.arange(1, len(ranks) + 1) / ranks))
    precisions = average_precisions(torch.from_numpy(scores), torch.eye(40), relevant)
    np.testing.assert_allclose(precisions, expected)
