"""Languages, their rows and their documents, and how batches draw from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler

from st_xlret.data.columns import column_codes

REPEAT = 1_000_003
"""Added to the seed of a sampler for each further pass within an epoch: passes differ, and the epoch is true."""


def smoothed_probabilities(sizes: np.ndarray, language_smoothing: float) -> np.ndarray:
    """Compute sampling probabilities proportional to `size ** language_smoothing`.

    Args:
        sizes: Rows per language (L,).
        language_smoothing: 1 samples languages in proportion to their size, 0 samples all equally often. Values of 0.3
            to 0.7 are common (XLM-R: Conneau et al., 2020, section 3.1).

    Returns:
        Probabilities (L,), which sum to 1.

    Raises:
        ValueError: If `language_smoothing` is outside [0, 1].

    Example:
        >>> smoothed_probabilities(np.array([100, 1]), 0.5).round(3).tolist()
        [0.909, 0.091]
    """
    if not 0 <= language_smoothing <= 1:
        raise ValueError(f"language_smoothing must lie in [0, 1], got {language_smoothing}")
    powers = np.asarray(sizes, dtype=np.float64) ** language_smoothing
    return powers / powers.sum()


class LanguageStreams:
    """Endless shuffled streams of rows, one per language, sampled with smoothed probabilities.

    The rows of a language come in a random order, each once before any comes again, and then in a new order.
    """

    def __init__(
        self, groups: Sequence[np.ndarray], *, language_smoothing: float, language_mixing: float, seed: Sequence[int]
    ) -> None:
        if not 0 <= language_mixing <= 1:
            raise ValueError(f"language_mixing must lie in [0, 1], got {language_mixing}")
        self.groups = [group for group in groups if len(group)]
        if not self.groups:
            raise ValueError("there are no rows to sample from")
        self.probabilities = smoothed_probabilities(np.array([len(group) for group in self.groups]), language_smoothing)
        self.language_mixing = language_mixing
        self.generator = np.random.default_rng(seed)
        self._orders = [np.empty(0, dtype=np.int64) for _ in self.groups]

    def draw(self, rows: int) -> np.ndarray:
        """Draw the rows of the next batch (rows,)."""
        chosen = np.full(rows, self.generator.choice(len(self.groups), p=self.probabilities))
        if self.language_mixing:
            leaves = self.generator.random(rows) < self.language_mixing
            others = self.generator.choice(len(self.groups), size=rows, p=self.probabilities)
            chosen = np.where(leaves, others, chosen)
        result = np.empty(rows, dtype=np.int64)
        for group in np.unique(chosen):
            places = np.flatnonzero(chosen == group)
            result[places] = self.take(int(group), len(places))
        return result

    def take(self, group: int, rows: int) -> np.ndarray:
        """The next rows of one language (rows,)."""
        parts = [self._orders[group][:rows]]
        self._orders[group] = self._orders[group][rows:]
        while (missing := rows - sum(map(len, parts))) > 0:
            order = self.generator.permutation(len(self.groups[group]))
            parts.append(order[:missing])
            self._orders[group] = order[missing:]
        return self.groups[group][np.concatenate(parts)]


def shares(rows: Sequence[int] | np.ndarray, ranks: int) -> Iterator[list[int]]:
    """Cut the rows of a batch into one equal share for each process of a distributed run, in their order.

    A sampler that draws the batch of all processes together, and yields their shares one after the other, draws the
    same batches for any number of processes: accelerate hands the first share to the first process, and so on.

    Example:
        >>> list(shares([5, 6, 7, 8], 2))
        [[5, 6], [7, 8]]
    """
    size = len(rows) // ranks
    for rank in range(ranks):
        yield np.asarray(rows[rank * size : (rank + 1) * size]).tolist()


@dataclass(frozen=True)
class Documents:
    """The documents of a data set with a row per sentence."""

    rows: np.ndarray
    starts: np.ndarray
    language: np.ndarray
    languages: list[str]

    @property
    def lengths(self) -> np.ndarray:
        """Rows of each document (D,)."""
        return np.diff(self.starts)


def find_documents(dataset: Dataset, *, skip_empty: bool = False) -> Documents:
    """Find the documents of a data set with `language` and `document`, whose rows stand together.

    Example:
        >>> found = find_documents(Dataset.from_dict({"language": ["en", "en", "fr"], "document": ["a", "a", "b"]}))
        >>> found.lengths.tolist(), found.languages
        ([2, 1], ['en', 'fr'])
    """
    code, names = column_codes(dataset, ["language"] if "language" in dataset.column_names else [])
    table: Any = dataset.with_format("arrow")[:]  # mapped, not read
    rows = np.arange(len(dataset))
    if skip_empty:
        filled = pc.greater(pc.binary_length(table["sentence"]), 0).fill_null(False)
        rows = np.flatnonzero(filled.to_numpy())
    numbered = pa.types.is_integer(table["document"].type)
    document = table["document"].to_numpy() if numbered else column_codes(dataset, ["document"])[0]
    document = document[rows]
    first = np.flatnonzero(np.diff(document, prepend=document[:1] - 1))
    if len(np.unique(document[first])) != len(first):
        raise ValueError("the sentences of a document must be contiguous: sort the data set by document")
    return Documents(rows, np.append(first, len(rows)), code[rows][first], [" ".join(name) for name in names])


def check_dataset(dataset: Any) -> None:
    """Refuse data sets of other kinds, such as an `IterableDataset`."""
    if not isinstance(dataset, Dataset):
        raise ValueError(
            "batches are drawn from a Dataset, which is mapped from a file and not held in memory, got "
            f"{type(dataset).__name__}: make one with Dataset.from_generator(...)"
        )


class BatchFactory:
    """Base of the factories of batches: it has the signature that the host calls as `batch_sampler`."""

    def make(self, dataset: Dataset, batch_size: int, *, drop_last: bool, seed: int) -> DefaultBatchSampler:
        """Make the sampler for this data set."""
        raise NotImplementedError

    def __call__(
        self,
        dataset: Dataset,
        batch_size: int,
        drop_last: bool = True,
        valid_label_columns: list[str] | None = None,
        generator: Any = None,
        seed: int | None = 0,
    ) -> DefaultBatchSampler:
        """Make the sampler for this data set, with the host's arguments. Batches depend on the seed and the epoch only.

        Raises:
            ValueError: If the data set is no `Dataset`, or as the sampler says.
        """
        check_dataset(dataset)
        return self.make(dataset, batch_size, drop_last=drop_last, seed=seed or 0)
