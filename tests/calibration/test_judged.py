"""Recall of judged queries, against a search of everything at once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from st_xlret.calibration import VectorCalibration, judged_recall
from st_xlret.calibration.rows import strict_unit_rows
from tests.calibration.clouds import CODES, clouds

LANGUAGES = np.tile(CODES, 40)
DOCUMENTS = np.stack([*clouds(texts=40).values()], axis=1).reshape(-1, 12)
QUERIES = DOCUMENTS + 1.5 * np.random.default_rng(1).normal(size=DOCUMENTS.shape)


def batches(vectors: NDArray) -> Iterator[tuple[list[str], NDArray, list[str]]]:
    for rows in np.array_split(np.arange(len(vectors)), 5):
        yield [*map(str, rows)], vectors[rows], LANGUAGES[rows].tolist()


def fit(rows: Any = slice(None), **how: Any) -> VectorCalibration:
    return VectorCalibration.fit(DOCUMENTS[rows], languages=LANGUAGES[rows], min_texts=2, **how)


@pytest.fixture
def qrels(tmp_path: Path) -> Path:
    """A query has an answer in each language."""
    rows = [
        (query, query // 4 * 4 + other, int(query % 7 > 0))
        for query in range(160)
        for other in range(4)
    ]
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in rows)]
    (tmp_path / "qrels.tsv").write_text("\n".join(lines))
    return tmp_path / "qrels.tsv"


@pytest.mark.parametrize("queries_only", [False, True])
@pytest.mark.parametrize("steps", [("lsar",), ("shift",)])
def test_recall_is_that_of_a_search_of_everything_at_once(
    qrels: Path, queries_only: bool, steps: tuple
) -> None:
    fitted = fit(steps=steps, queries_only=queries_only)
    maps = {strength: fitted.at(strength) for strength in (0.0, 0.6, 1.0)}
    recall = judged_recall(batches(DOCUMENTS), batches(QUERIES), str(qrels), maps)
    judged = [query for query in range(160) if query % 7]
    for strength, calibration in maps.items():
        pool = strict_unit_rows(calibration.transform(DOCUMENTS, "document", LANGUAGES))
        nearest = np.argsort(-calibration.transform(QUERIES, "query", LANGUAGES) @ pool.T, axis=1)[
            :, :10
        ]
        for half in (0, 1):
            rows: dict[str, list[list[float]]] = {code: [] for code in CODES}
            for query in judged[half::2]:
                answers = query // 4 * 4 + np.arange(4)
                is_there, is_own = (
                    np.isin(answers, nearest[query]),
                    LANGUAGES[answers] == LANGUAGES[query],
                )
                rows[LANGUAGES[query]].append(
                    [is_there.mean(), is_there[is_own].mean(), is_there[~is_own].mean()]
                )
            means = [np.mean(part, axis=0) for part in rows.values()]
            np.testing.assert_allclose(recall[strength][half], np.mean(means, axis=0))
    assert recall[1.0][0].other_languages > recall[0.0][0].other_languages


def test_judgements_of_what_is_not_there_are_named(qrels: Path) -> None:
    fitted, without_french = fit(), fit(LANGUAGES != "fr", steps=["shift"])
    whole = qrels.read_text()

    def recall(content: str, calibration: VectorCalibration = fitted) -> Any:
        qrels.write_text(content)
        return judged_recall(batches(DOCUMENTS), batches(QUERIES), str(qrels), {1.0: calibration})

    for content, calibration, message in (
        (f"{whole}\nlost\t0\t1", fitted, "query 'lost'"),
        (whole, without_french, "query '10'"),  # French has no map
        ("0\t0\t1\n1\t1\t0\n", fitted, "has 1 quer"),
    ):
        with pytest.raises(ValueError, match=f"qrels.tsv.*{message}"):
            recall(content, calibration)
    with pytest.warns(
        UserWarning, match="qrels.tsv: 1 judged documents are not among the rows.*'210'"
    ):
        assert recall(f"{whole}\n1\t210\t1") == recall(whole)
