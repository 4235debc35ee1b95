"""No passage of a batch answers two of its questions."""

from __future__ import annotations

import logging
import random
from collections import Counter
from typing import Any

import pytest
from datasets import Dataset

from st_xlret.batches import (
    CrossLingualDataCollator,
    DistinctRows,
    LanguageBatchSampler,
    PairsAndOthers,
    pairs_and_others,
)
from tests import tiny


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


@pytest.fixture
def both() -> Dataset:
    return pairs_and_others(tiny.pairs(12), tiny.texts(6))


def test_rows_are_of_one_kind(both: Dataset) -> None:
    assert both.column_names == ["source", "target", "source_language", "target_language", "other", "other_language"]
    assert all(bool(row["source"]) == bool(row["target"]) == (not row["other"]) for row in both.to_list())
    assert both[:12]["source"] == tiny.pairs(12)["source"][:]
    assert both[12:]["other"] == tiny.texts(6)["sentence"][:]
    assert pairs_and_others(tiny.pairs(3), None).column_names[-1] == "target_language"
    # Selected rows, as those left by a hold-out are.
    assert pairs_and_others(tiny.pairs(12).select([3, 5]), tiny.texts(6).select([1]))[2]["other"]


def test_a_batch_has_pairs_and_then_others(both: Dataset) -> None:
    sampler = PairsAndOthers(others=3)(both, 4, seed=1)
    batches = list(sampler)
    assert len(batches) == len(sampler) == 3
    assert all([row >= 12 for row in batch] == [False] * 4 + [True] * 3 for batch in batches)
    # Every pair comes once in an epoch, the others begin anew.
    assert sorted(row for batch in batches for row in batch[:4]) == list(range(12))
    counts = Counter(row for batch in batches for row in batch[4:])
    assert len(counts) >= 5 and max(counts.values()) <= 3


def test_no_rows_of_a_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="data set is empty"):
        PairsAndOthers()(pairs_and_others(tiny.pairs(2).select([]), tiny.texts(4)), 2)


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_columns_hold_the_rows_that_have_them(make, both: Dataset) -> None:
    model = make()
    collate = CrossLingualDataCollator(model.preprocess)
    rows = both.select([0, 1, 13, 14, 15]).to_list()
    batch = collate([{**row, "dataset_name": "language"} for row in rows])
    assert batch["dataset_name"] == "language"
    assert len(batch["source_text_id"]) == len(batch["target_language_id"]) == 2
    assert len(batch["other_text_id"]) == len(batch["other_language_id"]) == 3
    alone = collate([{"other": row["other"], "other_language": row["other_language"]} for row in rows[2:]])
    assert all((batch[name] == value).all() for name, value in alone.items() if hasattr(value, "shape"))


def test_sizes(both: Dataset) -> None:
    batches = PairsAndOthers(pairs=5, others=3, language_smoothing=0.5)
    assert len(next(iter(batches(both, 4)))) == 8
    alone = batches(tiny.pairs(12), 4)
    assert isinstance(alone, LanguageBatchSampler) and len(next(iter(alone))) == 5
    assert len(next(iter(PairsAndOthers()(both, 4)))) == 8


def test_the_others_of_a_repeated_pass_are_new_and_the_epoch_is_the_true_one(both: Dataset) -> None:
    sampler = PairsAndOthers(others=6, language_mixing=1.0)(both, 4)
    sampler.set_epoch(2)
    passes = [tuple(batch[4:]) for batch in sampler]
    assert len(set(passes)) == 3 and sampler.samplers[1].epoch == 2


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_an_empty_text_is_a_text_where_kinds_share_a_column(make) -> None:
    collate = CrossLingualDataCollator(make().preprocess)
    rows = [{"source": "sun", "target": "moon"}, {"source": "star", "target": ""}]
    batch = collate(rows)
    assert len(batch["source_text_id"]) == len(batch["target_text_id"]) == 2
    both_empty = collate([*rows, {"source": "", "target": ""}])
    assert len(both_empty["source_text_id"]) == len(both_empty["target_text_id"]) == 3
