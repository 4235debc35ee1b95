"""Runs of consecutive numbers by group, which take no memory for each row or document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import datasets
import numpy as np

from st_xlret.files.scratch import ScratchList, scratch_array

_AT_A_TIME = 2**17


def scratch_folder() -> Path:
    """Where long arrays are kept while a data set is sampled: beside its own tables."""
    return Path(datasets.config.HF_DATASETS_CACHE).expanduser() / "st_xlret"


class Runs:
    """Ascending numbers in runs of consecutive ones, indexed by their place among all of them.

    Args:
        starts: First number of each run (R,).
        ends: How many numbers there are up to the end of each run (R,).

    Example:
        >>> runs = Runs(np.array([3, 10]), np.array([2, 5]))
        >>> len(runs), runs[np.array([0, 1, 2, 4])].tolist()
        (5, [3, 4, 10, 12])
    """

    def __init__(self, starts: np.ndarray, ends: np.ndarray) -> None:
        self.starts, self.ends = starts, ends

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        run = np.searchsorted(self.ends, places, side="right")
        before = np.where(run > 0, self.ends[run - 1], 0)
        return self.starts[run] + (places - before)

    def chunks(self) -> Iterator[np.ndarray]:
        """All numbers, some at a time."""
        for begin in range(0, len(self), _AT_A_TIME):
            yield self[np.arange(begin, min(begin + _AT_A_TIME, len(self)))]


class RunsByGroup:
    """Collects runs of several groups, each in ascending order, as a scan over rows or documents finds them."""

    def __init__(self) -> None:
        folder = scratch_folder()
        self._starts, self._lengths = ScratchList(np.int64, folder), ScratchList(np.int64, folder)
        self._groups = ScratchList(np.int32, folder)

    def extend(self, starts: np.ndarray, lengths: np.ndarray, groups: np.ndarray) -> None:
        """Append runs in ascending order; those that follow each other in one group become one.

        Args:
            starts: First number of each run (R,).
            lengths: Numbers in each run (R,), above 0.
            groups: Group of each run (R,).
        """
        if not len(starts):
            return
        joined = (groups[1:] == groups[:-1]) & (starts[1:] == starts[:-1] + lengths[:-1])
        first = np.flatnonzero(np.concatenate([[True], ~joined]))
        self._starts.extend(starts[first])
        self._lengths.extend(np.add.reduceat(lengths, first))
        self._groups.extend(groups[first])

    def finish(self, groups: int) -> list[Runs]:
        """The runs of each group."""
        starts, lengths, group = self._starts.finish(), self._lengths.finish(), self._groups.finish()
        pieces = [slice(i, i + _AT_A_TIME) for i in range(0, len(group), _AT_A_TIME)]
        counts = sum(
            (np.bincount(group[piece], minlength=groups) for piece in pieces), np.zeros(groups, dtype=np.int64)
        )
        borders = np.concatenate([[0], np.cumsum(counts)])
        sorted_starts = scratch_array(len(group), np.int64, scratch_folder())
        sorted_ends = scratch_array(len(group), np.int64, scratch_folder())
        free, total = borders[:-1].copy(), np.zeros(groups, dtype=np.int64)
        for piece in pieces:
            for number in np.unique(group[piece]):
                chosen = group[piece] == number
                begin, end = free[number], free[number] + int(chosen.sum())
                ends = total[number] + np.cumsum(lengths[piece][chosen])
                sorted_starts[begin:end], sorted_ends[begin:end] = starts[piece][chosen], ends
                free[number], total[number] = end, ends[-1]
        return [
            Runs(sorted_starts[begin:end], sorted_ends[begin:end])
            for begin, end in zip(borders[:-1], borders[1:], strict=True)
        ]
