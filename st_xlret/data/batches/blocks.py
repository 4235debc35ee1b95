"""Batches of whole blocks of documents: ragged runs of consecutive sentences of one language (MSM)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.util.distributed import get_world_size

from st_xlret.data.batches.cutting import share_blocks
from st_xlret.data.batches.language_blocks import Block, LanguageBlocks
from st_xlret.data.batches.runs import Runs, RunsByGroup, scratch_folder
from st_xlret.data.batches.sampling import choices, smoothed_probabilities
from st_xlret.data.batches.scanning import DocumentScan
from st_xlret.files.scratch import ScratchList

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BlockCounts:
    """What a [`BlockBatchSampler`][st_xlret.BlockBatchSampler] found in its documents.

    Attributes:
        documents: Documents that give blocks.
        sentences: Sentences of these documents.
        split_documents: Documents longer than a block.
        one_sentence_documents: Documents of a single sentence, which are left out or are negatives only.
        empty_sentences: Rows without text, which are left out.
    """

    documents: int
    sentences: int
    split_documents: int
    one_sentence_documents: int
    empty_sentences: int

    def __str__(self) -> str:
        return (
            f"{self.documents:,} documents of {self.sentences:,} sentences, {self.split_documents:,} of them split; "
            f"{self.one_sentence_documents:,} of one sentence, {self.empty_sentences:,} sentences without text"
        )


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
    """Batches of blocks of documents, of one language each (MSM, section 4.2).

    A document of up to `block_size` sentences is one block. A longer one is cut, at borders that are drawn anew in
    every pass, so that each sentence gets other neighbours and positions. All rows of a block are in the batch, so
    batches are ragged, and a document has at most one block in a batch. The blocks of a batch come in random order, and
    so do the rows of a block; [`CrossLingualDataCollator`][st_xlret.CrossLingualDataCollator] with `blocks=True` tells
    which block and position each row has.

    The data set has a row per sentence (columns `language` and `document`), and the rows of a document are contiguous
    and in order, as [`load_documents`][st_xlret.load_documents] and
    [`pack_documents`][st_xlret.data.pack_documents] give them. In a pass over a language every document occurs once,
    except for those that do not fill a last batch. Small languages are passed over several times per epoch.

    Of a document, 16 bytes are held: where it begins, and how many blocks there may be before it. They are mapped from
    a file without a name, in the cache of `datasets`, if they are more than 4 MB.

    In a distributed run, the batch of all processes is drawn together, and each process takes a run of its blocks with
    about as many sentences as the others have. A process gets a block that another one has only if the batch has fewer
    blocks than there are processes.

    Args:
        dataset: Sentences in document order, in a text column named `sentence`.
        batch_size: Documents per batch, in each process.
        drop_last: Ignored: a last, smaller batch is left out unless it is the only one of its language.
        valid_label_columns: Ignored.
        generator: Ignored: batches depend on the seed and the epoch only, so a resumed run repeats them.
        seed: Seed.
        block_size: Maximum sentences in a block (32 in the paper).
        fill: Take as many documents as have `batch_size * block_size` sentences together, so that batches of short
            documents are as large as others. Otherwise take `batch_size` documents, whatever their length.
        keep_single_sentences: Keep blocks of one sentence, which the loss uses as negatives only, instead of leaving
            them out.
        min_documents: Languages with fewer documents are left out.
        language_smoothing: Languages are sampled in proportion to their size raised to this power, see
            [`smoothed_probabilities`][st_xlret.data.smoothed_probabilities].

    Attributes:
        counts: A `BlockCounts`.

    Raises:
        ValueError: If no document has two sentences, the rows of a document are not contiguous, columns are missing,
            or `block_size` is below 2.

    Example:
        >>> rows = {"sentence": list("abcdef"), "language": ["en"] * 6, "document": [0, 0, 0, 1, 1, 2]}
        >>> sampler = BlockBatchSampler(Dataset.from_dict(rows), batch_size=2)
        >>> sorted(next(iter(sampler))), sampler.counts.one_sentence_documents
        ([0, 1, 2, 3, 4], 1)
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        drop_last: bool = True,
        valid_label_columns: list[str] | None = None,
        generator: torch.Generator | None = None,
        seed: int = 0,
        *,
        block_size: int = 32,
        fill: bool = True,
        keep_single_sentences: bool = False,
        min_documents: int = 1,
        language_smoothing: float = 0.7,
    ) -> None:
        super().__init__(dataset, batch_size, True, valid_label_columns, generator, seed)
        missing = {"sentence", "language", "document"} - set(dataset.column_names)
        if missing:
            raise ValueError(f"blocks need the columns {sorted(missing)}, the dataset has {dataset.column_names}")
        if block_size < 2:
            raise ValueError(f"block_size must be at least 2 sentences, got {block_size}")
        self.batch_size = AnyLength(batch_size)
        self.ranks = get_world_size()
        self.documents_per_batch, self.block_size = batch_size * self.ranks, block_size
        self.sentences_per_batch = self.documents_per_batch * block_size if fill else None
        self.shortest = 1 if keep_single_sentences else 2
        self.counts, documents, names = self._find_documents(dataset)
        logger.info("blocks: %s", self.counts)
        self.groups: list[LanguageBlocks] = []
        self.languages: list[str] = []
        batches: list[float] = []
        for numbers, name in zip(documents, names, strict=True):
            group = LanguageBlocks(numbers, self.starts, block_size=block_size, shortest=self.shortest)
            if self._is_large_enough(group, name, min_documents):
                self.groups.append(group)
                self.languages.append(name)
                batches.append(self._expected_batches(group))
        if not self.groups:
            raise ValueError(
                f"no language has {max(1, min_documents)} documents of two or more sentences, so there is nothing to "
                f"sample ({self.counts})"
            )
        self.probabilities = smoothed_probabilities(np.array(batches), language_smoothing)
        self.batches = max(1, int(sum(batches)))

    def __len__(self) -> int:
        return self.batches * self.ranks

    def __iter__(self) -> Iterator[list[int]]:
        seed = [self.seed or 0, self.epoch]
        streams = [self._endless(group, [*seed, 1, i]) for i, group in enumerate(self.groups)]
        for language in choices(np.random.default_rng([*seed, 0]), self.probabilities, self.batches):
            yield from next(streams[language])

    def _endless(self, group: LanguageBlocks, seed: list[int]) -> Iterator[list[list[int]]]:
        generator = np.random.default_rng(seed)
        while True:
            for batch in self._pack(group.drawn(generator), len(group.documents)):
                length = np.array([block.length for block in batch])
                rows = self.rows[np.concatenate([np.arange(each.begin, each.begin + each.length) for each in batch])]
                order = generator.permutation(len(rows))
                number = np.repeat(np.arange(len(batch)), length)
                rows = rows[order[np.argsort(number[order], kind="stable")]]
                yield [rows[first:last].tolist() for first, last in share_blocks(length, self.ranks)]

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
                full = len(seen) == documents or self._is_full(len(batch), sentences + block.length)
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
            full = full or len(seen) == documents or self._is_full(len(batch), sentences + self.shortest)
            if (full or not packed) and max(block.length for block in batch) > 1:
                packed += 1
                yield batch

    def _is_full(self, blocks: int, sentences: int) -> bool:
        """Whether a batch of `blocks` blocks is full: another block would make it `sentences` sentences long."""
        if self.sentences_per_batch is None:
            return blocks >= self.documents_per_batch
        return blocks > 0 and sentences > self.sentences_per_batch

    def _expected_batches(self, group: LanguageBlocks) -> float:
        if self.sentences_per_batch is not None:
            return max(1.0, group.sentences / self.sentences_per_batch)
        return max(1.0, group.fewest / self.documents_per_batch)

    def _find_documents(self, dataset: Dataset) -> tuple[BlockCounts, list[Runs], list[str]]:
        """Find the rows with text and where each document begins among them; the usable documents of each language."""
        scan, starts, usable = (
            DocumentScan(dataset, skip_empty=True),
            ScratchList(np.int64, scratch_folder()),
            RunsByGroup(),
        )
        documents = sentences = split = single = total = 0
        for found in scan:
            starts.extend(found.first)
            total = int(found.first[-1] + found.length[-1])
            chosen = found.length >= self.shortest
            usable.extend(found.numbers[chosen], np.ones(int(chosen.sum()), dtype=np.int64), found.language[chosen])
            documents += int(chosen.sum())
            sentences += int(found.length[chosen].sum())
            split += int((found.length > self.block_size).sum())
            single += int((found.length == 1).sum())
        if not total:
            raise ValueError("there are no sentences to draw blocks from")
        starts.extend(np.array([total]))
        self.rows, self.starts = scan.rows, starts.finish()
        counts = BlockCounts(documents, sentences, split, single, len(dataset) - total)
        return counts, usable.finish(len(scan.languages)), scan.languages

    def _is_large_enough(self, group: LanguageBlocks, language: str, min_documents: int) -> bool:
        longer, documents = group.longer, len(group.documents)
        if longer < max(1, min_documents):
            logger.warning(
                "language %r has %d documents of two or more sentences, and needs %d: it gives no blocks",
                *(language, longer, max(1, min_documents)),
            )
            return False
        if documents < min(self.documents_per_batch, 4):
            logger.warning(
                "language %r has only %d documents: its batches have hardly any negatives of other documents",
                *(language, documents),
            )
        return True
