"""The batches of several data sets: drawn at random, or one of each in turn."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
from sentence_transformers.base.sampler import MultiDatasetDefaultBatchSampler
from sentence_transformers.util.distributed import get_world_size
from torch.utils.data import BatchSampler, ConcatDataset

_SEED_STEP = (
    1_000_003  # from pass to pass within an epoch: passes differ, and the sampler's epoch is true
)


class InterleavedBatchSampler(MultiDatasetDefaultBatchSampler):
    """Takes each batch from a data set that is chosen at random (CCP, section 4): a `multi_dataset_batch_sampler`.

    A data set that is exhausted starts anew. All ranks take a step on the same data set: losses that gather would else
    wait for each other forever. With options, pass `functools.partial(InterleavedBatchSampler, ratios=[1, 2])`.

    Args:
        ratios: How often a batch of each data set is drawn. By default in proportion to their numbers of batches.
        in_turn: One batch of each data set in their order, and an epoch is one of the last data set.
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
        # Batches differ in length. With a number here, several processes would drop those of another length.
        self.batch_size = None  # type: ignore[assignment]
        self.drop_last, self.in_turn, self.ranks = True, in_turn, get_world_size()
        sizes = [len(sampler) for sampler in batch_samplers]
        weights = np.array(sizes if ratios is None else ratios, dtype=np.float64)
        self.probabilities = (
            weights / np.abs(weights).sum()
        )  # negative ones stay so, and NumPy refuses them
        self._seeds = [getattr(sampler, "seed", None) or 0 for sampler in batch_samplers]
        self.batches = max(1, (sizes[-1] if in_turn else sum(sizes)) // self.ranks) * (
            len(sizes) if in_turn else 1
        )

    def __len__(self) -> int:
        return self.batches * self.ranks

    def __iter__(self) -> Iterator[list[int]]:
        offsets = np.concatenate([[0], self.dataset.cumulative_sizes])
        streams = [self._batches_of(number) for number in range(len(self.batch_samplers))]
        generator = np.random.default_rng([self.seed, self.epoch, 1])
        for step in range(self.batches):
            turn = (
                step % len(streams)
                if self.in_turn
                else generator.choice(len(streams), p=self.probabilities)
            )
            for _ in range(self.ranks):
                yield [int(row + offsets[turn]) for row in next(streams[turn])]

    def _batches_of(self, number: int) -> Iterator[list[int]]:
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
                    f"data set {number} gives no batch: it has fewer rows than a batch; lower its size"
                )
