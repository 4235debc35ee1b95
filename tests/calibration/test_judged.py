"""Recall of judged queries, against a search of everything at once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from st_xlret.calibration import VectorCalibration, judged_recall
from st_xlret.calibration.judged import NamedRows, Recall
from st_xlret.calibration.rows import strict_unit_rows
from tests.calibration.clouds import CODES, clouds

ROWS = 160
LANGUAGES = np.tile(CODES, 40)
CLOUDS = list(clouds(texts=40).values())
DOCUMENTS = np.stack(CLOUDS, axis=1).reshape(ROWS, 12)
NOISE = np.random.default_rng(1).normal(size=(ROWS, 12))
QUERIES = DOCUMENTS + 1.5 * NOISE


def answers_of(query: int) -> NDArray:
    """The numbers of a text in all languages."""
    return query // 4 * 4 + np.arange(4)


def has_answers(query: int) -> bool:
    return query % 7 > 0


def batches(vectors: NDArray) -> Iterator[NamedRows]:
    for rows in np.array_split(np.arange(len(vectors)), 5):
        names = [str(row) for row in rows]
        yield NamedRows(names, vectors[rows], LANGUAGES[rows].tolist())


def fit(rows: Any = slice(None), **how: Any) -> VectorCalibration:
    return VectorCalibration.fit(DOCUMENTS[rows], languages=LANGUAGES[rows], min_texts=2, **how)


@pytest.fixture
def qrels(tmp_path: Path) -> Path:
    """A query has an answer in each language, or none at all."""
    lines = ["query-id\tcorpus-id\tscore"]
    for query in range(ROWS):
        for answer in answers_of(query):
            lines.append(f"{query}\t{answer}\t{int(has_answers(query))}")
    (tmp_path / "qrels.tsv").write_text("\n".join(lines))
    return tmp_path / "qrels.tsv"


def naive_recall(calibration: VectorCalibration, queries: list[int]) -> NDArray:
    """Recall@10 of all answers, of those in the query's language and of the others, and MRR@10."""
    pool = strict_unit_rows(calibration.transform(DOCUMENTS, "document", LANGUAGES))
    scores = calibration.transform(QUERIES, "query", LANGUAGES) @ pool.T
    nearest = np.argsort(-scores, axis=1)[:, :10]
    by_language: dict[str, list[list[float]]] = {}
    for query in queries:
        answers = answers_of(query)
        found = nearest[query]
        is_found = np.isin(answers, found)
        is_own = LANGUAGES[answers] == LANGUAGES[query]
        own = is_found[is_own].mean()
        others = is_found[~is_own].mean()
        places = np.flatnonzero(np.isin(found, answers))
        reciprocal_rank = 0.0
        if len(places):
            reciprocal_rank = 1 / (1 + places[0])
        figures = by_language.setdefault(LANGUAGES[query], [])
        figures.append([is_found.mean(), own, others, reciprocal_rank])
    means = [np.mean(part, axis=0) for part in by_language.values()]
    return np.mean(means, axis=0)


def naive_halves() -> tuple[list[int], list[int]]:
    """The judged queries, those with the same answers in one half, and as many of each language."""
    halves: tuple[list[int], list[int]] = ([], [])
    sizes = np.zeros((2, 4))
    for start in range(0, ROWS, 4):  # translations, which have the same answers
        judged = [query for query in range(start, start + 4) if has_answers(query)]
        places = [query % 4 for query in judged]
        first, second = sizes[:, places].sum(axis=1)
        half = int(second < first)
        halves[half].extend(judged)
        sizes[half, places] += 1
    assert np.ptp(sizes, axis=0).max() <= 1
    return halves


@pytest.mark.parametrize("queries_only", [False, True])
@pytest.mark.parametrize("steps", [("lsar",), ("shift",)])
def test_recall_is_that_of_a_search_of_everything_at_once(
    qrels: Path, queries_only: bool, steps: tuple
) -> None:
    fitted = fit(steps=steps, queries_only=queries_only)
    maps = {strength: fitted.at(strength) for strength in (0.0, 0.6, 1.0)}
    recall = judged_recall(batches(DOCUMENTS), batches(QUERIES), str(qrels), maps)
    halves = naive_halves()
    for strength, calibration in maps.items():
        for half, queries in zip(recall[strength], halves, strict=True):
            expected = naive_recall(calibration, queries)
            np.testing.assert_allclose(half[:4], expected)
    before = recall[0.0].first
    after = recall[1.0].first
    assert after.other_languages > before.other_languages


