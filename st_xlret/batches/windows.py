"""Batches of sentence windows, drawn afresh every epoch (CCP)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from datasets import Dataset

from st_xlret.batches.rows import LanguageBatchSampler
from st_xlret.batches.sampling import BatchFactory, find_documents, shares

logger = logging.getLogger(__name__)


class WindowBatchSampler(LanguageBatchSampler):
    """The sampler of [`Windows`][st_xlret.batches.Windows]: N centre sentences, then one context sentence of each."""

    def __init__(self, dataset: Dataset, batch_size: int, options: Windows, *, seed: int = 0) -> None:
        if options.window_size < 1:
            raise ValueError(f"window_size must be at least 1, got {options.window_size}")
        super().__init__(dataset, batch_size, options, seed=seed)
        # The number of rows: with several processes, batches of another length would be dropped.
        self.batch_size = 2 * batch_size
        if not sum(map(len, self.groups)):
            raise ValueError("no document has two sentences: there are no windows to draw")
        for language, documents in zip(self.languages, self.counts, strict=True):
            if not documents:
                logger.warning("language %r has no document of two sentences: it gives no windows", language[0])
            elif documents < self.draws and options.language_mixing < 1:
                logger.warning(
                    "language %r has %d documents for batches of %d windows: several windows of a document share a "
                    "batch and are not negatives of each other; lower the batch size or raise language_mixing",
                    *(language[0], documents, self.draws),
                )

    def __iter__(self) -> Iterator[list[int]]:
        streams = self.streams()
        for _ in range(len(self) // self.ranks):
            centres = streams.draw(self.draws)
            contexts = self._draw_contexts(centres, streams.generator)
            sides = (shares(side, self.ranks) for side in (centres, contexts))
            yield from ([*own, *neighbours] for own, neighbours in zip(*sides, strict=True))

    def find_groups(self, dataset: Dataset, columns: list[str]) -> tuple[list[np.ndarray], list[tuple[str, ...]]]:
        """The sentences that have a context, by language; where each document begins is kept for drawing it."""
        found = find_documents(dataset)
        self.starts = found.starts
        longer = found.lengths > 1
        self.counts = np.bincount(found.language[longer], minlength=len(found.languages)).tolist()
        of_row = np.repeat(np.where(longer, found.language, -1), found.lengths)
        return [np.flatnonzero(of_row == n) for n in range(len(found.languages))], [(name,) for name in found.languages]

    def _draw_contexts(self, centres: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        document = np.searchsorted(self.starts, centres, side="right")
        low = np.maximum(self.starts[document - 1], centres - self.options.window_size)
        high = np.minimum(self.starts[document] - 1, centres + self.options.window_size)
        # One of high - low positions; those from the centre on move up by one.
        context = low + (generator.random(len(centres)) * (high - low)).astype(np.int64)
        return context + (context >= centres)


@dataclass(frozen=True)
class Windows(BatchFactory):
    """Batches of windows (CCP, Algorithm 1). Pass it as `batches` of `CCPLoss`, or as `batch_sampler`.

    The data set has a row per sentence, and the rows of a document are contiguous and in order (columns `language`,
    `document`), as [`load_documents`][st_xlret.load_documents] gives them. A batch of N windows has 2 N rows: the
    centres, then the context of each. In every epoch the centres come in a new order and their contexts are drawn anew.
    Documents of one sentence have no context and are left out.

    Rows of a data set without a `document` column are windows already: centre and context are its two text columns.

    Args:
        window_size: Largest distance of a context sentence from its centre (w in the paper).
        language_smoothing: Languages are sampled in proportion to their size raised to this power.
        language_mixing: 0: a batch is of one language (as in the paper). 1: its languages are fully mixed.

    Raises:
        ValueError: If no document has two sentences, the rows of a document are not contiguous, or `window_size` is
            below 1.

    Example:
        >>> rows = {"sentence": list("abcdef"), "language": ["en"] * 6, "document": [0, 0, 0, 1, 1, 1]}
        >>> batch = next(iter(Windows()(Dataset.from_dict(rows), 3)))
        >>> [a // 3 == b // 3 and a != b for a, b in zip(batch[:3], batch[3:])]
        [True, True, True]
    """

    window_size: int = 5
    language_smoothing: float = 0.7
    language_mixing: float = 0.0

    def make(self, dataset: Dataset, batch_size: int, *, drop_last: bool, seed: int) -> LanguageBatchSampler:
        """Make the sampler for this data set."""
        sampler = WindowBatchSampler if "document" in dataset.column_names else LanguageBatchSampler
        return sampler(dataset, batch_size, self, seed=seed)
