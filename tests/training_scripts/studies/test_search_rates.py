"""Learning rates that the study of search tries: none twice, none without need, and none beyond the limit."""

from __future__ import annotations

import math

import pytest

from training_scripts.studies.search_rates import best_of, trials


def tried_in_turn(scores: dict[float, float], rates: list[float], further: int) -> list[float]:
    """The rates in the order in which they are tried, each scored as `scores` says."""
    known: dict[float, float] = {}
    while new := [rate for rate, score in trials(rates, known.get, further=further).items() if score is None]:
        known |= {rate: scores[rate] for rate in new}
    assert best_of(trials(rates, known.get, further=further)) == max(known, key=lambda rate: known[rate])
    return list(known)


@pytest.mark.parametrize(
    ("scores", "tried"),
    [
        ({1e-5: 0.1, 3e-5: 0.3, 1e-4: 0.2}, [1e-5, 3e-5, 1e-4]),
        ({1e-5: 0.1, 3e-5: 0.2, 1e-4: 0.3, 3e-4: 0.1}, [1e-5, 3e-5, 1e-4, 3e-4]),
        ({1e-5: 0.1, 3e-5: 0.2, 1e-4: 0.3, 3e-4: 0.4, 9e-4: 0.3}, [1e-5, 3e-5, 1e-4, 3e-4, 9e-4]),
        ({1e-5: 0.3, 3e-5: 0.2, 1e-4: 0.1, 3e-6: 0.4, 9e-7: 0.5}, [1e-5, 3e-5, 1e-4, 3e-6, 9e-7]),
    ],
)
def test_rates_beyond_an_end_are_tried_while_the_best_is_there(scores: dict[float, float], tried: list[float]) -> None:
    assert tried_in_turn(scores, [1e-5, 3e-5, 1e-4], further=2) == tried


def test_no_more_rates_than_allowed() -> None:
    assert tried_in_turn({1e-5: 0.3, 3e-5: 0.2}, [1e-5, 3e-5], further=0) == [1e-5, 3e-5]
    assert tried_in_turn({1e-5: 0.3, 3e-5: 0.2, 3e-6: 0.4}, [1e-5, 3e-5], further=1) == [1e-5, 3e-5, 3e-6]


def test_one_rate_is_not_tuned() -> None:
    assert trials([1e-5], {1e-5: 0.3}.get, further=2) == {1e-5: 0.3}


@pytest.mark.parametrize("scores", [{1e-4: 0.3, 1.01e-4: 0.4}, {1.2e-4: 0.3, 1.3e-4: 0.4}, {1.6e-4: 0.4, 1.7e-4: 0.3}])
def test_rates_too_close_for_a_round_one_beyond_them(scores: dict[float, float]) -> None:
    assert trials(list(scores), scores.get, further=2) == scores


def test_a_rate_that_failed_is_the_worst_and_none_follows_it() -> None:
    scores = {1e-5: 0.1, 3e-5: 0.2, 9e-5: -math.inf}
    assert trials([1e-5, 3e-5], scores.get, further=2) == scores and best_of(scores) == 3e-5
    assert best_of({1e-5: -math.inf, 3e-5: -math.inf}) is None


def test_nothing_is_chosen_before_all_rates_are_tried() -> None:
    assert best_of({1e-5: 0.3, 3e-5: None}) is None
    assert best_of({1e-5: 0.3, 3e-5: 0.3}) == 1e-5  # the first of equal ones
