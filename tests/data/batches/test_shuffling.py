"""Random orders: each number once, like those of NumPy, and without memory for each where there are many."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from st_xlret.data.batches import shuffling
from st_xlret.data.batches.shuffling import Shuffle


@pytest.fixture
def always_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffling, "IN_MEMORY", 0)


def whole(length: int, seed: int = 0) -> np.ndarray:
    return Shuffle(length, np.random.default_rng(seed))[np.arange(length)]


def test_short_orders_are_numpys() -> None:
    rows = np.array([3, 9, 4, 7])
    np.testing.assert_array_equal(rows[whole(4, seed=5)], np.random.default_rng(5).permutation(rows))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 100, 1009, 4097])
def test_every_number_once(length: int, always_large: None) -> None:
    for seed in range(5):
        assert sorted(whole(length, seed).tolist()) == list(range(length))


def test_places_are_asked_for_in_any_order(always_large: None) -> None:
    order = Shuffle(1000, np.random.default_rng(0))
    places = np.random.default_rng(1).integers(0, 1000, 50)
    np.testing.assert_array_equal(order[places], order[np.arange(1000)][places])


def test_orders_look_random(always_large: None) -> None:
    length, orders = 60, 3000
    drawn = np.stack([whole(length, seed) for seed in range(orders)])
    # Each number is at each place about equally often, and so is each difference of neighbours. The bounds leave out
    # less than one order in a million of truly random ones.
    for table in (drawn, (drawn[:, 1:] - drawn[:, :-1]) % length - 1):
        numbers = table.max() + 1
        for place in range(table.shape[1]):
            expected = orders / numbers
            chi = ((np.bincount(table[:, place], minlength=numbers) - expected) ** 2 / expected).sum()
            assert abs(chi - numbers) < 6 * np.sqrt(2 * numbers)


def test_many_numbers_take_no_memory() -> None:
    tracemalloc.start()
    order = Shuffle(10**12, np.random.default_rng(0))
    drawn = order[np.arange(1000)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
    assert len(set(drawn.tolist())) == 1000 and drawn.min() >= 0 and 3e11 < drawn.mean() < 7e11 and drawn.max() < 10**12
