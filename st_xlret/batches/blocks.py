"""Batches of whole blocks of documents: ragged runs of consecutive sentences of one language (MSM)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.util.distributed import get_world_size

from st_xlret.batches.rows import Rows
from st_xlret.batches.sampling import BatchFactory, find_documents, smoothed_probabilities

logger = logging.getLogger(__name__)

_AT_A_TIME = 2**12


class Block(NamedTuple):
    """A run of sentences of a document: which document of its language, its first place among the rows, its length."""

    document: int
    begin: int
    length: int


class AnyLength(int):
    """A number of rows that is equal to every number.

    Blocks make batches of many lengths. When several processes share the batches, accelerate drops those that are not
    as long as the sampler's `batch_size`, unless it is None, which the host's samplers of several data sets refuse.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int)

    def __hash__(self) -> int:
        return int.__hash__(self)


class BlockBatchSampler(DefaultBatchSampler):
    """The sampler of [`Blocks`][st_xlret.batches.Blocks].

    Attributes:
        counts: How many `documents` and `sentences` give blocks, how many documents are longer than a block (`split`),
            have one sentence (`single`), and how many rows have no text (`empty`).
    """

    def __init__(self, dataset: Dataset, batch_size: int, options: Blocks, *, seed: int = 0) -> None:
        super().__init__(dataset, batch_size, True, seed=seed)
        if "sentence" not in dataset.column_names:
            raise ValueError(f"blocks need the sentences in a column 'sentence', got {dataset.column_names}")
        block_size = options.block_size
        if block_size < 2:
            raise ValueError(f"block_size must be at least 2 sentences, got {block_size}")
        self.batch_size = AnyLength(batch_size)
        self.ranks = get_world_size()
        self.documents_per_batch, self.block_size = batch_size * self.ranks, block_size
        self.sentences_per_batch = self.documents_per_batch * block_size
        found = find_documents(dataset, skip_empty=True)
        if not len(found.rows):
            raise ValueError("there are no sentences to draw blocks from")
        self.rows, self.starts, lengths = found.rows, found.starts, found.lengths
        usable = lengths > 1
        self.counts = {
            "documents": int(usable.sum()),
            "sentences": int(lengths[usable].sum()),
            "split": int((lengths > block_size).sum()),
            "single": int((lengths == 1).sum()),
            "empty": len(dataset) - len(found.rows),
        }
        logger.info("blocks: %s", ", ".join(f"{count:,} {kind}" for kind, count in self.counts.items()))
        self.groups: list[np.ndarray] = []
        self.languages: list[str] = []
        for number, name in enumerate(found.languages):
            group = np.flatnonzero(usable & (found.language == number))
            if not len(group):
                logger.warning("language %r has no document of two sentences: it gives no blocks", name)
                continue
            if len(group) < min(self.documents_per_batch, 4):
                logger.warning(
                    "language %r has only %d documents: its batches have hardly any negatives of other documents",
                    *(name, len(group)),
                )
            self.groups.append(group)
            self.languages.append(name)
        if not self.groups:
            raise ValueError(
                f"no language has documents of two or more sentences, so there is nothing to sample ({self.counts})"
            )
        batches = np.array([max(1.0, lengths[group].sum() / self.sentences_per_batch) for group in self.groups])
        self.probabilities = smoothed_probabilities(batches, options.language_smoothing)
        self.batches = max(1, int(sum(batches.tolist())))

    def __len__(self) -> int:
        return self.batches * self.ranks

    def __iter__(self) -> Iterator[list[int]]:
        seed = [self.seed, self.epoch]
        streams = [self._endless(group, [*seed, 1, i]) for i, group in enumerate(self.groups)]
        generator = np.random.default_rng([*seed, 0])
        for begin in range(0, self.batches, _AT_A_TIME):
            size = min(_AT_A_TIME, self.batches - begin)
            for language in generator.choice(len(streams), size=size, p=self.probabilities):
                yield from next(streams[language])

    def _endless(self, group: np.ndarray, seed: list[int]) -> Iterator[list[list[int]]]:
        generator = np.random.default_rng(seed)
        while True:
            for batch in self._pack(self._drawn(group, generator), len(group)):
                length = np.array([block.length for block in batch])
                rows = self.rows[np.concatenate([np.arange(each.begin, each.begin + each.length) for each in batch])]
                order = generator.permutation(len(rows))
                number = np.repeat(np.arange(len(batch)), length)
                rows = rows[order[np.argsort(number[order], kind="stable")]]
                yield [rows[first:last].tolist() for first, last in share_blocks(length, self.ranks)]

    def _drawn(self, group: np.ndarray, generator: np.random.Generator) -> Iterator[Block]:
        """The blocks of a language's documents in random order."""
        lengths = np.diff(self.starts)[group]
        document, begin, length = cut_into_blocks(lengths, self.block_size, generator)
        begin += self.starts[group][document]
        kept = generator.permutation(np.flatnonzero(length > 1))
        for first in range(0, len(kept), _AT_A_TIME):
            chosen = kept[first : first + _AT_A_TIME]
            yield from map(Block, document[chosen].tolist(), begin[chosen].tolist(), length[chosen].tolist())

    def _pack(self, blocks: Iterator[Block], documents: int) -> Iterator[list[Block]]:
        """Pack blocks into batches, in order; a block waits while another one of its document is in the batch."""
        waiting: deque[Block] = deque()
        packed = 0
        while True:
            batch: list[Block] = []
            held: list[Block] = []
            seen: set[int] = set()
            sentences, full = 0, False
            while (block := waiting.popleft() if waiting else next(blocks, None)) is not None:
                full = len(seen) == documents or (bool(batch) and sentences + block.length > self.sentences_per_batch)
                if full:
                    waiting.appendleft(block)
                    break
                if block.document in seen:
                    held.append(block)
                else:
                    batch.append(block)
                    seen.add(block.document)
                    sentences += block.length
            if not batch:
                return
            waiting.extendleft(reversed(held))
            # The batch is full if the next block did not fit, or no block is left that could.
            if full or not packed or len(seen) == documents or sentences + 2 > self.sentences_per_batch:
                packed += 1
                yield batch


