"""Batches of rows of about one length."""

import numpy as np
import pytest
from datasets import Dataset

from st_xlret.batches import LengthGroupedBatches
from st_xlret.batches.lengths import LengthGroupedBatchSampler
from tests import tiny


@pytest.mark.parametrize(("drop_last", "read"), [(True, 1000), (False, 1003)])
def test_batches_of_about_one_length(drop_last: bool, read: int) -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 1003)
    sampler = LengthGroupedBatchSampler(tiny.texts(1003), 8, drop_last, lengths=lengths)
    batches = list(sampler)
    rows = sum(batches, [])
    assert len(batches) == len(sampler)
    assert len(set(rows)) == len(rows) == read
    longest = [lengths[batch].max() for batch in batches]
    assert 8 * sum(longest) < 1.1 * lengths.sum(), "little padding"
    correlation = np.corrcoef(longest, np.arange(len(longest)))[0, 1]
    assert abs(correlation) < 0.3, "an epoch is mixed"


def split(texts: list[str]) -> dict[str, list[list[str]]]:
    """A tokenizer of words."""
    return {"input_ids": [text.split() for text in texts]}


@pytest.mark.parametrize(("texts_per_batch", "size"), [(True, 6), (False, 12)])
def test_the_longest_text_of_a_row_counts_and_a_batch_counts_texts(
    texts_per_batch: bool,
    size: int,
) -> None:
    rows = Dataset.from_dict(
        {
            "query": ["a", "a b c"] * 20,
            "positive": ["a b", "a"] * 20,
            "label": [0, 1] * 20,
            "language": ["en"] * 40,
        }
    )
    batches = LengthGroupedBatches(split, texts_per_batch=texts_per_batch)
    sampler = batches(rows, 12)
    assert isinstance(sampler, LengthGroupedBatchSampler)
    assert sampler.batch_size == size
    assert sampler.lengths.tolist() == [2, 3] * 20
