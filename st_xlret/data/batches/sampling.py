"""Sampling languages and their rows, for all batch samplers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from datasets import Dataset

from st_xlret.data.batches.shuffling import Shuffle

_AT_A_TIME = 2**12


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


def choices(generator: np.random.Generator, probabilities: np.ndarray, count: int) -> Iterator[int]:
    """Draw numbers with these probabilities, as `generator.choice` does, without holding all of them.

    Example:
        >>> list(choices(np.random.default_rng(0), np.array([0.0, 1.0]), 3))
        [1, 1, 1]
    """
    for begin in range(0, count, _AT_A_TIME):
        size = min(_AT_A_TIME, count - begin)
        yield from generator.choice(len(probabilities), size=size, p=probabilities).tolist()


class Numbers(Protocol):
    """Numbers of rows or documents, indexed by their place among all of them: an array, or `Runs`."""

    def __len__(self) -> int: ...

    def __getitem__(self, places: np.ndarray, /) -> np.ndarray: ...


class LanguageStreams:
    """Endless shuffled streams of rows, one per language, sampled with smoothed probabilities.

    The rows of a language come in a random order, each once before any comes again, and then in a new order.

    Args:
        groups: Rows of each language, as arrays or `Runs`.
        language_smoothing: Languages are sampled in proportion to their size raised to this power.
        language_mixing: 0: all rows of a batch are of one language. 1: the language of each row is drawn on its own.
            In between, each row leaves the language of its batch with this probability.
        seed: Seed, any sequence of integers.

    Raises:
        ValueError: If `language_mixing` is outside [0, 1], or there are no rows.
    """

    def __init__(
        self, groups: Sequence[Numbers], *, language_smoothing: float, language_mixing: float, seed: list[int]
    ) -> None:
        if not 0 <= language_mixing <= 1:
            raise ValueError(f"language_mixing must lie in [0, 1], got {language_mixing}")
        if not sum(len(group) for group in groups):
            raise ValueError("there are no rows to sample from")
        self.groups = [group for group in groups if len(group)]
        self.probabilities = smoothed_probabilities(np.array([len(group) for group in self.groups]), language_smoothing)
        self.language_mixing = language_mixing
        self.generator = np.random.default_rng(seed)
        self._passes: list[Shuffle | None] = [None for _ in self.groups]
        self._taken = [0 for _ in self.groups]

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
        parts = []
        while rows:
            order, begin = self._passes[group], self._taken[group]
            if order is None or begin == len(order):
                order, begin = Shuffle(len(self.groups[group]), self.generator), 0
                self._passes[group] = order
            end = min(begin + rows, len(order))
            parts.append(order[np.arange(begin, end)])
            self._taken[group], rows = end, rows - (end - begin)
        return self.groups[group][np.concatenate(parts)]


def shares(rows: Sequence[int], ranks: int) -> Iterator[list[int]]:
    """Cut the rows of a batch into one equal share for each process of a distributed run, in their order.

    A sampler that draws the batch of all processes together, and yields their shares one after the other, draws the
    same batches for any number of processes: accelerate hands the first share to the first process, and so on.

    Args:
        rows: Rows of the batch of all processes. Their number is a multiple of `ranks`.
        ranks: Number of processes.

    Example:
        >>> list(shares([5, 6, 7, 8], 2))
        [[5, 6], [7, 8]]
    """
    size = len(rows) // ranks
    for rank in range(ranks):
        yield list(rows[rank * size : (rank + 1) * size])


def column_codes(dataset: Dataset, columns: list[str]) -> tuple[np.ndarray, list[tuple[str, ...]]]:
    """Number the distinct values of some columns.

    Returns:
        A code for each row (rows,), and the values of each code.
    """
    code = np.zeros(len(dataset), dtype=np.int64)
    names: list[tuple[str, ...]] = [()]
    for column in columns:
        # Chunk by chunk: the texts of a column of billions of rows do not fit into one array.
        chunks = dataset.with_format("arrow", columns=[column])[:][column].dictionary_encode().chunks
        values = chunks[0].dictionary.to_pylist() if chunks else []
        code *= len(values)
        start = 0
        for chunk in chunks:
            code[start : start + len(chunk)] += chunk.indices.to_numpy()
            start += len(chunk)
        names = [(*name, value) for name in names for value in values]
    # Counting takes less time and memory than sorting.
    present = np.bincount(code, minlength=len(names)) > 0
    code = (np.cumsum(present) - 1)[code]
    return code, [names[i] for i in np.flatnonzero(present)]


def rows_by_code(code: np.ndarray, codes: int) -> list[np.ndarray]:
    """List the rows of each code, in ascending order."""
    # Small integers are sorted by their digits.
    order = np.argsort(code.astype(np.int16) if codes < 2**15 else code, kind="stable")
    return np.split(order, np.cumsum(np.bincount(code, minlength=codes))[:-1])
