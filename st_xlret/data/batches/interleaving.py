"""Random interleaving of batches of several datasets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sentence_transformers.base.sampler import MultiDatasetDefaultBatchSampler
from sentence_transformers.util.distributed import get_world_size
from torch.utils.data import BatchSampler, ConcatDataset


class InterleavedBatchSampler(MultiDatasetDefaultBatchSampler):
    """Each step takes its batch from a dataset chosen at random by weight.

    "We select two pre-training tasks randomly in different batches" (CCP, section 4).
    A dataset that runs out starts a new pass. All ranks of a distributed run get the same dataset in a step:
    losses that gather across ranks would otherwise wait for each other.

    Args:
        dataset: The concatenated datasets.
        batch_samplers: One for each of them.
        generator: Ignored: the order depends on seed and epoch alone.
        seed: Seed.
        ratios: Relative weight of each dataset; by default its number of batches.
        batches: Batches of an epoch, over all ranks; by default as many as the samplers have in all.

    Raises:
        ValueError: If there is not one weight per dataset, or one is negative, or all are 0.
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
        # Batches differ in length; with a number here, several processes would drop those of another length.
        self.batch_size = None  # type: ignore[assignment]
        self.drop_last = True
        ratios = [len(sampler) for sampler in batch_samplers] if ratios is None else list(ratios)
        if len(ratios) != len(batch_samplers):
            raise ValueError(f"{len(batch_samplers)} datasets need as many ratios, got {len(ratios)}: {ratios}")
        if min(ratios) < 0 or not sum(ratios):
            raise ValueError(f"ratios must not be negative, and not all 0, got {ratios}")
        self.probabilities = np.array(ratios, dtype=np.float64) / sum(ratios)
        self.ranks = get_world_size()
        self.batches = batches or sum(len(sampler) for sampler in batch_samplers)

    def __len__(self) -> int:
        return max(1, self.batches // self.ranks) * self.ranks

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng([self.seed, self.epoch, 1])
        offsets = np.concatenate([[0], self.dataset.cumulative_sizes])
        streams = [self._endless(sampler) for sampler in self.batch_samplers]
        for chosen in generator.choice(len(streams), size=len(self) // self.ranks, p=self.probabilities):
            for _ in range(self.ranks):
                yield [int(row + offsets[chosen]) for row in next(streams[chosen])]

    def _endless(self, sampler: BatchSampler) -> Iterator[list[int]]:
        repeats = 0
        while True:
            # Passes within an epoch must differ from each other and from those of other epochs.
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(self.epoch + 1_000_003 * repeats)
            batches = 0
            for batches, batch in enumerate(sampler, start=1):  # noqa: B007
                yield batch
            if not batches:
                raise ValueError(
                    f"the {type(sampler).__name__} of a dataset gives no batch at all: it has fewer rows "
                    "than a batch and drops incomplete ones; lower the batch size or set its weight to 0"
                )
            repeats += 1


@dataclass
class InterleavedBatches:
    """Makes an :class:`InterleavedBatchSampler`.

    Pass it as ``multi_dataset_batch_sampler`` of the training arguments.

    Args:
        ratios: Relative weight of each dataset, in their order; None for their sizes.
        batches: Batches of an epoch; None for one pass over everything.
    """

    ratios: Sequence[float] | None = None
    batches: int | None = None

    def __call__(
        self, dataset: ConcatDataset, batch_samplers: list[BatchSampler], **kwargs: Any
    ) -> InterleavedBatchSampler:
        """The sampler for these datasets, with the host's arguments."""
        return InterleavedBatchSampler(dataset, batch_samplers, **kwargs, ratios=self.ratios, batches=self.batches)
