"""The documents of one language, cut into blocks and shuffled in every pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from st_xlret.data.batches.cutting import cut_into_blocks
from st_xlret.data.batches.runs import Runs, scratch_folder
from st_xlret.data.batches.shuffling import Shuffle, mix
from st_xlret.files.scratch import scratch_array

IN_MEMORY = 2**18
"""Blocks up to which those of a language are held in memory during a pass."""

_AT_A_TIME = 2**10


class Block(NamedTuple):
    """A run of sentences of one document.

    Attributes:
        document: Which document of its language it is of.
        begin: Place of its first sentence among all of the data set that have text.
        length: Number of its sentences.
    """

    document: int
    begin: int
    length: int


class LanguageBlocks:
    """The blocks of the documents of one language.

    A document has a place for each block that it may be cut into. With up to 262 144 places in all, documents are cut
    and blocks shuffled as a whole. Otherwise their places are shuffled by a function, where each document is cut
    follows from its number and a key, and a place whose block is not there in this pass is skipped; this takes
    8 bytes for each document, which are mapped from a file.

    Args:
        documents: Their numbers.
        starts: Where each document of the data set begins, and where the last one ends, in sentences that have text.
        block_size: Maximum sentences in a block.
        shortest: Minimum sentences in a block; shorter ones are left out.

    Attributes:
        sentences: Number of sentences in all.
        longer: Documents of two or more sentences.
        fewest: Blocks, if each document is cut into as few as possible.
    """

    def __init__(self, documents: Runs, starts: np.ndarray, *, block_size: int, shortest: int) -> None:
        self.documents, self.starts = documents, starts
        self.block_size, self.shortest = block_size, shortest
        self.sentences = self.longer = self.fewest = 0
        self._ends = scratch_array(len(documents), np.int64, scratch_folder())
        filled = places = 0
        for numbers in documents.chunks():
            length = self._lengths(numbers)
            self.sentences += int(length.sum())
            self.longer += int((length > 1).sum())
            self.fewest += int((-(-length // block_size)).sum())
            # A first block of any length, and then the others.
            most = np.where(length > block_size, 1 - (1 - length) // block_size, 1)
            self._ends[filled : filled + len(numbers)] = places + np.cumsum(most)
            filled, places = filled + len(numbers), places + int(most.sum())
        self._places = places

    def drawn(self, generator: np.random.Generator) -> Iterator[Block]:
        """The blocks of a pass, in random order."""
        if self._places <= IN_MEMORY:
            yield from self._drawn_as_a_whole(generator)
            return
        order = Shuffle(self._places, generator)
        key = generator.integers(0, 2**64, dtype=np.uint64)
        for begin in range(0, self._places, _AT_A_TIME):
            yield from self._at(order[np.arange(begin, min(begin + _AT_A_TIME, self._places))], key)

    def _drawn_as_a_whole(self, generator: np.random.Generator) -> Iterator[Block]:
        numbers = self.documents[np.arange(len(self.documents))]
        document, begin, length = cut_into_blocks(self._lengths(numbers), self.block_size, generator)
        begin += self.starts[numbers][document]
        kept = generator.permutation(np.flatnonzero(length >= self.shortest))
        for first in range(0, len(kept), _AT_A_TIME):
            yield from _blocks(document, begin, length, kept[first : first + _AT_A_TIME])

    def _at(self, places: np.ndarray, key: np.uint64) -> Iterator[Block]:
        """The blocks that are at these places in the pass that has this key."""
        document = np.searchsorted(self._ends, places, side="right")
        number = places - np.where(document > 0, self._ends[document - 1], 0)
        numbers = self.documents[document]
        whole = self._lengths(numbers)
        offset = (mix(numbers.astype(np.uint64) + key) % np.uint64(self.block_size)).astype(np.int64)
        # As in `cut_into_blocks`: the first block is the end of one that would begin before the document.
        origin = np.where((whole > self.block_size) & (offset > 0), offset - self.block_size, 0)
        origin += number * self.block_size
        begin = np.maximum(origin, 0)
        length = np.minimum(origin + self.block_size, whole) - begin
        return _blocks(document, self.starts[numbers] + begin, length, np.flatnonzero(length >= self.shortest))

    def _lengths(self, numbers: np.ndarray) -> np.ndarray:
        return self.starts[numbers + 1] - self.starts[numbers]


def _blocks(document: np.ndarray, begin: np.ndarray, length: np.ndarray, chosen: np.ndarray) -> Iterator[Block]:
    return map(Block, document[chosen].tolist(), begin[chosen].tolist(), length[chosen].tolist())
