"""Batches of whole blocks of documents: ragged runs of consecutive sentences of one language (MSM)."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.util.distributed import get_world_size

from st_xlret.batches.sampling import Rows, find_documents, smoothed_probabilities


@dataclass(frozen=True)
class Blocks(Rows):
    """Batches of blocks of documents of one language (MSM, section 4.2). Pass it as `batches` of `MSMLoss`.

    The data set has a row per sentence, as `Windows` reads it; rows without a `document` column are blocks already. A
    document of up to `block_size` sentences is one block. A longer one is cut, at borders that are drawn anew in every
    pass: each sentence gets other neighbours and positions. A batch has the blocks, at most one of a document, that
    have `batch_size * block_size` sentences together; each process takes a run of them with about as many sentences as
    the others. Blocks and the rows of a block come in random order; the collator tells each row's block and position.

    Args:
        block_size: Maximum sentences in a block (32 in the paper), at least 2.

    Example:
        >>> rows = {"sentence": list("abcdef"), "language": ["en"] * 6, "document": [0, 0, 0, 1, 1, 2]}
        >>> sorted(next(iter(Blocks()(Dataset.from_dict(rows), 2))))
        [0, 1, 2, 3, 4]
    """

    language_mixing: float = 0.0
    block_size: int = 32

    def make(
        self, dataset: Dataset, batch_size: int, *, drop_last: bool, seed: int
    ) -> DefaultBatchSampler:
        """Make the sampler for this data set."""
        if "document" in dataset.column_names:
            return BlockBatchSampler(dataset, batch_size, self, seed=seed)
        return super().make(dataset, batch_size, drop_last=drop_last, seed=seed)


class AnyLength(int):
    """Equal to every number of rows: accelerate drops batches that are not as long as the sampler says."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int)

    __hash__ = int.__hash__


class BlockBatchSampler(DefaultBatchSampler):
    """The sampler of [`Blocks`][st_xlret.batches.Blocks]."""

    def __init__(
        self, dataset: Dataset, batch_size: int, options: Blocks, *, seed: int = 0
    ) -> None:
        super().__init__(dataset, batch_size, True, seed=seed)
        self.batch_size, self.ranks, self.block_size = (
            AnyLength(batch_size),
            get_world_size(),
            options.block_size,
        )
        self.sentences_per_batch = batch_size * self.ranks * options.block_size
        self.documents = find_documents(dataset, skip_empty=True)
        language = np.where(self.documents.lengths > 1, self.documents.languages, -1)
        self.groups = [
            np.flatnonzero(language == number) for number in np.unique(language[language >= 0])
        ]
        if not self.groups or self.block_size < 2:
            raise ValueError(
                f"no document gives a block of two sentences or more (block_size={self.block_size})"
            )
        sentences = np.array([self.documents.lengths[group].sum() for group in self.groups])
        batches = np.maximum(1.0, sentences / self.sentences_per_batch)
        self.probabilities = smoothed_probabilities(batches, options.language_smoothing)
        self.batches = int(sum(batches.tolist()))

    def __len__(self) -> int:
        return self.batches * self.ranks

    def __iter__(self) -> Iterator[list[int]]:
        seed = [self.seed, self.epoch]
        streams = [
            self._batches_of(group, np.random.default_rng([*seed, 1, i]))
            for i, group in enumerate(self.groups)
        ]
        generator = np.random.default_rng([*seed, 0])
        for _ in range(self.batches):
            yield from next(streams[generator.choice(len(streams), p=self.probabilities)])

    def _batches_of(
        self, group: np.ndarray, generator: np.random.Generator
    ) -> Iterator[list[list[int]]]:
        """The batches of a language, each as the shares of the processes."""
        while True:
            document, begin, length = cut_into_blocks(
                self.documents.lengths[group], self.block_size, generator
            )
            begin += self.documents.starts[group][document]
            order = generator.permutation(np.flatnonzero(length > 1))
            for batch in self._pack_blocks(deque(order.tolist()), document, length):
                rows = self.documents.rows[
                    np.concatenate([np.arange(begin[b], begin[b] + length[b]) for b in batch])
                ]
                shuffled = generator.permutation(len(rows))
                number = np.repeat(np.arange(len(batch)), length[batch])
                rows = rows[shuffled[np.argsort(number[shuffled], kind="stable")]]
                yield [
                    rows[first:last].tolist()
                    for first, last in row_ranges_by_rank(length[batch], self.ranks)
                ]

    def _pack_blocks(
        self, waiting: deque[int], document: np.ndarray, length: np.ndarray
    ) -> Iterator[list[int]]:
        """Pack blocks in order, at most one of a document in a batch; a last batch is dropped if not full nor alone."""
        first, documents = True, document[-1] + 1
        while waiting:
            batch, set_aside, seen = list[int](), list[int](), set[int]()
            sentences, full = 0, False
            while waiting and not full:
                block = waiting.popleft()
                full = len(seen) == documents or (
                    bool(batch) and sentences + length[block] > self.sentences_per_batch
                )
                if full or document[block] in seen:
                    set_aside.append(block)
                else:
                    batch.append(block)
                    seen.add(document[block])
                    sentences += length[block]
            waiting.extendleft(reversed(set_aside))
            # The batch is full if the next block did not fit, or no block is left that could.
            if full or first or len(seen) == documents or sentences + 2 > self.sentences_per_batch:
                first = False
                yield batch


def cut_into_blocks(
    lengths: np.ndarray, size: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each block's document, begin in it and length: long documents are cut, at a random border and every `size` on."""
    offset = np.where(lengths > size, generator.integers(0, size, len(lengths)), 0)
    count = (offset > 0) + -(-(lengths - offset) // size)
    document = np.repeat(np.arange(len(lengths)), count)
    number = np.arange(len(document)) - np.repeat(np.cumsum(count) - count, count)
    # The first block is the end of one that would begin before the document.
    origin = np.where(offset > 0, offset - size, 0)[document] + number * size
    begin = np.maximum(origin, 0)
    return document, begin, np.minimum(origin + size, lengths[document]) - begin


def row_ranges_by_rank(lengths: np.ndarray, ranks: int) -> list[tuple[int, int]]:
    """The rows of each process, half-open: runs of blocks with about as many sentences; too few blocks are repeated."""
    ends, blocks = np.cumsum(lengths), len(lengths)
    if blocks < ranks:
        return [(int(ends[i] - lengths[i]), int(ends[i])) for i in np.arange(ranks) % blocks]
    borders = [0]
    for rank in range(1, ranks):
        nearest = 1 + int(np.argmin(np.abs(ends - ends[-1] * rank / ranks)))
        borders.append(min(max(nearest, borders[-1] + 1), blocks - (ranks - rank)))
    rows = [0, *(int(ends[border - 1]) for border in borders[1:]), int(ends[-1])]
    return list(zip(rows[:-1], rows[1:], strict=True))
