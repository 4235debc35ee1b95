"""Several losses on several datasets, summed in every optimizer step, one backward pass at a time."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import Tensor
from torch.utils.data import BatchSampler, ConcatDataset

from st_xlret.data.batches.interleaving import InterleavedBatchSampler


class RoundBatchSampler(InterleavedBatchSampler):
    """Batches in rounds: one of each dataset, in their order; an epoch is one of the last dataset.

    The other datasets begin anew where they run out. All ranks of a distributed run get the same dataset at
    the same time.

    Args:
        dataset: The concatenated datasets.
        batch_samplers: One for each of them.
        generator: Ignored: batches depend on seed and epoch alone.
        seed: Seed.

    Example:
        >>> from torch.utils.data import BatchSampler, ConcatDataset
        >>> samplers = [BatchSampler(range(2), 1, True), BatchSampler(range(4), 2, True)]
        >>> list(RoundBatchSampler(ConcatDataset([range(2), range(4)]), samplers))
        [[0], [2, 3], [1], [4, 5]]
    """

    def __init__(
        self,
        dataset: ConcatDataset,
        batch_samplers: list[BatchSampler],
        generator: Any = None,
        seed: int | None = 0,
    ) -> None:
        super().__init__(dataset, batch_samplers, generator, seed)
        self.rounds = max(1, len(batch_samplers[-1]) // self.ranks)

    def __len__(self) -> int:
        return self.rounds * len(self.batch_samplers) * self.ranks

    def __iter__(self) -> Iterator[list[int]]:
        offsets = np.concatenate([[0], self.dataset.cumulative_sizes])
        streams = [self._endless(sampler) for sampler in self.batch_samplers]
        for _ in range(self.rounds):
            for stream, offset in zip(streams, offsets, strict=False):
                for _ in range(self.ranks):
                    yield [int(row + offset) for row in next(stream)]


class JointTrainer(SentenceTransformerTrainer):
    """The host's Trainer, with the sum of all datasets' losses in every optimizer step.

    A step takes one batch of each dataset and runs forward and backward on them one after the other ("we
    sequentially calculate the loss and the gradients", lang-contrastive, section 4): the gradients are those
    of the summed loss, and the peak of memory is that of the largest part.

    It is the host's gradient accumulation over one round of the datasets, and nothing else of the Trainer is
    changed: mixed precision, DDP, resuming and `max_steps` (which counts rounds) are the host's. The host
    averages over accumulated batches; here the parts of a round are summed, and rounds are averaged where
    `gradient_accumulation_steps` asks for several. Under DDP gradients are exchanged with the round's last
    part: put a dataset last whose loss uses all of the encoder.

    Args:
        model: The encoder.
        args: Training arguments; `gradient_accumulation_steps` counts rounds, and the
            `multi_dataset_batch_sampler` is replaced. They are copied, not changed.
        train_dataset: A `DatasetDict`; a step has one batch of each.
        loss: A loss for each dataset, with its weight in it.
        **kwargs: Further arguments of the host's Trainer.

    Raises:
        ValueError: If the training data are not a dictionary of datasets.
    """

    def __init__(
        self,
        model: Any = None,
        args: SentenceTransformerTrainingArguments | None = None,
        train_dataset: Any = None,
        loss: Any = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(train_dataset, dict) or not train_dataset:
            raise ValueError(f"JointTrainer takes a dictionary of datasets, got {type(train_dataset).__name__}")
        self.parts = len(train_dataset)
        args = copy.copy(args or SentenceTransformerTrainingArguments(output_dir="tmp_trainer"))
        args.gradient_accumulation_steps *= self.parts
        args.multi_dataset_batch_sampler = RoundBatchSampler
        super().__init__(model=model, args=args, train_dataset=train_dataset, loss=loss, **kwargs)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Tensor | tuple[Tensor, dict[str, Any]]:
        """The loss of one part, times their number: the host divides it by that of the accumulated batches."""
        loss: Any = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        # With outputs it is an evaluation, which accumulates nothing.
        return loss if return_outputs else loss * self.parts
