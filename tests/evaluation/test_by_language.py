"""Metrics by language, by hand: of three queries with three translations each that are right."""

import numpy as np
import pytest

from st_xlret.evaluation import language_metrics

RELEVANT = [np.array([0, 1, 2]), np.array([3, 4, 5]), np.array([6, 7, 8])]
LANGUAGES = ["en", "fra_Latn", "de"] * 4  # in any spelling
RANKING = [[0, 1, 9], [9, 10, 5], [0, 1, 8]]


def metrics_of(ranking: list[list[int]], *asked: str) -> dict[str, np.ndarray]:
    return language_metrics(np.array(ranking), RELEVANT, asked, LANGUAGES)


def test_a_region_makes_no_other_language() -> None:
    expected = metrics_of(RANKING, "en", "fr", "en")
    for name, values in metrics_of(RANKING, "en-US", "fr-CA", "en-GB").items():
        np.testing.assert_array_equal(values, expected[name])


def test_recall_of_the_own_language_and_of_others() -> None:
    metrics = metrics_of(RANKING, "en", "fr", "en")
    assert metrics["recall_at_10_same_language"].tolist() == [1, 0, 0]
    assert metrics["recall_at_10_other_languages"].tolist() == [0.5, 0.5, 0.5]


def test_the_share_of_the_own_language_and_how_often_it_is_first() -> None:
    metrics = metrics_of(RANKING, "en", "fr", "en")
    assert metrics["same_language_at_10"].tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 3])
    assert metrics["language_preference_rate"].tolist() == [1, 0, 0]


def test_a_right_answer_in_the_own_language_gains_twice() -> None:
    metrics = metrics_of(RANKING, "en", "fr", "en")
    second = 1 / np.log2(3)
    third = 1 / np.log2(4)
    ideal = 2 + second + third
    expected = np.array([2 + second, third, third]) / ideal
    np.testing.assert_allclose(metrics["language_ndcg_at_10"], expected)


def test_the_first_result_is_one_of_four() -> None:
    metrics = metrics_of(RANKING, "en", "fr", "en")
    assert metrics["right_same_language"].tolist() == [1, 0, 0]
    assert metrics["right_other_language"].tolist() == [0, 0, 0]
    assert metrics["wrong_same_language"].tolist() == [0, 0, 1]
    assert metrics["wrong_other_language"].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("ranking", "preference"),
    [
        ([[2, 1, 0, 3], [5, 4, 3, 0], [6, 8, 7, 0]], [0, 0, 0]),  # perfect, in any order
        ([[0, 3, 6, 9], [0, 2, 3, 5], [0, 1, 4, 9]], [2 / 3, -1 / 3, 0]),
    ],
)
def test_preference_is_beside_what_a_perfect_ranking_has(
    ranking: list[list[int]], preference: list[float]
) -> None:
    metrics = metrics_of(ranking, "en", "fr", "en")
    assert metrics["language_preference"].tolist() == pytest.approx(preference)


def test_preference_looks_at_twenty_results_at_most() -> None:
    # Of 25 right answers, 5 are in the query's language; 10 of the first 20 results are, then none.
    languages = ["en"] * 5 + ["fr"] * 20 + ["en"] * 5 + ["fr"] * 10
    ranking = np.array([[*range(25, 30), *range(5), *range(30, 40), *range(5, 25)]])
    [preference] = language_metrics(ranking, [np.arange(25)], ["en"], languages)[
        "language_preference"
    ]
    assert preference == pytest.approx(10 / 20 - 5 / 25)


def test_a_language_without_right_answers_has_no_value() -> None:
    metrics = metrics_of(RANKING, "sw", "fr", "en")
    assert np.isnan(metrics["recall_at_10_same_language"][0])
    assert np.isnan(metrics["language_preference_rate"][0])
    assert metrics["recall_at_10_other_languages"][0] == pytest.approx(2 / 3)


def test_a_query_without_a_language_has_no_values() -> None:
    metrics = metrics_of(RANKING, "", "fr", "en")
    assert [name for name, values in metrics.items() if not np.isnan(values[0])] == []
