"""The samplers of an MSM run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from st_xlret.data import BlockBatches, BlockBatchSampler, LanguageBatchSampler
from tests import tiny

BLOCKS = ["sentence", "language", "document", "position"]


@pytest.mark.parametrize(
    ("columns", "expected"), [(BLOCKS, BlockBatchSampler), (["sentence", "language"], LanguageBatchSampler)]
)
def test_every_kind_of_batch_holds_as_many_sentences(columns: list[str], expected: type) -> None:
    dataset = tiny.documents(count=400, sentences=6).select_columns(columns)
    sampler = BlockBatches(block_size=6)(dataset, 10)
    assert type(sampler) is expected
    assert 57 <= np.mean([len(batch) for batch in sampler]) <= 60


def test_a_pair_is_two_texts() -> None:
    batches = BlockBatches(block_size=6)
    assert len(next(iter(batches(tiny.pairs(), 10)))) == 30
    assert len(next(iter(BlockBatches(block_size=1)(tiny.pairs(), 1)))) == 1
    assert batches.counts is None


def test_options_reach_the_samplers() -> None:
    batches = BlockBatches(block_size=3, language_smoothing=0.0)
    sampler: Any = batches(tiny.documents().select_columns(BLOCKS), 2, seed=5)
    assert (sampler.block_size, sampler.sentences_per_batch, sampler.seed) == (3, 6, 5)
    assert sampler.probabilities.tolist() == [0.5, 0.5]
    assert batches.counts == sampler.counts and sampler.counts.documents == 12 and sampler.counts.split_documents == 12
