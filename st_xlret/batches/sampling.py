"""Batches of one data set: rows, windows, rows of about one length. Languages are sampled with smoothing.

In a distributed run the batch of all processes is drawn together, and their shares come one after the other: accelerate
hands the first share to the first process, and so on. R processes read what one reads with an R times larger batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.util.distributed import get_world_size

from st_xlret.batches.collator import languages_in_rows
from st_xlret.columns import Declared, text_columns
from st_xlret.data.rows import rows_by_value


def smoothed_probabilities(sizes: np.ndarray, language_smoothing: float) -> np.ndarray:
    """Sampling probabilities (L,) in proportion to `size ** language_smoothing` (XLM-R, Conneau et al. 2020, 3.1)."""
    powers = np.asarray(sizes, dtype=np.float64) ** language_smoothing
    return powers / powers.sum()


class DocumentRows(NamedTuple):
    """The rows of documents in order; and of each document where it starts among them, its length and its language."""

    rows: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    languages: np.ndarray  # as numbers


def find_documents(dataset: Dataset, *, skip_empty: bool = False) -> DocumentRows:
    """The documents of a data set, in order of `position` if it has one; a ValueError if they are in no order."""
    languages_in_rows(dataset)  # refuses what is none
    table: pa.Table = dataset.with_format("arrow")[:]  # mapped, not read
    columns = [name for name in ("language", "document", "position") if name in table.column_names]
    problems = [f"rows without {name!r}" for name in columns if table[name].null_count]
    rows = np.arange(len(dataset))
    for text in Declared(table.column_names).of("text") if skip_empty else ():
        rows = rows[pc.greater(pc.binary_length(table[text]), 0).fill_null(False).to_numpy()[rows]]
    document, language = (
        pc.index_in(table[name], value_set=table[name].unique()).to_numpy()[rows]
        if name in columns
        else 0 * rows
        for name in ("document", "language")
    )
    if "position" in columns:
        position = table["position"].cast(pa.int64()).to_numpy()[rows]
        _, first, number = np.unique(document, return_index=True, return_inverse=True)
        order = np.lexsort((position, first[number]))
        rows, document, position, language = (
            rows[order],
            document[order],
            position[order],
            language[order],
        )
        if ((np.diff(position) == 0) & (np.diff(document) == 0)).any():
            problems.append(
                "two rows of a document have one 'position': two documents may have the same id"
            )
    first = np.flatnonzero(np.diff(document, prepend=document[:1] - 1))
    if len(np.unique(document[first])) != len(first):
        way_out = "number them first, as by dataset.add_column('position', range(len(dataset)))"
        problems.append(
            f"the rows of a document must be contiguous and in order, which sorting breaks: {way_out}"
        )
    if problems:
        raise ValueError(problems[0])
    return DocumentRows(rows, first, np.diff(first, append=len(rows)), language[first])


class BatchFactory(ABC):
    """Base of what makes samplers, such as `Rows()`: it has the signature that the host calls as `batch_sampler`."""

    batch_scale: float = 1.0

    @abstractmethod
    def make(
        self, dataset: Dataset, batch_size: int, *, drop_last: bool, seed: int
    ) -> DefaultBatchSampler:
        """Make the sampler for this data set."""

    def __call__(
        self,
        dataset: Dataset,
        batch_size: int,
        drop_last: bool = True,
        valid_label_columns: list[str] | None = None,
        generator: Any = None,
        seed: int | None = 0,
    ) -> DefaultBatchSampler:
        """Make the sampler for this data set, with the host's arguments. Seed and epoch alone decide on the batches."""
        return self.make(
            dataset, max(1, int(batch_size * self.batch_scale)), drop_last=drop_last, seed=seed or 0
        )


