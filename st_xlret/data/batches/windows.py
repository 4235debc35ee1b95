"""Batches of sentence windows, drawn afresh every epoch."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler

from st_xlret.data.batches.sampling import LanguageStreams, column_codes, rows_by_code

logger = logging.getLogger(__name__)


class LanguageBatchSampler(DefaultBatchSampler):
    """Batches of rows, languages sampled with exponent smoothing.

    Rows are grouped by every column named ``language`` or ``*_language``: a language, or a language pair. An
    epoch has as many rows as the dataset; with smoothing, small languages come more often and large ones
    less.

    Args:
        dataset: Rows with a language column.
        batch_size: Rows per batch.
        drop_last: Ignored: all batches are full.
        valid_label_columns: Ignored.
        generator: Ignored: batches depend on seed and epoch alone, which makes resuming exact.
        seed: Seed.
        language_smoothing: Exponent of the smoothing, see :func:`~st_xlret.data.smoothed_probabilities`.
        language_mixing: 0 for batches of one language (pair), 1 for fully mixed ones.

    Raises:
        ValueError: If the dataset is empty or has no language column.
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
        self.draws = batch_size
        names = [name for name in dataset.column_names if name == "language" or name.endswith("_language")]
        if not names:
            raise ValueError(f"a 'language' column is needed to sample languages, got {dataset.column_names}")
        if not len(dataset):
            raise ValueError("the dataset is empty: there is nothing to sample")
        code, self.languages = column_codes(dataset, names)
        self.groups = rows_by_code(code, len(self.languages))
        self.language_smoothing, self.language_mixing = language_smoothing, language_mixing

    @property
    def rows(self) -> int:
        """Rows that are drawn from."""
        return sum(len(group) for group in self.groups)

    def __len__(self) -> int:
        return max(1, self.rows // self.draws)

    def __iter__(self) -> Iterator[list[int]]:
        streams = self._streams()
        for _ in range(len(self)):
            yield streams.draw(self.draws).tolist()

    def _streams(self) -> LanguageStreams:
        return LanguageStreams(
            self.groups,
            language_smoothing=self.language_smoothing,
            language_mixing=self.language_mixing,
            seed=[self.seed or 0, self.epoch],
        )


class WindowBatchSampler(LanguageBatchSampler):
    """Batches of windows (CCP, Algorithm 1): N centre sentences, then one sentence of the context of each.

    The dataset has a row per sentence, rows of a document together and in order (columns ``language``,
    ``document``), as :func:`~st_xlret.data.load_documents` makes it. A batch of ``batch_size`` windows is ``2
    * batch_size`` rows. Centres come in a new order every epoch and their contexts are drawn anew. Sentences
    of one-sentence documents have no context and are never drawn.

    Args:
        dataset: Sentences in document order.
        batch_size: Windows per batch.
        window_size: Largest distance of a context sentence from its centre (the paper's window w).
        language_mixing: 0 for batches of one language (the paper's), 1 for fully mixed ones.
        drop_last: Ignored: all batches are full.
        valid_label_columns: Ignored.
        generator: Ignored: batches depend on seed and epoch alone.
        seed: Seed.
        language_smoothing: Exponent of the language smoothing.

    Raises:
        ValueError: If no document has two sentences, a document's rows are not together, or the window_size is
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
        # Rows of a batch: with several processes, batches of another length than this would be dropped.
        self.batch_size = 2 * batch_size
        document = dataset.with_format("numpy", columns=["document"])[:]["document"]
        borders = np.flatnonzero(np.diff(document)) + 1
        starts = np.concatenate([[0], borders])
        if len(np.unique(document)) != len(starts):
            raise ValueError("the sentences of a document must stand together: sort the dataset by document")
        lengths = np.diff(np.append(starts, len(document)))
        self.first = np.repeat(starts, lengths)
        self.last = np.repeat(starts + lengths - 1, lengths)
        self.groups = [group[self.first[group] < self.last[group]] for group in self.groups]
        if not self.rows:
            raise ValueError("no document has two sentences: there are no windows to draw")
        self._warn_of_small_languages()

    def __iter__(self) -> Iterator[list[int]]:
        streams = self._streams()
        for _ in range(len(self)):
            centres = streams.draw(self.draws)
            yield [*centres.tolist(), *self._draw_contexts(centres, streams.generator).tolist()]

    def _draw_contexts(self, centres: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        low = np.maximum(self.first[centres], centres - self.window_size)
        high = np.minimum(self.last[centres], centres + self.window_size)
        # One of high - low places; those from the centre on move up by one.
        context = low + (generator.random(len(centres)) * (high - low)).astype(np.int64)
        return context + (context >= centres)

    def _warn_of_small_languages(self) -> None:
        for language, group in zip(self.languages, self.groups, strict=True):
            documents = len(np.unique(self.first[group]))
            if not documents:
                logger.warning("language %r has no document of two sentences: it gives no windows", language[0])
            elif documents < self.draws and self.language_mixing < 1:
                logger.warning(
                    "language %r has %d documents for batches of %d windows: several windows of a document "
                    "share a batch and are no negatives of each other; lower the batch size or raise "
                    "the language_mixing",
                    *(language[0], documents, self.draws),
                )


@dataclass
class CrossLingualBatches:
    """Picks a batch sampler for each dataset of a run.

    Pass it as ``batch_sampler`` of the training arguments.
    Datasets with a ``document`` column give windows (CCP), others rows (MLM, pairs).

    Args:
        window_size: See :class:`WindowBatchSampler`.
        language_smoothing: Exponent of the language smoothing, for all datasets.
        language_mixing: Language language_mixing of the windows.
        pairs_language_mixing: Language language_mixing of other datasets.

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
        """The sampler for this dataset, with the host's arguments."""
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