def test_a_region_makes_no_other_language(qrels: Path) -> None:
    maps = {1.0: fit()}
    regional = []
    for names, vectors, codes in batches(QUERIES):
        regions = [f"{code}-001" for code in codes]
        regional.append(NamedRows(names, vectors, regions))
    expected = judged_recall(batches(DOCUMENTS), batches(QUERIES), str(qrels), maps)
    found = judged_recall(batches(DOCUMENTS), regional, str(qrels), maps)
    assert found == expected


def test_the_interval_of_a_gain_is_that_of_the_same_queries() -> None:
    before = Recall(0.5, 0.5, 0.5, 0.5, (0.25, 0.25, 0.0, 0.0))
    after = Recall(0.75, 0.5, 1.0, 0.5, (0.25, 0.25, 0.25, 0.0))
    # The gains are 0, 0, 1 and 0, a quarter of each: their standard deviation is 0.433 / 4.
    margin = 1.96 * 2 * 0.433 / 4
    lowest, highest = after.gain_over(before)
    assert lowest == pytest.approx(0.25 - margin, rel=1e-3)
    assert highest == pytest.approx(0.25 + margin, rel=1e-3)
    assert after.gain_over(after) == (0, 0)


def recall_by(qrels: Path, content: str, calibration: VectorCalibration) -> Any:
    qrels.write_text(content)
    return judged_recall(batches(DOCUMENTS), batches(QUERIES), str(qrels), {1.0: calibration})


def test_judged_queries_that_are_not_there_are_named(qrels: Path) -> None:
    content = f"{qrels.read_text()}\nlost\t0\t1"
    with pytest.raises(ValueError, match="qrels.tsv.*query 'lost'"):
        recall_by(qrels, content, fit())


def test_judged_queries_in_a_language_without_a_map_are_named(qrels: Path) -> None:
    without_french = fit(LANGUAGES != "fr", steps=["shift"])
    with pytest.raises(ValueError, match="qrels.tsv.*query '10'"):
        recall_by(qrels, qrels.read_text(), without_french)


def test_one_judged_query_has_no_halves(qrels: Path) -> None:
    with pytest.raises(ValueError, match="qrels.tsv.*has 1 quer"):
        recall_by(qrels, "0\t0\t1\n1\t1\t0\n", fit())


def test_judged_documents_that_are_not_there_are_left_out_with_a_warning(qrels: Path) -> None:
    whole = qrels.read_text()
    expected = recall_by(qrels, whole, fit())
    message = "qrels.tsv: 1 judged documents are not among the rows.*'210'"
    with pytest.warns(UserWarning, match=message):
        recall = recall_by(qrels, f"{whole}\n1\t210\t1", fit())
    assert recall == expected


def own_answers(queries: range, suffix: str = "") -> str:
    """Judgements by which the text of a query answers it."""
    return "".join(f"{query}\t{query}{suffix}\t1\n" for query in queries)


def test_queries_without_an_answer_among_the_rows_count_nowhere(qrels: Path) -> None:
    there = own_answers(range(0, ROWS, 3))
    gone = own_answers(range(1, ROWS, 3), suffix="-gone")
    expected = recall_by(qrels, there, fit())
    with pytest.warns(UserWarning, match="53 judged documents.* and 53 queries"):
        recall = recall_by(qrels, there + gone, fit())
    np.testing.assert_equal(recall, expected)


def test_queries_are_halved_within_their_languages_in_any_order(qrels: Path) -> None:
    qrels.write_text(own_answers(range(ROWS)))
    maps = {1.0: fit()}
    alternating = judged_recall(batches(DOCUMENTS), batches(QUERIES), str(qrels), maps)
    rows = np.argsort(LANGUAGES, kind="stable")
    names = [str(row) for row in rows]
    by_language = NamedRows(names, QUERIES[rows], LANGUAGES[rows].tolist())
    sorted_ones = judged_recall(batches(DOCUMENTS), [by_language], str(qrels), maps)
    for half, other in zip(alternating[1.0], sorted_ones[1.0], strict=True):
        np.testing.assert_allclose(half[:4], other[:4])


def test_queries_that_all_have_the_same_answers_have_no_halves(qrels: Path) -> None:
    with pytest.raises(ValueError, match="qrels.tsv.*answers differ"):
        recall_by(qrels, "0\t0\t1\n1\t0\t1\n2\t0\t1\n", fit())


def test_a_judged_name_of_two_rows_is_refused(qrels: Path) -> None:
    twice = [*batches(DOCUMENTS), *batches(DOCUMENTS[:4])]
    with pytest.raises(ValueError, match="qrels.tsv.*two rows.*'0'"):
        judged_recall(twice, batches(QUERIES), str(qrels), {1.0: fit()})
