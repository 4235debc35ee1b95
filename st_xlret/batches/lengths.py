"""Batches of texts of about the same length, which need little padding."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.util.distributed import get_world_size

from st_xlret.batches.collator import text_columns
from st_xlret.batches.sampling import BatchFactory, shares

logger = logging.getLogger(__name__)

_CHUNK = 10_000  # texts that are tokenised at a time


class LengthGroupedBatchSampler(DefaultBatchSampler):
    """The sampler of [`LengthGroupedBatches`][st_xlret.LengthGroupedBatches].

    The rows are shuffled; each stretch of 50 batches is sorted by length, cut into batches, and its batches are
    shuffled: every batch has short or long texts, and an epoch has both at any time. In a distributed run the batch of
    all processes is drawn together, and each process takes its share of it.
    """

    stretch = 50

    def __init__(
        self, dataset: Dataset, batch_size: int, drop_last: bool, *, lengths: Sequence[int], seed: int = 0
    ) -> None:
        super().__init__(range(len(dataset)), batch_size=batch_size, drop_last=drop_last, seed=seed)
        self.lengths = np.asarray(lengths)
        self.ranks = get_world_size()
        self.draws = batch_size * self.ranks
        self.full = len(lengths) - len(lengths) % self.draws
        # Several processes would get shares of different sizes.
        self.last = 0 if drop_last or self.ranks > 1 else len(lengths) - self.full

    def __len__(self) -> int:
        return self.full // self.draws * self.ranks + bool(self.last)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the rows of each batch; those of the processes one after the other."""
        random = np.random.default_rng([self.seed, self.epoch, 17])
        rows = random.permutation(len(self.lengths))
        for start in range(0, self.full, self.stretch * self.draws):
            stretch = rows[start : min(start + self.stretch * self.draws, self.full)]
            stretch = stretch[np.argsort(self.lengths[stretch], kind="stable")]
            batches = stretch.reshape(-1, self.draws)
            for i in random.permutation(len(batches)):
                yield from shares(batches[i], self.ranks)
        if self.last:
            yield rows[self.full :].tolist()


@dataclass(frozen=True)
class LengthGroupedBatches(BatchFactory):
    """Batches of rows of about the same length. Pass it as `batches` of a loss, or as `batch_sampler`.

    On a CPU, and wherever attention is not computed on packed texts, padding is computed like text: batches of mixed
    lengths can take several times as long.

    Args:
        tokenizer: Makes token ids of a list of texts: a tokenizer of Transformers, such as `model.tokenizer`. The
            length of a row is the largest number of tokens of its texts.
        texts_per_batch: If true, the batch size counts texts: a row with three text columns counts as three. The rest
            of the division is dropped in each process.

    Example:
        >>> data = Dataset.from_dict({"text": ["a", "a b c", "b", "d e f"]})
        >>> batches = LengthGroupedBatches(lambda texts: {"input_ids": [text.split() for text in texts]})
        >>> sorted(sorted(batch) for batch in batches(data, batch_size=2, drop_last=False, seed=1))
        [[0, 2], [1, 3]]
    """

    tokenizer: Callable[[list[str]], Any]
    texts_per_batch: bool = False

    def make(self, dataset: Dataset, batch_size: int, *, drop_last: bool, seed: int) -> LengthGroupedBatchSampler:
        """Make the sampler for this data set."""
        columns = text_columns(dataset)
        if not columns:
            raise ValueError(f"there is no column of texts to measure in {dataset.column_names}")
        lengths = np.zeros(len(dataset), dtype=np.int64)
        if len(dataset) > _CHUNK:
            logger.info("counting the tokens of %d rows, to draw batches of similar lengths", len(dataset))
        for start in range(0, len(dataset), _CHUNK):
            rows = dataset[start : start + _CHUNK]
            for column in columns:
                ids = self.tokenizer(list(rows[column]))["input_ids"]
                part = slice(start, start + len(ids))
                lengths[part] = np.maximum(lengths[part], [len(row) for row in ids])
        size = max(1, batch_size // len(columns)) if self.texts_per_batch else batch_size
        return LengthGroupedBatchSampler(dataset, size, drop_last, lengths=lengths.tolist(), seed=seed)