@dataclass(frozen=True)
class Rows(BatchFactory):
    """Batches of rows whose languages are sampled with smoothing: `batches` of a loss, or `batch_sampler`.

    Rows are grouped by all columns named `language` or `*_language`. An epoch has as many rows as the data set.

    Args:
        language_smoothing: Languages are sampled in proportion to their size raised to this power.
        language_mixing: 0: a batch is of one language (or language pair). 1: its languages are fully mixed.
        batch_scale: Rows for each unit of the batch size, such as 32 beside batches of documents of 32 sentences.

    Example:
        >>> rows = {"source": ["a"], "target": ["b"], "source_language": ["en"], "target_language": ["fr"]}
        >>> next(iter(Rows()(Dataset.from_dict(rows), 2)))
        [0, 0]
    """

    language_smoothing: float = 0.7
    language_mixing: float = 1.0
    batch_scale: float = 1.0

    def make(
        self, dataset: Dataset, batch_size: int, *, drop_last: bool, seed: int
    ) -> DefaultBatchSampler:
        """Make the sampler for this data set."""
        return LanguageBatchSampler(dataset, batch_size, self, seed=seed)


class LanguageBatchSampler(DefaultBatchSampler):
    """The sampler of [`Rows`][st_xlret.batches.Rows]. Subclasses say which rows to draw, and what to make of them."""

    rows_of_draw = 1  # rows of a batch that are made of one that is drawn

    def __init__(self, dataset: Dataset, batch_size: int, options: Rows, *, seed: int = 0) -> None:
        # With several processes, batches of another length than this would be dropped.
        super().__init__(dataset, batch_size * self.rows_of_draw, True, seed=seed)
        self.options, self.ranks = options, get_world_size()
        self.draws = batch_size * self.ranks
        self.groups = [group for group in self.rows_by_language(dataset) if len(group)]
        if not self.groups:
            raise ValueError(
                f"there is nothing to draw for {options}: none of {len(dataset)} rows can be used"
            )

    def __len__(self) -> int:
        return max(1, sum(map(len, self.groups)) // self.draws) * self.ranks

    def __iter__(self) -> Iterator[list[int]]:
        generator, options = np.random.default_rng([self.seed, self.epoch]), self.options
        sizes = np.array([len(group) for group in self.groups])
        probabilities = smoothed_probabilities(sizes, options.language_smoothing)
        waiting = [np.empty(0, dtype=np.int64) for _ in sizes]
        for _ in range(len(self) // self.ranks):
            language = np.full(self.draws, generator.choice(len(sizes), p=probabilities))
            if options.language_mixing:
                leaves = generator.random(self.draws) < options.language_mixing
                language = np.where(
                    leaves, generator.choice(len(sizes), size=self.draws, p=probabilities), language
                )
            rows = np.empty(self.draws, dtype=np.int64)
            for number in np.unique(language):
                places = np.flatnonzero(language == number)
                # The rows of a language come in a random order, each once before any comes again.
                while len(waiting[number]) < len(places):
                    waiting[number] = np.append(
                        waiting[number], generator.permutation(sizes[number])
                    )
                first, waiting[number] = np.split(waiting[number], [len(places)])
                rows[places] = self.groups[number][first]
            yield from self.batches_by_rank(rows, generator)

    def rows_by_language(self, dataset: Dataset) -> list[np.ndarray]:
        """The rows to sample from, by language."""
        languages_in_rows(dataset)  # refuses what is none
        names = Declared(dataset.column_names).of("language")
        return rows_by_value(dataset, names)[0]

    def batches_by_rank(self, rows: np.ndarray, generator: np.random.Generator) -> list[list[int]]:
        """The batches of the processes, made of the rows that were drawn."""
        return rows.reshape(self.ranks, -1).tolist()


@dataclass(frozen=True)
class Windows(Rows):
    """Batches of windows (CCP, Algorithm 1). Pass it as `batches` of `CCPLoss`, or as `batch_sampler`.

    The data set has a row per sentence (columns `language`, `document`), with its `position` in the document; without
    positions, the rows of a document are contiguous and in order. A batch of N windows has 2 N rows: the centres, in a
    new order in every epoch, then the context of each, drawn anew. Documents of one sentence are left out. Rows of a
    data set without a `document` column are windows already: centre and context are its two text columns.

    Args:
        language_mixing: As for `Rows`, but 0, as in the paper.
        window_size: Largest distance of a context sentence from its centre (w in the paper).

    Example:
        >>> rows = {"sentence": list("abcdef"), "language": ["en"] * 6, "document": [0, 0, 0, 1, 1, 1]}
        >>> batch = next(iter(Windows()(Dataset.from_dict(rows), 3)))
        >>> [a // 3 == b // 3 and a != b for a, b in zip(batch[:3], batch[3:])]
        [True, True, True]
    """

    language_mixing: float = 0.0
    window_size: int = 5

    def make(
        self, dataset: Dataset, batch_size: int, *, drop_last: bool, seed: int
    ) -> DefaultBatchSampler:
        """Make the sampler for this data set."""
        sampler = WindowBatchSampler if "document" in dataset.column_names else LanguageBatchSampler
        return sampler(dataset, batch_size, self, seed=seed)


class WindowBatchSampler(LanguageBatchSampler):
    """The sampler of [`Windows`][st_xlret.batches.Windows]: N centre sentences, then one context sentence of each."""

    options: Windows
    rows_of_draw = 2

    def rows_by_language(self, dataset: Dataset) -> list[np.ndarray]:
        """The sentences that have a context, by language; their documents are kept for drawing it."""
        self.documents = find_documents(dataset)
        usable = (self.documents.lengths > 1) & (self.options.window_size >= 1)
        language = np.repeat(np.where(usable, self.documents.languages, -1), self.documents.lengths)
        return [
            np.flatnonzero(language == number) for number in np.unique(self.documents.languages)
        ]

    def batches_by_rank(self, rows: np.ndarray, generator: np.random.Generator) -> list[list[int]]:
        """The centres of each process, then their contexts."""
        document = np.searchsorted(self.documents.starts, rows, side="right") - 1
        start, length = self.documents.starts[document], self.documents.lengths[document]
        low = np.maximum(start, rows - self.options.window_size)
        high = np.minimum(start + length - 1, rows + self.options.window_size)
        # One of high - low positions; those from the centre on move up by one.
        context = low + (generator.random(len(rows)) * (high - low)).astype(np.int64)
        context += context >= rows
        return np.hstack(
            [self.documents.rows[side].reshape(self.ranks, -1) for side in (rows, context)]
        ).tolist()


@dataclass(frozen=True)
class LengthGroupedBatches(BatchFactory):
    """Batches of rows of about the same length. Pass it as `batches` of a loss, or as `batch_sampler`.

    Batches of mixed lengths can take several times as long. The rows are shuffled; each stretch of 50 batches is sorted
    by length and cut into batches, which are shuffled.

    Args:
        tokenizer: A tokenizer of Transformers. The length of a row is the largest number of tokens of its texts.
        texts_per_batch: The batch size counts texts: a row with three text columns counts as three.
    """

    tokenizer: Callable[[list[str]], Any]
    texts_per_batch: bool = False

    def make(
        self, dataset: Dataset, batch_size: int, *, drop_last: bool, seed: int
    ) -> DefaultBatchSampler:
        """Make the sampler for this data set."""
        columns, lengths = text_columns(dataset), list[int]()
        for rows in dataset.iter(2**12):
            ids = (self.tokenizer(rows[column])["input_ids"] for column in columns)
            lengths += [max(map(len, texts)) for texts in zip(*ids, strict=True)]
        size = max(1, batch_size // len(columns)) if self.texts_per_batch else batch_size
        return LengthGroupedBatchSampler(dataset, size, drop_last, lengths=lengths, seed=seed)


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
        self.lengths, self.ranks = np.asarray(lengths), get_world_size()
        self.draws = batch_size * self.ranks
        self.full = len(lengths) - len(lengths) % self.draws
        # Several processes would get shares of different sizes.
        self.last = 0 if drop_last or self.ranks > 1 else len(lengths) - self.full

    def __len__(self) -> int:
        return self.full // self.draws * self.ranks + bool(self.last)

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng([self.seed, self.epoch, 17])
        rows = generator.permutation(len(self.lengths))
        for start in range(0, self.full, self.stretch * self.draws):
            stretch = rows[start : min(start + self.stretch * self.draws, self.full)]
            by_length = stretch[np.argsort(self.lengths[stretch], kind="stable")]
            for batch in generator.permutation(by_length.reshape(-1, self.draws)):
                yield from batch.reshape(self.ranks, -1).tolist()
        if self.last:
            yield rows[self.full :].tolist()
