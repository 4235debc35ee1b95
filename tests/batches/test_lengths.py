"""Batches of about the same length: every row once, little padding, the same for any number of processes."""

from __future__ import annotations

import numpy as np
import pytest
from datasets import Dataset

from st_xlret.batches import LengthGroupedBatches
from st_xlret.batches.lengths import LengthGroupedBatchSampler


def rows(count: int = 1000, seed: int = 0) -> tuple[Dataset, list[int]]:
    lengths = np.random.default_rng(seed).integers(1, 60, count).tolist()
    return Dataset.from_dict({"text": ["w " * length for length in lengths]}), lengths


def split(texts: list[str]) -> dict[str, list[list[str]]]:
    return {"input_ids": [text.split() for text in texts]}


@pytest.mark.parametrize("drop_last", [True, False])
def test_each_row_once_and_as_many_batches_as_it_says(drop_last: bool) -> None:
    dataset, lengths = rows(1003)
    sampler = LengthGroupedBatchSampler(dataset, 8, drop_last, lengths=lengths)
    batches = list(sampler)
    used = [row for batch in batches for row in batch]
    assert len(batches) == len(sampler) and len(set(used)) == len(used) == (1000 if drop_last else 1003)
    assert all(len(batch) == 8 for batch in batches[:-1])


def test_a_batch_needs_little_padding_and_an_epoch_is_mixed() -> None:
    dataset, lengths = rows()
    batches = list(LengthGroupedBatchSampler(dataset, 8, True, lengths=lengths))
    padded = sum(len(batch) * max(lengths[row] for row in batch) for batch in batches)
    assert padded < 1.1 * sum(lengths)
    longest = [max(lengths[row] for row in batch) for batch in batches]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3


def test_a_batch_counts_texts() -> None:
    dataset = Dataset.from_dict({name: ["a b"] * 40 for name in ("query", "positive", "negative_1", "language")})
    sampler = LengthGroupedBatches(split, texts_per_batch=True)(dataset, batch_size=12, drop_last=True, seed=0)
    assert sampler.batch_size == 4
    assert LengthGroupedBatches(split)(dataset, batch_size=12, drop_last=True).batch_size == 12
    assert sampler.lengths.tolist() == [2] * 40


def test_the_longest_text_of_a_row_counts() -> None:
    dataset = Dataset.from_dict({"query": ["a", "a b c"], "positive": ["a b", "a"], "label": [0, 1]})
    assert LengthGroupedBatches(split)(dataset, 1, False).lengths.tolist() == [2, 3]
    with pytest.raises(ValueError, match="label"):
        LengthGroupedBatches(split)(dataset.select_columns(["label"]), 1, False)
