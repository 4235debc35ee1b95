"""Batches of questions without a passage in common."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from datasets import Dataset

from st_xlret.batches.collator import text_columns
from st_xlret.batches.sampling import LanguageBatchSampler, LanguageStreams, Rows, shares

logger = logging.getLogger(__name__)

_TRIES = 100


class _Row(NamedTuple):
    number: int
    query: str
    positive: str
    negatives: tuple[str, ...]


class DistinctBatchSampler(LanguageBatchSampler):
    """The sampler of [`DistinctRows`][st_xlret.batches.DistinctRows].

    A row that does not fit into a batch comes in a later one. Where a language has too few different rows to fill a
    batch, the batch has equal ones, with a warning.
    """

    def __init__(self, dataset: Dataset, batch_size: int, options: DistinctRows, *, seed: int = 0) -> None:
        super().__init__(dataset, batch_size, options, seed=seed)
        self.columns = text_columns(dataset)
        if len(self.columns) < 2:
            raise ValueError(f"questions need a query and a passage, got the text columns {self.columns}")
        self.texts = dataset.select_columns(self.columns)
        self.language_of = np.empty(len(dataset), dtype=np.int32)
        for language, rows in enumerate(self.groups):
            self.language_of[rows] = language

    def __iter__(self) -> Iterator[list[int]]:
        options, seed = self.options, [self.seed, self.epoch]
        streams = LanguageStreams(self.groups, options.language_smoothing, options.language_mixing, seed)
        set_aside = [list[_Row]() for _ in self.groups]
        warned = False
        for _ in range(len(self) // self.ranks):
            batch, filled = _Batch(), set[int]()  # filled: languages of which no further row fits
            for drawn in self._read(streams.draw(self.draws)):
                language = int(self.language_of[drawn.number])
                waiting = [*set_aside[language], drawn]
                fits = next((i for i, row in enumerate(waiting) if batch.fits(row)), None)
                for _ in range(_TRIES if fits is None and language not in filled else 0):
                    waiting += self._read(_next_row(streams, language))
                    if batch.fits(waiting[-1]):
                        fits = len(waiting) - 1
                        break
                if fits is None:
                    filled.add(language)
                if fits is None and not warned:
                    warned = True
                    logger.warning(
                        "a language has too few different questions for batches of %d: some batches have the same "
                        "passage for two questions, which are negatives of each other then; lower the batch size",
                        self.draws,
                    )
                batch.add(waiting.pop(fits or 0))
                # Beyond that many, rows are not waited for: where a batch cannot be filled, there would be ever more.
                set_aside[language] = waiting[:_TRIES]
            yield from shares(batch.rows, self.ranks)

    def _read(self, rows: Sequence[int] | np.ndarray) -> list[_Row]:
        columns = self.texts[np.asarray(rows)]
        query, positive, *negatives = (columns[name] for name in self.columns)
        others = list(zip(*negatives, strict=True)) if negatives else [()] * len(query)
        return [_Row(int(n), *texts) for n, *texts in zip(rows, query, positive, others, strict=True)]


class _Batch:
    """The rows of a batch, and the texts in it."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.queries: set[str] = set()
        self.positives: set[str] = set()
        self.passages: set[str] = set()

    def fits(self, row: _Row) -> bool:
        """Whether no passage of the batch answers this question, and its passage answers none of the batch."""
        return (
            row.query not in self.queries
            and row.positive not in self.passages
            and self.positives.isdisjoint(row.negatives)
        )

    def add(self, row: _Row) -> None:
        """Take a row into the batch."""
        self.rows.append(row.number)
        self.queries.add(row.query)
        self.positives.add(row.positive)
        self.passages.update((row.positive, *row.negatives))


def _next_row(streams: LanguageStreams, language: int) -> np.ndarray:
    if not len(streams._orders[language]):
        streams._orders[language] = streams.generator.permutation(len(streams.groups[language]))
    first, streams._orders[language] = np.split(streams._orders[language], [1])
    return streams.groups[language][first]


@dataclass(frozen=True)
class DistinctRows(Rows):
    """Batches of questions none of which has another one's passage, or its text, among the batch.

    In-batch negatives would otherwise be wrong where several questions have one passage, as in SQuAD and MS MARCO. This
    is the host's `NoDuplicatesBatchSampler` with languages, and for the batch of all processes.

    Args:
        language_smoothing: Languages are sampled in proportion to their size raised to this power. At 1 every question
            comes once in an epoch.
        language_mixing: 0: a batch is of one language. 1: its languages are fully mixed.

    Example:
        >>> rows = {"query": list("abcd"), "positive": ["p", "p", "q", "q"], "language": ["en"] * 4}
        >>> all(sorted(row // 2 for row in batch) == [0, 1] for batch in DistinctRows()(Dataset.from_dict(rows), 2))
        True
    """

    def make(self, dataset: Dataset, batch_size: int, *, drop_last: bool, seed: int) -> DistinctBatchSampler:
        """Make the sampler for this data set."""
        return DistinctBatchSampler(dataset, batch_size, self, seed=seed)
