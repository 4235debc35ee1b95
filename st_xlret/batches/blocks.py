"""Batches of whole blocks of documents: ragged runs of consecutive sentences of one language."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.util.distributed import get_world_size

from st_xlret.batches.documents import find_documents
from st_xlret.batches.sampling import Rows, smoothed_probabilities
from st_xlret.ranges import check_range


@dataclass(frozen=True)
class Blocks(Rows):
    """Batches of blocks of documents of one language (MSM, section 4.2).

    Pass it as `batches` of `MSMLoss`. The data set has a row per sentence, as `Windows` reads it;
    rows without a `document` column are blocks already. A document of up to `block_size` sentences
    is one block. A longer one is cut, at borders that are drawn anew in every pass: each sentence
    gets other neighbours and positions. A batch has the blocks, at most one of a document, that
    have `batch_size * block_size` sentences together; each process takes a run of them with about
    as many sentences as the others. Blocks and the rows of a block come in random order; the
    collator tells each row's block and position.

    Args:
        block_size: Maximum sentences in a block (32 in the paper), at least 2.

    Example:
        >>> sentences = {"sentence": list("abcdef"), "language": ["en"] * 6}
        >>> rows = Dataset.from_dict({**sentences, "document": [0, 0, 0, 1, 1, 2]})
        >>> sorted(next(iter(Blocks()(rows, 2))))
        [0, 1, 2, 3, 4]
    """

    language_mixing: float = 0.0
    block_size: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(2, block_size=self.block_size)

    def sampler_of_documents(self) -> Callable[..., DefaultBatchSampler]:
        """What draws blocks; rows that name no documents are blocks already."""
        return BlockBatchSampler


class AnyLength(int):
    """Equal to every number of rows.

    accelerate drops batches that are not as long as the sampler says.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int)

    __hash__ = int.__hash__


class CutBlocks(NamedTuple):
    """The blocks of some documents.

    Attributes:
        document: The number of the document of each block, among those that were cut.
        begin: Where it begins in its document, in sentences.
        length: How many sentences it has.
    """

    document: np.ndarray
    begin: np.ndarray
    length: np.ndarray


