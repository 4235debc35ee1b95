"""Batches of one data set: rows, or windows. Languages are sampled with smoothing.

In a distributed run the batch of all processes is drawn together, and their shares come one after
the other: accelerate hands the first share to the first process, and so on. R processes read what
one reads with an R times larger batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.util.distributed import get_world_size

from st_xlret.batches.documents import find_documents
from st_xlret.batches.languages import check_languages_of_rows
from st_xlret.columns import Declared
from st_xlret.data.rows import rows_by_value
from st_xlret.ranges import check_positive, check_range


def smoothed_probabilities(sizes: np.ndarray, language_smoothing: float) -> np.ndarray:
    """Sampling probabilities (L,) in proportion to `size ** language_smoothing`.

    XLM-R, Conneau et al. 2020, 3.1.
    """
    powers = np.asarray(sizes, dtype=np.float64) ** language_smoothing
    return powers / powers.sum()


class BatchFactory(ABC):
    """Base of what makes samplers, such as `Rows()`.

    It has the signature that the host calls as `batch_sampler`.
    """

    batch_scale: float = 1.0

    @abstractmethod
    def make(
        self,
        dataset: Dataset,
        batch_size: int,
        *,
        drop_last: bool,
        seed: int,
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
        """Make the sampler for this data set, with the host's arguments.

        Seed and epoch alone decide on the batches.
        """
        check_range(1, batch_size=batch_size)
        size = max(1, int(batch_size * self.batch_scale))
        return self.make(dataset, size, drop_last=drop_last, seed=seed or 0)


@dataclass(frozen=True)
class Rows(BatchFactory):
    """Batches of rows whose languages are sampled with smoothing.

    Pass it as `batches` of a loss, or as `batch_sampler`. Rows are grouped by all columns named
    `language` or `*_language`. An epoch has as many rows as the data set.

    Args:
        language_smoothing: Languages are sampled in proportion to their size raised to this power.
        language_mixing: 0: a batch is of one language (or language pair). 1: its languages are
            fully mixed.
        batch_scale: Rows for each unit of the batch size, such as 32 beside batches of documents
            of 32 sentences.

    Example:
        >>> texts = {"source": ["a"], "target": ["b"]}
        >>> languages = {"source_language": ["en"], "target_language": ["fr"]}
        >>> next(iter(Rows()(Dataset.from_dict({**texts, **languages}), 2)))
        [0, 0]
    """

    language_smoothing: float = 0.7
    language_mixing: float = 1.0
    batch_scale: float = 1.0

    def __post_init__(self) -> None:
        check_range(0, language_smoothing=self.language_smoothing)
        check_range(0, 1, language_mixing=self.language_mixing)
        check_positive(batch_scale=self.batch_scale)

    def make(
        self,
        dataset: Dataset,
        batch_size: int,
        *,
        drop_last: bool,
        seed: int,
    ) -> DefaultBatchSampler:
        """Make the sampler for this data set."""
        sampler: Callable[..., DefaultBatchSampler] = LanguageBatchSampler
        if "document" in dataset.column_names:
            sampler = self.sampler_of_documents()
        return sampler(dataset, batch_size, self, seed=seed)

    def sampler_of_documents(self) -> Callable[..., DefaultBatchSampler]:
        """What draws from rows that name their documents."""
        return LanguageBatchSampler


class LanguageBatchSampler(DefaultBatchSampler):
    """The sampler of [`Rows`][st_xlret.batches.Rows].

    Subclasses say which rows to draw, and what to make of them. A `ValueError` refuses a data set
    with nothing to draw.
    """

    rows_of_draw = 1
    """Rows of a batch that are made of one that is drawn."""
    needed = "a row with texts"
    """What a data set needs, for errors."""

    def __init__(self, dataset: Dataset, batch_size: int, options: Rows, *, seed: int = 0) -> None:
        # With several processes, batches of another length than this would be dropped.
        super().__init__(dataset, batch_size * self.rows_of_draw, True, seed=seed)
        self.options = options
        self.ranks = get_world_size()
        self.draws = batch_size * self.ranks
        self.groups = [places for places in self.places_by_language(dataset) if len(places)]
        if not self.groups:
            raise ValueError(
                f"there is nothing to draw for {options} from {len(dataset)} rows: {self.needed} "
                "is needed"
            )

    def __len__(self) -> int:
        places = sum(map(len, self.groups))
        steps = max(1, places // self.draws)
        return steps * self.ranks

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng([self.seed, self.epoch])
        languages = [ShuffledPlaces(places, generator) for places in self.groups]
        sizes = np.array(list(map(len, self.groups)))
        probabilities = smoothed_probabilities(sizes, self.options.language_smoothing)
        steps = len(self) // self.ranks
        for _ in range(steps):
            language_of_draw = self._draw_languages(probabilities, generator)
            places = np.empty(self.draws, dtype=np.int64)
            for number in np.unique(language_of_draw):
                is_of_language = language_of_draw == number
                count = np.count_nonzero(is_of_language)
                places[is_of_language] = languages[number].take(count)
            yield from self.batches_by_rank(places, generator)

    def _draw_languages(
        self,
        probabilities: np.ndarray,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """The number of a language, in `groups`, for each draw of the batch of all processes."""
        one = generator.choice(len(probabilities), p=probabilities)
        languages = np.full(self.draws, one)
        mixing = self.options.language_mixing
        if not mixing:
            return languages
        leaves = generator.random(self.draws) < mixing
        others = generator.choice(len(probabilities), size=self.draws, p=probabilities)
        return np.where(leaves, others, languages)

    def places_by_language(self, dataset: Dataset) -> list[np.ndarray]:
        """The places to draw from, by language: here, the rows of the data set themselves.

        `__init__` calls it once. The same seed draws the same batches as long as languages, and
        the places of each, come in the same order.
        """
        check_languages_of_rows(dataset)
        names = Declared(dataset.column_names).of("language")
        return [group.rows for group in rows_by_value(dataset, names)]

    def batches_by_rank(
        self, places: np.ndarray, generator: np.random.Generator
    ) -> list[list[int]]:
        """The rows of the batch of each process, of places that `places_by_language` gave.

        All batches have the same length, of `rows_of_draw` rows for each place.
        """
        batches: list[list[int]] = places.reshape(self.ranks, -1).tolist()
        return batches


class ShuffledPlaces:
    """The places of a language in a random order, each once before any comes again."""

    def __init__(self, places: np.ndarray, generator: np.random.Generator) -> None:
        self.places = places
        self.generator = generator
        self.waiting = np.empty(0, dtype=np.int64)

    def take(self, count: int) -> np.ndarray:
        """The next places; a new order of all begins where one ends: none is left out."""
        while len(self.waiting) < count:
            order = self.generator.permutation(self.places)
            self.waiting = np.append(self.waiting, order)
        taken = self.waiting[:count]
        self.waiting = self.waiting[count:]
        return taken


@dataclass(frozen=True)
class Windows(Rows):
    """Batches of windows (CCP, Algorithm 1).

    Pass it as `batches` of `CCPLoss`, or as `batch_sampler`. The data set has a row per sentence
    (columns `language`, `document`), with its `position` in the document; without positions, the
    rows of a document are contiguous and in order. A batch of N windows has 2 N rows: the centres,
    in a new order in every epoch, then the context of each, drawn anew. Documents of one sentence
    are left out. Rows of a data set without a `document` column are windows already: centre and
    context are its two text columns.

    Args:
        language_mixing: As for `Rows`, but 0, as in the paper.
        window_size: Largest distance of a context sentence from its centre (w in the paper).

    Example:
        >>> sentences = {"sentence": list("abcdef"), "language": ["en"] * 6}
        >>> rows = Dataset.from_dict({**sentences, "document": [0, 0, 0, 1, 1, 1]})
        >>> batch = next(iter(Windows()(rows, 3)))
        >>> [a // 3 == b // 3 and a != b for a, b in zip(batch[:3], batch[3:])]
        [True, True, True]
    """

    language_mixing: float = 0.0
    window_size: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(1, window_size=self.window_size)

    def sampler_of_documents(self) -> Callable[..., DefaultBatchSampler]:
        """What draws windows; rows that name no documents are windows already."""
        return WindowBatchSampler


class WindowBatchSampler(LanguageBatchSampler):
    """The sampler of [`Windows`][st_xlret.batches.Windows].

    N centre sentences, then one context sentence of each.
    """

    options: Windows
    rows_of_draw = 2
    needed = "a document of two sentences or more"

    def __init__(
        self, dataset: Dataset, batch_size: int, options: Windows, *, seed: int = 0
    ) -> None:
        self.documents = find_documents(dataset)
        super().__init__(dataset, batch_size, options, seed=seed)

    def places_by_language(self, dataset: Dataset) -> list[np.ndarray]:
        """The sentences that have a context, by language: their places in `documents.rows`."""
        groups = []
        for documents in self.documents.long_documents_by_language():
            is_of_language = np.zeros(len(self.documents.lengths), dtype=bool)
            is_of_language[documents] = True
            is_of_sentence = np.repeat(is_of_language, self.documents.lengths)
            groups.append(np.flatnonzero(is_of_sentence))
        return groups

    def batches_by_rank(
        self, places: np.ndarray, generator: np.random.Generator
    ) -> list[list[int]]:
        """The rows of the centres of each process, which are at `places`, then of their contexts.

        `CCPLoss` takes the second half of a batch for the contexts of the first, in its order.
        """
        contexts = self._draw_contexts(places, generator)
        centres_of_ranks = self.documents.rows[places].reshape(self.ranks, -1)
        contexts_of_ranks = self.documents.rows[contexts].reshape(self.ranks, -1)
        batches: list[list[int]] = np.hstack([centres_of_ranks, contexts_of_ranks]).tolist()
        return batches

    def _draw_contexts(self, centres: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """The place of a sentence near each centre, in the same document; both in places."""
        document = np.searchsorted(self.documents.starts, centres, side="right") - 1
        start = self.documents.starts[document]
        last = start + self.documents.lengths[document] - 1
        low = np.maximum(start, centres - self.options.window_size)
        high = np.minimum(last, centres + self.options.window_size)
        # One of high - low positions; those from the centre on move up by one.
        steps = generator.random(len(centres)) * (high - low)
        contexts: np.ndarray = low + steps.astype(np.int64)
        contexts += contexts >= centres
        return contexts
