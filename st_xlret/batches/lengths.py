"""Batches of rows of about one length."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.util.distributed import get_world_size

from st_xlret.batches.sampling import BatchFactory
from st_xlret.columns import text_columns


@dataclass(frozen=True)
class LengthGroupedBatches(BatchFactory):
    """Batches of rows of about the same length.

    Pass it as `batches` of a loss, or as `batch_sampler`. Batches of mixed lengths can take several
    times as long. The rows are shuffled; each stretch of 50 batches is sorted by length and cut
    into batches, which are shuffled.

    Args:
        tokenizer: A tokenizer of Transformers. The length of a row is the largest number of tokens
            of its texts.
        texts_per_batch: The batch size counts texts: a row with three text columns counts as three.
    """

    tokenizer: Callable[[list[str]], Any]
    texts_per_batch: bool = False

    def make(
        self,
        dataset: Dataset,
        batch_size: int,
        *,
        drop_last: bool,
        seed: int,
    ) -> DefaultBatchSampler:
        """Make the sampler for this data set."""
        columns = text_columns(dataset)
        if self.texts_per_batch:
            batch_size = max(1, batch_size // len(columns))
        lengths = self._lengths_of_rows(dataset, columns)
        return LengthGroupedBatchSampler(dataset, batch_size, drop_last, lengths=lengths, seed=seed)

    def _lengths_of_rows(self, dataset: Dataset, columns: Sequence[str]) -> np.ndarray:
        """Tokens of the longest text of each row."""
        lengths = np.zeros(len(dataset), dtype=np.int64)
        start = 0
        for rows in dataset.iter(2**12):
            for column in columns:
                texts = rows[column]
                counts = [len(ids) for ids in self.tokenizer(texts)["input_ids"]]
                part = lengths[start : start + len(texts)]
                np.maximum(part, counts, out=part)
            start += len(texts)
        return lengths


class LengthGroupedBatchSampler(DefaultBatchSampler):
    """The sampler of [`LengthGroupedBatches`][st_xlret.LengthGroupedBatches]."""

    stretch = 50

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        drop_last: bool,
        *,
        lengths: Sequence[int] | np.ndarray,
        seed: int = 0,
    ) -> None:
        super().__init__(range(len(dataset)), batch_size=batch_size, drop_last=drop_last, seed=seed)
        self.lengths = np.asarray(lengths)
        self.ranks = get_world_size()
        self.draws = batch_size * self.ranks
        rest = len(lengths) % self.draws
        self.full = len(lengths) - rest
        self.last = rest
        if drop_last or self.ranks > 1:
            # Several processes would get shares of different sizes.
            self.last = 0

    def __len__(self) -> int:
        steps = self.full // self.draws
        return steps * self.ranks + bool(self.last)

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng([self.seed, self.epoch, 17])
        rows = generator.permutation(len(self.lengths))
        shuffled = rows[: self.full]
        rows_of_stretch = self.stretch * self.draws
        for start in range(0, self.full, rows_of_stretch):
            stretch = shuffled[start : start + rows_of_stretch]
            order = np.argsort(self.lengths[stretch], kind="stable")
            batches = stretch[order].reshape(-1, self.draws)
            for batch in generator.permutation(batches):
                yield from batch.reshape(self.ranks, -1).tolist()
        if self.last:
            yield rows[self.full :].tolist()
