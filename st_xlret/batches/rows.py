"""Batches of rows whose languages are sampled with smoothing: texts, pairs, questions, pairs beside other texts."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from datasets import Dataset, concatenate_datasets
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.util.distributed import get_world_size

from st_xlret.batches.collator import text_columns
from st_xlret.batches.sampling import REPEAT, BatchFactory, LanguageStreams, shares
from st_xlret.data.columns import rows_by_value

logger = logging.getLogger(__name__)

_TRIES = 100


class LanguageBatchSampler(DefaultBatchSampler):
    """The sampler of [`Rows`][st_xlret.batches.Rows], and of other factories with its two options of languages."""

    def __init__(self, dataset: Dataset, batch_size: int, options: Any, *, seed: int = 0) -> None:
        super().__init__(dataset, batch_size, True, seed=seed)
        self.ranks = get_world_size()
        self.draws = batch_size * self.ranks
        names = [name for name in dataset.column_names if name == "language" or name.endswith("_language")]
        if not len(dataset):
            raise ValueError("the data set is empty: there is nothing to sample")
        self.groups, self.languages = self.find_groups(dataset, names)
        self.options = options

    def __len__(self) -> int:
        return max(1, sum(map(len, self.groups)) // self.draws) * self.ranks

    def __iter__(self) -> Iterator[list[int]]:
        streams = self.streams()
        for _ in range(len(self) // self.ranks):
            yield from shares(streams.draw(self.draws), self.ranks)

    def find_groups(self, dataset: Dataset, columns: list[str]) -> tuple[list[np.ndarray], list[tuple[str, ...]]]:
        """The rows to sample from, by language, and the languages."""
        return rows_by_value(dataset, columns)

    def streams(self) -> LanguageStreams:
        """The rows of an epoch in random order."""
        return LanguageStreams(
            self.groups,
            language_smoothing=self.options.language_smoothing,
            language_mixing=self.options.language_mixing,
            seed=[self.seed, self.epoch],
        )


@dataclass(frozen=True)
class Rows(BatchFactory):
    """Batches of rows whose languages are sampled with smoothing: `batches` of a loss, or `batch_sampler`.

    Rows are grouped by every column named `language` or `*_language`: by language, or by language pair. Without such a
    column they are one group. An epoch has as many rows as the data set; smoothing makes small languages occur more
    often, and large ones less often. In a distributed run the batch of all processes is drawn together: two processes
    with batches of 8 read what one process reads with batches of 16.

    Args:
        language_smoothing: Languages are sampled in proportion to their size raised to this power, see
            [`smoothed_probabilities`][st_xlret.batches.smoothed_probabilities].
        language_mixing: 0: a batch is of one language (or language pair). 1: its languages are fully mixed.
        batch_scale: Rows for each unit of the batch size, such as 32 beside batches of documents of 32 sentences.
        batch_size: Rows per batch, in each process, instead of the batch size of the training arguments.

    Example:
        >>> rows = {"source": ["a"], "target": ["b"], "source_language": ["en"], "target_language": ["fr"]}
        >>> next(iter(Rows()(Dataset.from_dict(rows), 2)))
        [0, 0]
    """

    language_smoothing: float = 0.7
    language_mixing: float = 1.0
    batch_scale: float = 1.0
    batch_size: int | None = None

    def make(self, dataset: Dataset, batch_size: int, *, drop_last: bool, seed: int) -> LanguageBatchSampler:
        """Make the sampler for this data set."""
        size = self.batch_size or max(1, int(batch_size * self.batch_scale))
        return LanguageBatchSampler(dataset, size, self, seed=seed)


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
        streams, set_aside = self.streams(), [list[_Row]() for _ in self.groups]
        warned = False
        for _ in range(len(self) // self.ranks):
            batch, filled = _Batch(), set[int]()  # filled: languages of which no further row fits
            for drawn in self._read(streams.draw(self.draws)):
                language = int(self.language_of[drawn.number])
                waiting = [*set_aside[language], drawn]
                fits = next((i for i, row in enumerate(waiting) if batch.fits(row)), None)
                for _ in range(_TRIES if fits is None and language not in filled else 0):
                    waiting += self._read(streams.take(language, 1))
                    if batch.fits(waiting[-1]):
                        fits = len(waiting) - 1
                        break
                if fits is None:
                    filled.add(language)
                if fits is None and not warned:
                    warned = True
                    logger.warning(
                        "%s has too few different questions for batches of %d: some batches have the same passage for "
                        "two questions, which are negatives of each other then; lower the batch size",
                        *(" ".join(self.languages[language]) or "the data set", self.draws),
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


@dataclass(frozen=True)
class DistinctRows(BatchFactory):
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

    language_smoothing: float = 0.7
    language_mixing: float = 1.0

    def make(self, dataset: Dataset, batch_size: int, *, drop_last: bool, seed: int) -> DistinctBatchSampler:
        """Make the sampler for this data set."""
        return DistinctBatchSampler(dataset, batch_size, self, seed=seed)


PAIR_COLUMNS = ["source", "target", "source_language", "target_language"]


def pairs_and_others(pairs: Dataset, others: Dataset | None) -> Dataset:
    """Put parallel sentences and sentences without translations into one data set.

    A row is one of the two kinds, and its other columns are empty strings, because the host cannot read nulls.

    Args:
        pairs: `source`, `target`, `source_language` and `target_language`.
        others: `sentence` and `language`; None or empty for parallel sentences alone.

    Returns:
        The four columns of the pairs and, if there are other sentences, `other` and `other_language`.

    Example:
        >>> languages = {"source_language": ["en"], "target_language": ["fr"]}
        >>> pairs = Dataset.from_dict({"source": ["yes"], "target": ["oui"], **languages})
        >>> pairs_and_others(pairs, Dataset.from_dict({"sentence": ["ja"], "language": ["de"]}))[1]["other"]
        'ja'
    """
    pairs = pairs.select_columns(PAIR_COLUMNS)
    if others is None or not len(others):
        return pairs
    columns = {"sentence": "other", "language": "other_language"}
    others = others.select_columns(list(columns)).rename_columns(columns)
    pairs, others = _with_empty(pairs, others.column_names), _with_empty(others, PAIR_COLUMNS)
    return concatenate_datasets([pairs, others])


def _with_empty(dataset: Dataset, columns: list[str]) -> Dataset:
    for column in columns:
        dataset = dataset.add_column(column, [""] * len(dataset))
    return dataset


class PairsAndOthersBatchSampler(DefaultBatchSampler):
    """The sampler of [`PairsAndOthers`][st_xlret.batches.PairsAndOthers]: N pairs, followed by other sentences."""

    def __init__(self, dataset: Dataset, pairs: int, options: PairsAndOthers, *, seed: int = 0) -> None:
        others = options.others or pairs
        # The number of rows: with several processes, batches of another length would be dropped.
        super().__init__(dataset, pairs + others, True, seed=seed)
        column = dataset.with_format("arrow", columns=["source_language"])[:]["source_language"]
        is_pair = pc.not_equal(column, "").to_numpy()
        self.rows = [np.flatnonzero(is_pair), np.flatnonzero(~is_pair)]
        kinds = (
            (["source_language", "target_language"], pairs, options),
            (["other_language"], others, replace(options, language_mixing=1.0)),
        )
        self.samplers = [
            LanguageBatchSampler(dataset.select(rows).select_columns(columns), size, how)
            for rows, (columns, size, how) in zip(self.rows, kinds, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.samplers[0])

    def __iter__(self) -> Iterator[list[int]]:
        self.samplers[0].seed = self.seed
        for sampler in self.samplers:
            sampler.set_epoch(self.epoch)
        for pairs, others in zip(self.samplers[0], self._endless_others(), strict=False):
            yield [*self.rows[0][pairs].tolist(), *self.rows[1][others].tolist()]

    def _endless_others(self) -> Iterator[list[int]]:
        for repeats in count():
            # Neither the draws of the pairs nor those of another pass.
            self.samplers[1].seed = self.seed + 7919 + REPEAT * repeats
            yield from self.samplers[1]


@dataclass(frozen=True)
class PairsAndOthers(BatchFactory):
    """Batches of parallel sentences, and beside them sentences without translations (lang-contrastive, Hu et al. 2023).

    The data set is that of `pairs_and_others`; one of pairs alone gives batches of pairs. An epoch is one pass over the
    pairs. The other sentences are shuffled and smoothed over their languages on their own, and start again when they
    are exhausted.

    Args:
        pairs: Pairs per batch, in each process. By default the batch size of the training arguments.
        others: Other sentences per batch, in each process. By default as many as pairs.
        language_smoothing: Languages, and language pairs, are sampled in proportion to their size raised to this power.
        language_mixing: 1: a batch mixes all language pairs. 0: it is of one. Other sentences are always mixed.

    Example:
        >>> languages = {"source_language": ["en"], "target_language": ["fr"]}
        >>> pairs = Dataset.from_dict({"source": ["yes"], "target": ["oui"], **languages})
        >>> both = pairs_and_others(pairs, Dataset.from_dict({"sentence": ["ja"], "language": ["de"]}))
        >>> next(iter(PairsAndOthers(others=3)(both, 2)))
        [0, 0, 1, 1, 1]
    """

    pairs: int | None = None
    others: int | None = None
    language_smoothing: float = 0.7
    language_mixing: float = 1.0

    def make(self, dataset: Dataset, batch_size: int, *, drop_last: bool, seed: int) -> DefaultBatchSampler:
        """Make the sampler for this data set."""
        sampler = PairsAndOthersBatchSampler if "other" in dataset.column_names else LanguageBatchSampler
        return sampler(dataset, self.pairs or batch_size, self, seed=seed)