@dataclass(frozen=True)
class Blocks(BatchFactory):
    """Batches of blocks of documents, of one language each (MSM, section 4.2). Pass it as `batches` of `MSMLoss`.

    A document of up to `block_size` sentences is one block. A longer one is cut, at borders that are drawn anew in
    every pass: each sentence gets other neighbours and positions. All rows of a block are in the batch, batches are
    ragged, and a document has at most one block in a batch. The blocks of a batch and the rows of a block come in
    random order; `CrossLingualDataCollator` tells which block and position each row has.

    The data set has a row per sentence (columns `sentence`, `language`, `document`), and the rows of a document are
    contiguous and in order, as [`load_documents`][st_xlret.load_documents] and
    [`pack_documents`][st_xlret.data.pack_documents] give them. In a pass over a language every document occurs once,
    except for those that do not fill a last batch. A batch has as many
    documents as have `batch_size * block_size` sentences together: batches of short documents are as large as others.

    In a distributed run the batch of all processes is drawn together, and each process takes a run of its blocks with
    about as many sentences as the others have.

    Args:
        block_size: Maximum sentences in a block (32 in the paper).
        language_smoothing: Languages are sampled in proportion to their size raised to this power.

    Raises:
        ValueError: If no document has two sentences, the rows of a document are not contiguous, columns are missing, or
            `block_size` is below 2.

    Example:
        >>> rows = {"sentence": list("abcdef"), "language": ["en"] * 6, "document": [0, 0, 0, 1, 1, 2]}
        >>> sampler = Blocks()(Dataset.from_dict(rows), 2)
        >>> sorted(next(iter(sampler))), sampler.counts["single"]
        ([0, 1, 2, 3, 4], 1)
    """

    block_size: int = 32
    language_smoothing: float = 0.7

    def make(self, dataset: Dataset, batch_size: int, *, drop_last: bool, seed: int) -> DefaultBatchSampler:
        """Make the sampler for this data set."""
        if "document" in dataset.column_names:
            return BlockBatchSampler(dataset, batch_size, self, seed=seed)
        return Rows(self.language_smoothing, 0.0).make(dataset, batch_size, drop_last=drop_last, seed=seed)


def cut_into_blocks(
    lengths: np.ndarray, size: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut documents into blocks; longer documents are cut every `size` sentences, from a random first border on.

    Example:
        >>> document, begin, length = cut_into_blocks(np.array([3, 10]), 4, np.random.default_rng(0))
        >>> document.tolist(), begin.tolist(), length.tolist()
        ([0, 1, 1, 1], [0, 0, 2, 6], [3, 2, 4, 4])
    """
    offset = np.where(lengths > size, generator.integers(0, size, len(lengths)), 0)
    count = (offset > 0) + -(-(lengths - offset) // size)
    document = np.repeat(np.arange(len(lengths)), count)
    number = np.arange(len(document)) - np.repeat(np.cumsum(count) - count, count)
    # The first block is the end of one that would begin before the document.
    origin = np.where(offset > 0, offset - size, 0)[document] + number * size
    begin = np.maximum(origin, 0)
    return document, begin, np.minimum(origin + size, lengths[document]) - begin


def share_blocks(lengths: np.ndarray, ranks: int) -> list[tuple[int, int]]:
    """Share the blocks of a batch out to processes: runs of blocks with about as many sentences each.

    Example:
        >>> share_blocks(np.array([3, 2, 2, 4]), 2), share_blocks(np.array([3]), 2)
        ([(0, 5), (5, 11)], [(0, 3), (0, 3)])
    """
    ends = np.cumsum(lengths)
    blocks = len(ends)
    if blocks < ranks:
        return [(int(ends[i] - lengths[i]), int(ends[i])) for i in np.arange(ranks) % blocks]
    borders = [0]
    for rank in range(1, ranks):
        nearest = 1 + int(np.argmin(np.abs(ends - ends[-1] * rank / ranks)))
        borders.append(min(max(nearest, borders[-1] + 1), blocks - (ranks - rank)))
    rows = [0, *(int(ends[border - 1]) for border in borders[1:]), int(ends[-1])]
    return list(zip(rows[:-1], rows[1:], strict=True))
