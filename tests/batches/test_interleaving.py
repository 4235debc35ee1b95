"""InterleavedBatchSampler: whose turn it is, on one rank and on several."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch.utils.data import ConcatDataset, SequentialSampler

from st_xlret.batches import InterleavedBatchSampler, Rows, Windows, interleaving
from st_xlret.batches.sampling import WindowBatchSampler
from tests import tiny

SIZES = [60, 20, 40]


def parts() -> list[Dataset]:
    return [tiny.documents(12, 5), tiny.texts(20), tiny.pairs(40)]


def interleaved(batches: int | None = None, **options: Any) -> InterleavedBatchSampler:
    datasets = parts()
    samplers = [Windows()(datasets[0], 4), Rows()(datasets[1], 4), Rows()(datasets[2], 4)]
    sampler = InterleavedBatchSampler(ConcatDataset(datasets), samplers, **options)
    sampler.batches = batches or sampler.batches
    return sampler


def turns(sampler: InterleavedBatchSampler, epoch: int = 0) -> list[int]:
    """Which dataset each batch comes from; all rows of a batch come from one."""
    sampler.set_epoch(epoch)
    sources = [np.digitize(batch, np.cumsum(SIZES)[:-1]) for batch in sampler]
    assert all((source == source[0]).all() for source in sources)
    return [int(source[0]) for source in sources]


def test_by_default_an_epoch_has_all_batches_and_datasets_come_by_their_size() -> None:
    sampler = interleaved()
    assert len(sampler) == len(turns(sampler)) == 15 + 5 + 10
    counts = np.bincount([turn for epoch in range(60) for turn in turns(sampler, epoch)]) / 1800
    np.testing.assert_allclose(counts, [15 / 30, 5 / 30, 10 / 30], atol=0.04)


def test_ratios() -> None:
    sampler = interleaved(ratios=[1, 0, 3], batches=2000)
    counts = np.bincount(turns(sampler), minlength=3) / 2000
    np.testing.assert_allclose(counts, [0.25, 0, 0.75], atol=0.04)


def test_a_schedule_of_the_window_by_epoch_sees_the_true_epoch_in_repeated_passes() -> None:
    seen: list[tuple[int, int]] = []

    class Widening(WindowBatchSampler):
        def __iter__(self) -> Any:
            seen.append((self.epoch, self.seed))
            self.options = Windows(window_size=1 + self.epoch)
            return super().__iter__()

    dataset = tiny.documents(12, 5)
    samplers = [Widening(dataset, 4, Windows(), seed=7)]
    sampler = InterleavedBatchSampler(ConcatDataset([dataset]), samplers)
    sampler.batches *= 3
    for epoch in (0, 1, 2):
        sampler.set_epoch(epoch)
        distances = {abs(a - b) for batch in sampler for a, b in zip(batch[:4], batch[4:], strict=True)}
        assert distances == set(range(1, epoch + 2))
    assert [epoch for epoch, _ in seen] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    # A pass has a seed of its own, the same in each epoch.
    assert [seed for _, seed in seen[:3]] == [seed for _, seed in seen[3:6]] and len({seed for _, seed in seen}) == 3


def test_an_exhausted_dataset_starts_a_new_pass() -> None:
    sampler = interleaved(ratios=[0, 1, 0], batches=15)
    passes = np.array(list(sampler)).reshape(3, -1)
    assert len({tuple(each) for each in passes.tolist()}) == 3
    sampler.set_epoch(1)
    following = np.array(list(sampler)).reshape(3, -1)
    assert not {tuple(each) for each in passes.tolist()} & {tuple(each) for each in following.tolist()}


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_all_ranks_have_the_same_dataset_in_a_step(monkeypatch: pytest.MonkeyPatch, ranks: int) -> None:
    monkeypatch.setattr(interleaving, "get_world_size", lambda: ranks)
    sampler = interleaved()
    steps = np.array(turns(sampler)).reshape(-1, ranks)
    assert len(sampler) == steps.size == 30 // ranks * ranks
    assert (steps == steps[:, :1]).all() and len(np.unique(steps)) > 1


def test_a_dataset_of_less_than_a_batch_is_an_error_and_no_endless_loop() -> None:
    dataset = tiny.texts(3)
    sampler = DefaultBatchSampler(SequentialSampler(dataset), batch_size=8, drop_last=True)
    together = InterleavedBatchSampler(ConcatDataset([dataset]), [sampler], ratios=[1])
    with pytest.raises(ValueError, match="data set 0"):
        list(together)


@pytest.mark.parametrize("ratios", [[1, 2], [1, -1, 1], [0, 0, 0]])
def test_wrong_ratios(ratios: list[int]) -> None:
    with pytest.raises(ValueError, match=re.escape(str(ratios))):
        interleaved(ratios=ratios)
