"""No passage of a batch answers two of its questions."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest
from datasets import Dataset

from st_xlret.batches import DistinctRows


def questions(count: int = 60, *, same: int = 3, languages: tuple[str, ...] = ("en", "sw")) -> Dataset:
    """Questions that share their passage with `same` - 1 others; every negative is the passage of another question."""
    dice = random.Random(0)
    rows = [
        {
            "query": f"q{i // 2 if i < 6 else i}",
            "positive": f"p{i // same}",
            "negative_1": f"p{dice.choice([j for j in range(count // same) if j != i // same])}",
            "language": languages[i // same % len(languages)],
        }
        for i in range(count)
    ]
    return Dataset.from_list(rows)


def false_negatives(data: Dataset, batch: list[int]) -> list[tuple[int, int]]:
    """Pairs of rows one of which has the other's question, or its passage among its own: a naive reference."""
    found = []
    for i in batch:
        for j in batch:
            one, other = data[i], data[j]
            if i != j and (
                one["query"] == other["query"] or one["positive"] in (other["positive"], other["negative_1"])
            ):
                found.append((i, j))
    return found


@pytest.mark.parametrize("mixing", [0.0, 1.0])
def test_batches_have_no_false_negatives_and_an_epoch_most_rows(mixing: float) -> None:
    data = questions()
    sampler: Any = DistinctRows(language_mixing=mixing)(data, 4, seed=3)
    batches = list(sampler)
    assert len(batches) == len(sampler) == 15 and all(len(batch) == len(set(batch)) == 4 for batch in batches)
    assert not any(false_negatives(data, batch) for batch in batches)
    assert len({row for batch in batches for row in batch}) > 45
    if not mixing:
        assert all(len({data[row]["language"] for row in batch}) == 1 for batch in batches)
    assert batches == list(DistinctRows(language_mixing=mixing)(data, 4, seed=3))
    sampler.set_epoch(1)
    assert batches != list(sampler)


def test_one_language_is_read_once_in_an_epoch_where_nothing_collides() -> None:
    data = questions(30, same=1, languages=("en",)).remove_columns("negative_1").select(range(6, 30))
    assert sorted(row for batch in DistinctRows()(data, 4) for row in batch) == list(range(24))


def test_a_batch_that_cannot_be_filled_is_filled_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    data = questions(12, same=6, languages=("en",))
    with caplog.at_level(logging.WARNING):
        batches = list(DistinctRows()(data, 6))
    assert [len(batch) for batch in batches] == [6, 6]
    assert len([record for record in caplog.records if "lower the batch size" in record.getMessage()]) == 1


def test_questions_need_passages() -> None:
    with pytest.raises(ValueError, match=r"\['query'\]"):
        DistinctRows()(Dataset.from_dict({"query": ["a"], "language": ["en"]}), 1)
