"""InterleavedBatchSampler: whose turn it is, and new passes (test_ranks has several ranks)."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch.utils.data import ConcatDataset, SequentialSampler

from st_xlret.batches import InterleavedBatchSampler, Rows, Windows
from st_xlret.batches.sampling import WindowBatchSampler
from tests import tiny


@pytest.mark.parametrize(
    ("ratios", "shares"),
    [
        (None, [15 / 30, 5 / 30, 10 / 30]),
        ([1, 0, 3], [0.25, 0, 0.75]),
    ],
)
def test_data_sets_come_by_their_size_or_by_ratios(
    ratios: list[int] | None,
    shares: list[float],
) -> None:
    parts = [tiny.documents(12, 5), tiny.texts(20), tiny.pairs(40)]
    samplers = [Windows()(parts[0], 4), Rows()(parts[1], 4), Rows()(parts[2], 4)]
    sampler = InterleavedBatchSampler(ConcatDataset(parts), samplers, ratios=ratios)
    counts: Counter[int] = Counter()
    for batch in tiny.epochs(sampler, 60):
        (source,) = set(np.digitize(batch, [60, 80]).tolist())
        counts[source] += 1
    assert counts.total() == 60 * len(sampler) == 60 * (15 + 5 + 10)
    drawn = [counts[source] / counts.total() for source in range(3)]
    np.testing.assert_allclose(drawn, shares, atol=0.04)


def test_a_schedule_of_the_window_by_epoch_sees_the_true_epoch_in_repeated_passes() -> None:
    seen: list[tuple[int, int]] = []

    class Widening(WindowBatchSampler):
        def __iter__(self) -> Iterator[list[int]]:
            seen.append((self.epoch, self.seed))
            self.options = Windows(window_size=1 + self.epoch)
            return super().__iter__()

    dataset = tiny.documents(12, 5)
    widening = Widening(dataset, 4, Windows(), seed=7)
    sampler = InterleavedBatchSampler(ConcatDataset([dataset]), [widening])
    sampler.batches *= 3
    for epoch in (0, 1, 2):
        sampler.set_epoch(epoch)
        distances = set()
        for batch in sampler:
            centres, contexts = np.split(np.array(batch), 2)
            distances.update(np.abs(centres - contexts).tolist())
        assert distances == set(range(1, epoch + 2))
    assert [epoch for epoch, _ in seen] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    # A pass has a seed of its own, the same in each epoch.
    seeds = [seed for _, seed in seen]
    assert seeds[:3] == seeds[3:6]
    assert len(set(seeds)) == 3


def test_a_dataset_of_less_than_a_batch_is_an_error_and_no_endless_loop() -> None:
    dataset = tiny.texts(3)
    without_batches = DefaultBatchSampler(SequentialSampler(dataset), batch_size=8, drop_last=True)
    sampler = InterleavedBatchSampler(ConcatDataset([dataset]), [without_batches], ratios=[1])
    with pytest.raises(ValueError, match="data set 0"):
        list(sampler)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("ratios", [[1, 2], [1, -1, 1], [-1, -1, -1], [0, 0, 0]])
def test_ratios_that_will_not_do(ratios: list[int]) -> None:
    parts = [tiny.texts(3)] * 3
    samplers = [Rows()(part, 3) for part in parts]
    sampler = InterleavedBatchSampler(ConcatDataset(parts), samplers, ratios=ratios)
    with pytest.raises(ValueError):
        list(sampler)