class BlockBatchSampler(DefaultBatchSampler):
    """The sampler of [`Blocks`][st_xlret.batches.Blocks].

    A `ValueError` refuses a data set without a document of two sentences.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        options: Blocks,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(dataset, batch_size, True, seed=seed)
        self.batch_size = AnyLength(batch_size)
        self.ranks = get_world_size()
        self.block_size = options.block_size
        self.sentences_per_batch = batch_size * self.ranks * options.block_size
        self.documents = find_documents(dataset, skip_empty=True)
        self.groups = self.documents.long_documents_by_language()
        if not self.groups:
            raise ValueError("no document gives a block of two sentences or more")
        sentences = np.array([self.documents.lengths[group].sum() for group in self.groups])
        batches = np.maximum(1.0, sentences / self.sentences_per_batch)
        self.probabilities = smoothed_probabilities(batches, options.language_smoothing)
        self.batches = int(sum(batches.tolist()))

    def __len__(self) -> int:
        return self.batches * self.ranks

    def __iter__(self) -> Iterator[list[int]]:
        streams = []
        for number, group in enumerate(self.groups):
            generator_of_group = np.random.default_rng([self.seed, self.epoch, 1, number])
            streams.append(self._batches_of_language(group, generator_of_group))
        generator = np.random.default_rng([self.seed, self.epoch, 0])
        for _ in range(self.batches):
            number = generator.choice(len(streams), p=self.probabilities)
            yield from next(streams[number])

    def _batches_of_language(
        self,
        group: np.ndarray,
        generator: np.random.Generator,
    ) -> Iterator[list[list[int]]]:
        """The batches of the documents of a language, `group`, pass after pass, without an end.

        Each is the rows of the data set that each process reads. Blocks of one sentence are left
        out: a masked sentence would have no context. `long_documents_by_language` gives documents
        that have longer ones.
        """
        while True:
            lengths = self.documents.lengths[group]
            blocks = cut_into_blocks(lengths, self.block_size, generator)
            order = generator.permutation(np.flatnonzero(blocks.length > 1))
            first_places = self.documents.starts[group][blocks.document] + blocks.begin
            for batch in _pack_blocks(blocks, order.tolist(), self.sentences_per_batch):
                lengths_of_batch = blocks.length[batch]
                places = _places_in_random_order(first_places[batch], lengths_of_batch, generator)
                rows = self.documents.rows[places]
                shares = shares_of_ranks(lengths_of_batch, self.ranks)
                yield [rows[first:last].tolist() for first, last in shares]


def _pack_blocks(
    blocks: CutBlocks,
    order: Sequence[int],
    most_sentences: int,
) -> Iterator[list[int]]:
    """Batches of blocks in an order; a last batch that is not full is dropped, if it is not alone.

    Blocks have two sentences or more. Those whose document is in the batch wait for the next one:
    the collator tells the blocks of a batch apart by their documents.
    """
    waiting = deque(order)
    documents = blocks.document[-1] + 1
    is_first = True
    while waiting:
        batch: dict[int, int] = {}  # its block of each document
        room = most_sentences
        set_aside = []
        while waiting and len(batch) < documents:
            block = waiting.popleft()
            document = blocks.document[block]
            length = blocks.length[block]
            is_full = bool(batch) and length > room
            if is_full or document in batch:
                set_aside.append(block)
            else:
                batch[document] = block
                room -= length
            if is_full:
                break
        waiting.extendleft(reversed(set_aside))
        # Where no block was left to try, a batch into which none would fit is full too.
        if is_full or is_first or room < 2 or len(batch) == documents:
            is_first = False
            yield list(batch.values())


def _places_in_random_order(
    first_places: np.ndarray,
    lengths: np.ndarray,
    generator: np.random.Generator,
) -> np.ndarray:
    """The places of blocks, block after block, and those of a block in a random order.

    They, and `first_places`, count in `DocumentRows.rows`.
    """
    parts = []
    for first, length in zip(first_places, lengths, strict=True):
        parts.append(np.arange(first, first + length))
    places = np.concatenate(parts)
    block = np.repeat(np.arange(len(lengths)), lengths)
    shuffled = generator.permutation(len(places))
    by_block = np.argsort(block[shuffled], kind="stable")
    return places[shuffled[by_block]]


def cut_into_blocks(lengths: np.ndarray, size: int, generator: np.random.Generator) -> CutBlocks:
    """Cut documents of these lengths: long ones at a random border, and every `size` on.

    Blocks come document after document, as many of them as documents at least.
    """
    drawn = generator.integers(0, size, len(lengths))
    offset = np.where(lengths > size, drawn, 0)
    has_short_begin = offset > 0
    after_offset = np.ceil((lengths - offset) / size).astype(np.int64)
    count = has_short_begin + after_offset
    document = np.repeat(np.arange(len(lengths)), count)
    number_of_first = np.cumsum(count) - count
    number = np.arange(len(document)) - number_of_first[document]
    # The first block is the end of one that would begin before the document.
    origin = np.where(has_short_begin, offset - size, 0)
    unclipped_begin = origin[document] + number * size
    begin = np.maximum(unclipped_begin, 0)
    end = np.minimum(unclipped_begin + size, lengths[document])
    return CutBlocks(document, begin, end - begin)


def shares_of_ranks(lengths: np.ndarray, ranks: int) -> list[tuple[int, int]]:
    """Where the share of each process begins and ends, half-open, among the sentences of a batch.

    `lengths` are those of its blocks, in their order. A share is a run of whole blocks, one at
    least, with about as many sentences as the others. Too few blocks are repeated.
    """
    blocks = len(lengths)
    ends = np.cumsum(lengths).tolist()
    starts = [0, *ends[:-1]]
    if blocks < ranks:
        repeated = [rank % blocks for rank in range(ranks)]
        return [(starts[block], ends[block]) for block in repeated]
    first_blocks = [0]
    for rank in range(1, ranks):
        distance = np.abs(np.array(ends) - ends[-1] * rank / ranks)
        nearest = 1 + int(np.argmin(distance))
        # Each process before and after this one has a block at least.
        nearest = max(nearest, first_blocks[-1] + 1)
        first_blocks.append(min(nearest, blocks - (ranks - rank)))
    first_sentences = [starts[block] for block in first_blocks]
    share_ends = [*first_sentences[1:], ends[-1]]
    return list(zip(first_sentences, share_ends, strict=True))
