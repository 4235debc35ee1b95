"""InterleavedBatchSampler: whose turn it is, on one rank and on several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch.utils.data import ConcatDataset, SequentialSampler

from st_xlret.batches import InterleavedBatchSampler, Rows, Windows, interleaving
from st_xlret.batches.sampling import WindowBatchSampler
from tests import tiny

SIZES = [60, 20, 40]


def interleaved(batches: int | None = None, **options: Any) -> InterleavedBatchSampler:
    parts = [tiny.documents(12, 5), tiny.texts(20), tiny.pairs(40)]
    samplers = [Windows()(parts[0], 4), Rows()(parts[1], 4), Rows()(parts[2], 4)]
    sampler = InterleavedBatchSampler(ConcatDataset(parts), samplers, **options)
    sampler.batches = batches or sampler.batches
    return sampler


def turns(sampler: InterleavedBatchSampler, epoch: int = 0) -> list[int]:
    """Which dataset each batch comes from; all rows of a batch come from one."""
    sampler.set_epoch(epoch)
    sources = [set(np.digitize(batch, np.cumsum(SIZES)[:-1]).tolist()) for batch in sampler]
    assert {len(source) for source in sources} == {1}
    return [source.pop() for source in sources]


def test_datasets_come_by_their_size_or_by_ratios() -> None:
    sampler = interleaved()
    assert len(sampler) == len(turns(sampler)) == 15 + 5 + 10
    counts = np.bincount([turn for epoch in range(60) for turn in turns(sampler, epoch)]) / 1800
    np.testing.assert_allclose(counts, [15 / 30, 5 / 30, 10 / 30], atol=0.04)
    counts = np.bincount(turns(interleaved(ratios=[1, 0, 3], batches=2000))) / 2000
    np.testing.assert_allclose(counts, [0.25, 0, 0.75], atol=0.04)


def test_a_schedule_of_the_window_by_epoch_sees_the_true_epoch_in_repeated_passes() -> None:
    seen: list[tuple[int, int]] = []

    class Widening(WindowBatchSampler):
        def __iter__(self) -> Any:
            seen.append((self.epoch, self.seed))
            self.options = Windows(window_size=1 + self.epoch)
            return super().__iter__()

    dataset = tiny.documents(12, 5)
    sampler = InterleavedBatchSampler(ConcatDataset([dataset]), [Widening(dataset, 4, Windows(), seed=7)])
    sampler.batches *= 3
    for epoch in (0, 1, 2):
        sampler.set_epoch(epoch)
        distances = {abs(a - b) for batch in sampler for a, b in zip(batch[:4], batch[4:], strict=True)}
        assert distances == set(range(1, epoch + 2))
    assert [epoch for epoch, _ in seen] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    # A pass has a seed of its own, the same in each epoch.
    assert [seed for _, seed in seen[:3]] == [seed for _, seed in seen[3:6]] and len({seed for _, seed in seen}) == 3


def test_an_exhausted_dataset_starts_a_new_pass() -> None:
    batches = tiny.epochs(interleaved(ratios=[0, 1, 0], batches=15), 2)
    assert len(set(map(str, np.array(batches).reshape(6, -1)))) == 6


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
    with pytest.raises(ValueError, match="data set 0"):
        list(InterleavedBatchSampler(ConcatDataset([dataset]), [sampler], ratios=[1]))
    for ratios in ([1, 2], [1, -1, 1], [-1, -1, -1], [0, 0, 0]):
        with pytest.raises(ValueError):
            list(interleaved(ratios=ratios))
