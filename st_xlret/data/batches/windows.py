"""Batches of sentence windows, drawn afresh every epoch."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.util.distributed import get_world_size

from st_xlret.data.batches.runs import Runs, RunsByGroup, scratch_folder
from st_xlret.data.batches.sampling import LanguageStreams, shares
from st_xlret.data.batches.scanning import DocumentScan, rows_by_language
from st_xlret.files.scratch import ScratchList

logger = logging.getLogger(__name__)


class LanguageBatchSampler(DefaultBatchSampler):
    """Batches of rows whose languages are sampled with smoothing.

    Rows are grouped by every column named `language` or `*_language`: by language, or by language pair. An epoch has as
    many rows as the data set; smoothing makes small languages occur more often, and large ones less often.

    In a distributed run, the batch of all processes is drawn together, and each process takes its share of it. So two
    processes with batches of 8 read what one process reads with batches of 16.

    The rows of a language are held as runs of consecutive ones. Their order takes 4 bytes of each, and nothing for
    languages of more than 1 048 576 rows, which are shuffled by a keyed permutation.

    Args:
        dataset: Rows with a language column.
        batch_size: Rows per batch, in each process.
        drop_last: Ignored: all batches are full.
        valid_label_columns: Ignored.
        generator: Ignored: batches depend on the seed and the epoch only, so a resumed run repeats them.
        seed: Seed.
        language_smoothing: Languages are sampled in proportion to their size raised to this power, see
            [`smoothed_probabilities`][st_xlret.data.smoothed_probabilities].
        language_mixing: 0: a batch is of one language (or language pair). 1: its languages are fully mixed.

    Raises:
        ValueError: If the data set is empty or has no language column.
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
        language_smoothing: float = 0.7,
        language_mixing: float = 1.0,
    ) -> None:
        super().__init__(dataset, batch_size, True, valid_label_columns, generator, seed)
        self.ranks = get_world_size()
        self.draws = batch_size * self.ranks
        names = [name for name in dataset.column_names if name == "language" or name.endswith("_language")]
        if not names:
            raise ValueError(f"a 'language' column is needed to sample languages, got {dataset.column_names}")
        if not len(dataset):
            raise ValueError("the data set is empty: there is nothing to sample")
        self.groups, self.languages = self._find_groups(dataset, names)
        self.language_smoothing, self.language_mixing = language_smoothing, language_mixing

    @property
    def rows(self) -> int:
        """Number of rows that are sampled from."""
        return sum(len(group) for group in self.groups)

    def __len__(self) -> int:
        return max(1, self.rows // self.draws) * self.ranks

    def __iter__(self) -> Iterator[list[int]]:
        streams = self._streams()
        for _ in range(len(self) // self.ranks):
            yield from shares(streams.draw(self.draws).tolist(), self.ranks)

    def _find_groups(self, dataset: Dataset, columns: list[str]) -> tuple[list[Runs], Sequence[tuple[str, ...]]]:
        """The rows to sample from, by language, and the languages."""
        return rows_by_language(dataset, columns)

    def _streams(self) -> LanguageStreams:
        return LanguageStreams(
            self.groups,
            language_smoothing=self.language_smoothing,
            language_mixing=self.language_mixing,
            seed=[self.seed or 0, self.epoch],
        )


class WindowBatchSampler(LanguageBatchSampler):
    """Batches of windows (CCP, Algorithm 1): N centre sentences, followed by one context sentence of each.

    The data set has a row per sentence, and the rows of a document are contiguous and in order (columns `language`,
    `document`), as [`load_documents`][st_xlret.load_documents] gives them. A batch of `batch_size` windows has
    `2 * batch_size` rows. In every epoch the centres come in a new order and their contexts are drawn anew. Documents
    of one sentence have no context, so they are left out.

    Of a document, 8 bytes are held: where it begins. They are mapped from a file without a name, in the cache of
    `datasets`, if they are more than 4 MB.

    Args:
        dataset: Sentences in document order.
        batch_size: Windows per batch, in each process.
        window_size: Largest distance of a context sentence from its centre (w in the paper).
        language_mixing: 0: a batch is of one language (as in the paper). 1: its languages are fully mixed.
        language_smoothing: Languages are sampled in proportion to their size raised to this power.
        drop_last: Ignored: all batches are full.
        valid_label_columns: Ignored.
        generator: Ignored: batches depend on the seed and the epoch only, so a resumed run repeats them.
        seed: Seed.

    Raises:
        ValueError: If no document has two sentences, the rows of a document are not contiguous, or `window_size` is
            below 1.

    Example:
        >>> rows = {"sentence": list("abcdef"), "language": ["en"] * 6, "document": [0, 0, 0, 1, 1, 1]}
        >>> batch = next(iter(WindowBatchSampler(Dataset.from_dict(rows), batch_size=3)))
        >>> [a // 3 == b // 3 and a != b for a, b in zip(batch[:3], batch[3:])]
        [True, True, True]
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
        window_size: int = 5,
        language_smoothing: float = 0.7,
        language_mixing: float = 0.0,
    ) -> None:
        super().__init__(
            dataset,
            batch_size,
            drop_last,
            valid_label_columns,
            generator,
            seed,
            language_smoothing=language_smoothing,
            language_mixing=language_mixing,
        )
        if window_size < 1:
            raise ValueError(f"window_size must be at least 1, got {window_size}")
        self.window_size = window_size
        # The number of rows: with several processes, batches of another length would be dropped.
        self.batch_size = 2 * batch_size
        if not self.rows:
            raise ValueError("no document has two sentences: there are no windows to draw")
        self._warn_of_small_languages()

    def __iter__(self) -> Iterator[list[int]]:
        streams = self._streams()
        for _ in range(len(self) // self.ranks):
            centres = streams.draw(self.draws)
            contexts = self._draw_contexts(centres, streams.generator)
            sides = (shares(side.tolist(), self.ranks) for side in (centres, contexts))
            yield from ([*own, *neighbours] for own, neighbours in zip(*sides, strict=True))

    def _find_groups(self, dataset: Dataset, columns: list[str]) -> tuple[list[Runs], Sequence[tuple[str, ...]]]:
        """The sentences that have a context; where each document begins is kept for drawing it."""
        scan, starts, runs = DocumentScan(dataset), ScratchList(np.int64, scratch_folder()), RunsByGroup()
        self.documents = Counter[int]()
        for found in scan:
            starts.extend(found.first)
            longer = found.length > 1
            runs.extend(found.first[longer], found.length[longer], found.language[longer])
            self.documents.update(dict(enumerate(np.bincount(found.language[longer]).tolist())))
        starts.extend(np.array([len(dataset)]))
        self.starts = starts.finish()
        return runs.finish(len(scan.languages)), [(language,) for language in scan.languages]

    def _draw_contexts(self, centres: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        document = np.searchsorted(self.starts, centres, side="right")
        low = np.maximum(self.starts[document - 1], centres - self.window_size)
        high = np.minimum(self.starts[document] - 1, centres + self.window_size)
        # One of high - low positions; those from the centre on move up by one.
        context = low + (generator.random(len(centres)) * (high - low)).astype(np.int64)
        return context + (context >= centres)

    def _warn_of_small_languages(self) -> None:
        for number, language in enumerate(self.languages):
            documents = self.documents[number]
            if not documents:
                logger.warning("language %r has no document of two sentences: it gives no windows", language[0])
            elif documents < self.draws and self.language_mixing < 1:
                logger.warning(
                    "language %r has %d documents for batches of %d windows: several windows of a document "
                    "share a batch and are not negatives of each other; lower the batch size or raise "
                    "language_mixing",
                    *(language[0], documents, self.draws),
                )


@dataclass
class CrossLingualBatches:
    """Chooses the batch sampler for each data set of a run.

    Pass it as `batch_sampler` of the training arguments. Data sets with a `document` column give windows (CCP); all
    others give rows (masked language modelling, pairs).

    Args:
        window_size: Largest distance of the two sentences of a window.
        language_smoothing: Languages are sampled in proportion to their size raised to this power, in all data sets.
        language_mixing: 0: a batch of windows is of one language. 1: its languages are fully mixed.
        pairs_language_mixing: The same for all other data sets.

    Example:
        >>> rows = {"source": ["a"], "target": ["b"], "source_language": ["en"], "target_language": ["fr"]}
        >>> next(iter(CrossLingualBatches()(Dataset.from_dict(rows), 2)))
        [0, 0]
    """

    window_size: int = 5
    language_smoothing: float = 0.7
    language_mixing: float = 0.0
    pairs_language_mixing: float = 1.0

    def __call__(self, dataset: Dataset, batch_size: int, *args: Any, **kwargs: Any) -> LanguageBatchSampler:
        """Make the sampler for this data set, with the host's arguments."""
        if "document" in dataset.column_names:
            return WindowBatchSampler(
                dataset,
                batch_size,
                *args,
                **kwargs,
                window_size=self.window_size,
                language_smoothing=self.language_smoothing,
                language_mixing=self.language_mixing,
            )
        return LanguageBatchSampler(
            dataset,
            batch_size,
            *args,
            **kwargs,
            language_smoothing=self.language_smoothing,
            language_mixing=self.pairs_language_mixing,
        )
