"""Recall of judged queries, against a search of everything at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from st_xlret.calibration import VectorCalibration, judged_recall

CODES = ["de", "en", "fr"]
TOPICS = 70
LANGUAGES = np.array(CODES * TOPICS)


def clouds(noise: float) -> NDArray:
    """A row for each topic and language; a language has a place of its own."""
    generator = np.random.default_rng(int(10 * noise))
    topics, places = np.random.default_rng(0).normal(size=(TOPICS, 1, 12)), 4 * np.eye(12)[: len(CODES)]
    return (topics + places + noise * generator.normal(size=(TOPICS, len(CODES), 12))).reshape(-1, 12)


DOCUMENTS, QUERIES = clouds(0.5), clouds(1.5)


def batches(vectors: NDArray) -> Iterator[tuple[list[str], NDArray, list[str]]]:
    for first in range(0, len(vectors), 50):
        rows = slice(first, first + 50)
        yield [*map(str, range(len(vectors))[rows])], vectors[rows], LANGUAGES[rows].tolist()


@pytest.fixture
def qrels(tmp_path: Path) -> Path:
    """A query has an answer in each language."""
    rows = [(query, query // 3 * 3 + other, int(query % 7 > 0)) for query in range(3 * TOPICS) for other in range(3)]
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in rows)]
    (tmp_path / "qrels.tsv").write_text("\n".join(lines))
    return tmp_path / "qrels.tsv"


@pytest.mark.parametrize("queries_only", [False, True])
@pytest.mark.parametrize("steps", [("lsar",), ("shift",)])
def test_recall_is_that_of_a_search_of_everything_at_once(qrels: Path, queries_only: bool, steps: tuple) -> None:
    fitted = VectorCalibration.fit(DOCUMENTS, languages=LANGUAGES, steps=steps, queries_only=queries_only)
    maps = {amount: fitted.at(amount) for amount in (0.0, 0.6, 1.0)}
    recall = judged_recall(batches(DOCUMENTS), batches(QUERIES), str(qrels), maps)
    judged = [query for query in range(3 * TOPICS) if query % 7]
    for amount, calibration in maps.items():
        pool = calibration.transform(DOCUMENTS, "document", LANGUAGES)
        pool = pool / np.linalg.norm(pool, axis=1, keepdims=True)
        nearest = np.argsort(-calibration.transform(QUERIES, "query", LANGUAGES) @ pool.T, axis=1)[:, :10]
        for half in (0, 1):
            means = []
            for code in CODES:
                rows = []
                for query in judged[half::2]:
                    if LANGUAGES[query] == code:
                        answers = query // 3 * 3 + np.arange(3)
                        is_found, is_own = np.isin(answers, nearest[query]), LANGUAGES[answers] == code
                        rows.append([is_found.mean(), is_found[is_own].mean(), is_found[~is_own].mean()])
                means.append(np.mean(rows, axis=0))
            np.testing.assert_allclose(recall[amount][half], np.mean(means, axis=0))
    assert recall[1.0][0].other_languages > recall[0.0][0].other_languages


def test_judgements_of_what_is_not_there_are_named(qrels: Path) -> None:
    english_and_german = np.isin(LANGUAGES, ["de", "en"])
    fitted = VectorCalibration.fit(DOCUMENTS, languages=LANGUAGES)
    some = VectorCalibration.fit(
        DOCUMENTS[english_and_german], languages=LANGUAGES[english_and_german], steps=["shift"]
    )
    whole = qrels.read_text()
    for line, calibration, name in (
        ("lost\t0\t1", fitted, "query 'lost'"),
        ("", some, "query '101'"),  # French has no map
    ):
        qrels.write_text(f"{whole}\n{line}".rstrip())
        with pytest.raises(ValueError, match=f"qrels.tsv.*{name}"):
            judged_recall(batches(DOCUMENTS), batches(QUERIES), str(qrels), {1.0: calibration})
    qrels.write_text(f"{whole}\n1\t210\t1")
    with pytest.warns(UserWarning, match="qrels.tsv: 1 judged documents are not among the rows.*'210'"):
        with_missing = judged_recall(batches(DOCUMENTS), batches(QUERIES), str(qrels), {1.0: fitted})
    qrels.write_text(whole)
    assert with_missing == judged_recall(batches(DOCUMENTS), batches(QUERIES), str(qrels), {1.0: fitted})
    qrels.write_text("0\t0\t1\n1\t1\t0\n")
    with pytest.raises(ValueError, match="qrels.tsv has 1 quer"):
        judged_recall(batches(DOCUMENTS), batches(QUERIES), str(qrels), {1.0: fitted})
