"""Random interleaving of the batches of several data sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sentence_transformers.base.sampler import MultiDatasetDefaultBatchSampler
from sentence_transformers.util.distributed import get_world_size
from torch.utils.data import BatchSampler, ConcatDataset

from st_xlret.data.batches.sampling import choices


class InterleavedBatchSampler(MultiDatasetDefaultBatchSampler):
    """Takes each batch from a data set that is chosen at random.

    "We select two pre-training tasks randomly in different batches" (CCP, section 4). A data set that is exhausted
    starts a new pass. In a distributed run all ranks take a step on the same data set, because losses that gather
    across ranks would otherwise wait for each other forever. The samplers of this package yield the shares of all ranks
    one after the other, so that a run has the same batches for any number of ranks.

    Args:
        dataset: The concatenated data sets.
        batch_samplers: One for each of them.
        generator: Ignored: the order depends on the seed and the epoch only.
        seed: Seed.
        ratios: How often a batch of each data set is drawn, relative to the others. By default its number of batches.
        batches: Batches per epoch of each rank. By default the sum of the samplers' batches, divided by the ranks.
        in_rounds: Draw in rounds in which each data set has as many batches as its ratio, in random order. The ratios
            are then whole numbers, and exact after every round; an epoch has a whole number of rounds.

    Raises:
        ValueError: If there is not one ratio for each data set, one is negative, all are 0, or `in_rounds` is given
            ratios that are no whole numbers.
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
        in_rounds: bool = False,
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
        if in_rounds and any(ratio != int(ratio) for ratio in ratios):
            raise ValueError(f"with in_rounds, ratios are batches per round and whole numbers, got {ratios}")
        self.round = np.repeat(np.arange(len(ratios)), np.array(ratios, dtype=np.int64)) if in_rounds else None
        self.probabilities = np.array(ratios, dtype=np.float64) / sum(ratios)
        self.ranks = get_world_size()
        self.batches = batches or max(1, sum(len(sampler) for sampler in batch_samplers) // self.ranks)
        if self.round is not None:
            self.batches = -(-self.batches // len(self.round)) * len(self.round)

    def __len__(self) -> int:
        return self.batches * self.ranks

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng([self.seed, self.epoch, 1])
        offsets = np.concatenate([[0], self.dataset.cumulative_sizes])
        streams = [self._endless(sampler) for sampler in self.batch_samplers]
        for chosen in self._order(generator):
            for _ in range(self.ranks):
                yield [int(row + offsets[chosen]) for row in next(streams[chosen])]

    def _order(self, generator: np.random.Generator) -> Iterator[int]:
        """The data set of each batch."""
        if self.round is None:
            yield from choices(generator, self.probabilities, self.batches)
            return
        for _ in range(self.batches // len(self.round)):
            yield from generator.permuted(self.round).tolist()

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
                    f"the {type(sampler).__name__} of a data set gives no batch at all: it has fewer rows "
                    "than a batch and drops incomplete ones; lower the batch size or set its ratio to 0"
                )
            repeats += 1


@dataclass
class InterleavedBatches:
    """Makes an `InterleavedBatchSampler`.

    Pass it as `multi_dataset_batch_sampler` of the training arguments.

    Args:
        ratios: How often a batch of each data set is drawn, in the order of the data sets. By default in proportion to
            their numbers of batches.
        batches: Batches per epoch of each rank. By default the sum of the samplers' batches, divided by the ranks.
        in_rounds: Draw in rounds in which each data set has as many batches as its ratio, a whole number. The numbers
            of batches are then exact after every round. By default each batch is drawn by itself, as in the paper.

    Example:
        >>> from torch.utils.data import BatchSampler, SequentialSampler
        >>> data = ConcatDataset([["a", "b"], ["c", "d"]])
        >>> samplers = [BatchSampler(SequentialSampler(part), 1, drop_last=False) for part in data.datasets]
        >>> sampler = InterleavedBatches(ratios=[0, 1], batches=2)(data, batch_samplers=samplers, seed=0)
        >>> list(sampler)
        [[2], [3]]
    """

    ratios: Sequence[float] | None = None
    batches: int | None = None
    in_rounds: bool = False

    def __call__(
        self, dataset: ConcatDataset, batch_samplers: list[BatchSampler], **kwargs: Any
    ) -> InterleavedBatchSampler:
        """Make the sampler for these data sets, with the host's arguments."""
        chosen: dict[str, Any] = {"ratios": self.ratios, "batches": self.batches, "in_rounds": self.in_rounds}
        return InterleavedBatchSampler(dataset, batch_samplers, **kwargs, **chosen)
