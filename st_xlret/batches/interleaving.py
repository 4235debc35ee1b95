"""The batches of several data sets: drawn at random, or one of each in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
from sentence_transformers.base.sampler import MultiDatasetDefaultBatchSampler
from sentence_transformers.util.distributed import get_world_size
from torch.utils.data import BatchSampler, ConcatDataset

from st_xlret.batches.sampling import REPEAT

_AT_A_TIME = 2**12


class InterleavedBatchSampler(MultiDatasetDefaultBatchSampler):
    """Takes each batch from a data set that is chosen at random. Pass it as `multi_dataset_batch_sampler`.

    "We select two pre-training tasks randomly in different batches" (CCP, section 4). With options, pass
    `functools.partial(InterleavedBatchSampler, ratios=[1, 2])`. A data set that is exhausted starts a new pass. In a
    distributed run all ranks take a step on the same data set, because losses that gather across ranks would otherwise
    wait for each other forever. The samplers of this package yield the shares of all ranks one after the other: a run
    has the same batches for any number of ranks.

    Args:
        ratios: How often a batch of each data set is drawn, in their order. By default in proportion to their numbers
            of batches.
        batches: Batches per epoch of each rank. By default the sum of the samplers' batches, divided by the ranks.

    Raises:
        ValueError: If there is not one ratio for each data set, one is negative, or all are 0.

    Example:
        >>> samplers = [BatchSampler(range(2), 1, True), BatchSampler(range(2), 1, True)]
        >>> data = ConcatDataset([["a", "b"], ["c", "d"]])
        >>> list(InterleavedBatchSampler(data, samplers, ratios=[0, 1], batches=2))
        [[2], [3]]
    """

    def __init__(
        self,
        dataset: ConcatDataset,
        batch_samplers: list[BatchSampler],
        generator: Any = None,
        seed: int | None = 0,
        *,
        ratios: Sequence[float] | None = None,
        batches: int | None = None,
    ) -> None:
        super().__init__(dataset, batch_samplers, generator, seed or 0)
        # Batches differ in length. With a number here, several processes would drop those of another length.
        self.batch_size = None  # type: ignore[assignment]
        self.drop_last = True
        ratios = [len(sampler) for sampler in batch_samplers] if ratios is None else list(ratios)
        if len(ratios) != len(batch_samplers):
            raise ValueError(f"{len(batch_samplers)} data sets need as many ratios, got {len(ratios)}: {ratios}")
        if min(ratios) < 0 or not sum(ratios):
            raise ValueError(f"ratios must not be negative, and not all 0, got {ratios}")
        self.probabilities = np.array(ratios, dtype=np.float64) / sum(ratios)
        self.ranks = get_world_size()
        self._seeds = [getattr(sampler, "seed", None) or 0 for sampler in batch_samplers]
        self.batches = batches or max(1, sum(len(sampler) for sampler in batch_samplers) // self.ranks)

    def __len__(self) -> int:
        return self.batches * self.ranks

    def __iter__(self) -> Iterator[list[int]]:
        offsets = np.concatenate([[0], self.dataset.cumulative_sizes])
        streams = [self._endless(number) for number in range(len(self.batch_samplers))]
        for chosen in self.order():
            for _ in range(self.ranks):
                yield [int(row + offsets[chosen]) for row in next(streams[chosen])]

    def order(self) -> Iterator[int]:
        """The data set of each batch."""
        generator = np.random.default_rng([self.seed, self.epoch, 1])
        for begin in range(0, self.batches, _AT_A_TIME):
            size = min(_AT_A_TIME, self.batches - begin)
            yield from generator.choice(len(self.probabilities), size=size, p=self.probabilities).tolist()

    def _endless(self, number: int) -> Iterator[list[int]]:
        sampler: Any = self.batch_samplers[number]
        for repeats in count():
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(self.epoch)
            sampler.seed = self._seeds[number] + REPEAT * repeats
            batches = 0
            for batches, batch in enumerate(sampler, start=1):  # noqa: B007
                yield batch
            if not batches:
                raise ValueError(
                    f"the {type(sampler).__name__} of a data set gives no batch at all: it has fewer rows than a batch "
                    "and drops incomplete ones; lower the batch size or set its ratio to 0"
                )


class RoundBatchSampler(InterleavedBatchSampler):
    """Batches in rounds: one of each data set, in their order; an epoch is one of the last data set.

    The other data sets begin anew where they run out. Pass it as `multi_dataset_batch_sampler`.

    Example:
        >>> samplers = [BatchSampler(range(2), 1, True), BatchSampler(range(4), 2, True)]
        >>> list(RoundBatchSampler(ConcatDataset([range(2), range(4)]), samplers))
        [[0], [2, 3], [1], [4, 5]]
    """

    def __init__(
        self, dataset: ConcatDataset, batch_samplers: list[BatchSampler], generator: Any = None, seed: int | None = 0
    ) -> None:
        super().__init__(dataset, batch_samplers, generator, seed)
        self.batches = max(1, len(batch_samplers[-1]) // self.ranks) * len(batch_samplers)

    def order(self) -> Iterator[int]:
        """The data set of each batch."""
        for batch in range(self.batches):
            yield batch % len(self.batch_samplers)
