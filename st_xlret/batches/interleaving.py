"""The batches of several data sets: drawn at random, or one of each in turn."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
from sentence_transformers.base.sampler import MultiDatasetDefaultBatchSampler
from sentence_transformers.util.distributed import get_world_size
from torch.utils.data import BatchSampler, ConcatDataset

_SEED_STEP = 1_000_003
"""From pass to pass within an epoch: passes differ, and the sampler's epoch is true."""


class InterleavedBatchSampler(MultiDatasetDefaultBatchSampler):
    """Takes each batch from a data set that is chosen at random (CCP, section 4).

    It is a `multi_dataset_batch_sampler`. A data set that is exhausted starts anew. All ranks take
    a step on the same data set: losses that gather would else wait for each other forever. With
    options, pass `functools.partial(InterleavedBatchSampler, ratios=[1, 2])`.

    Args:
        ratios: How often a batch of each data set is drawn. By default in proportion to their
            numbers of batches.
        in_turn: One batch of each data set in their order, and an epoch is one of the last data
            set.
    """

    def __init__(
        self,
        dataset: ConcatDataset,
        batch_samplers: list[BatchSampler],
        generator: Any = None,
        seed: int | None = 0,
        *,
        ratios: Sequence[float] | None = None,
        in_turn: bool = False,
    ) -> None:
        super().__init__(dataset, batch_samplers, generator, seed or 0)
        # Batches differ in length. With a number here, several processes would drop those of
        # another length.
        self.batch_size = None  # type: ignore[assignment]
        self.drop_last = True
        self.in_turn = in_turn
        self.ranks = get_world_size()
        sizes = [len(sampler) for sampler in batch_samplers]
        weights = np.array(sizes if ratios is None else ratios, dtype=np.float64)
        # Negative ones stay so, and NumPy refuses them.
        self.probabilities = weights / np.abs(weights).sum()
        self._seeds = [getattr(sampler, "seed", None) or 0 for sampler in batch_samplers]
        if in_turn:
            rounds = max(1, sizes[-1] // self.ranks)
            self.batches = rounds * len(sizes)
        else:
            self.batches = max(1, sum(sizes) // self.ranks)

    def __len__(self) -> int:
        return self.batches * self.ranks

    def __iter__(self) -> Iterator[list[int]]:
        first_rows = [0, *self.dataset.cumulative_sizes]
        streams = [self._batches_of_data_set(number) for number in range(len(self.batch_samplers))]
        numbers = self._data_sets_in_turn() if self.in_turn else self._data_sets_at_random()
        for number in numbers:
            for _ in range(self.ranks):
                batch = next(streams[number])
                yield [int(row + first_rows[number]) for row in batch]

    def _data_sets_in_turn(self) -> Iterator[int]:
        """The number of the data set of each step: one after the other."""
        for step in range(self.batches):
            yield step % len(self.batch_samplers)

    def _data_sets_at_random(self) -> Iterator[int]:
        """The number of the data set of each step: drawn."""
        generator = np.random.default_rng([self.seed, self.epoch, 1])
        for _ in range(self.batches):
            yield int(generator.choice(len(self.batch_samplers), p=self.probabilities))

    def _batches_of_data_set(self, number: int) -> Iterator[list[int]]:
        """The batches of a data set, pass after pass; its sampler gets epoch and seed of each.

        Samplers of several processes give their shares one after the other: `__iter__` takes as
        many batches as there are ranks from one data set. A `ValueError` names a data set that
        gives no batch.
        """
        sampler: Any = self.batch_samplers[number]
        for repeats in count():
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(self.epoch)
            sampler.seed = self._seeds[number] + _SEED_STEP * repeats
            batch = None
            for batch in sampler:
                yield batch
            if batch is None:
                raise ValueError(
                    f"data set {number} gives no batch: it has fewer rows than a batch; "
                    "lower its size"
                )
