"""Scans over the columns of a data set, chunk by chunk: which rows are of which language, which of which document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from st_xlret.data.batches.runs import Runs, RunsByGroup, scratch_folder
from st_xlret.files.scratch import ScratchList

_ROWS_AT_A_TIME = 2**17


class Codes:
    """Numbers the distinct values of some columns, in the order in which they occur."""

    def __init__(self, columns: int) -> None:
        self._values: list[dict[str, int]] = [{} for _ in range(columns)]
        self._numbers: dict[tuple[str, ...], int] = {}

    def of(self, columns: Sequence[pa.ChunkedArray]) -> np.ndarray:
        """The number of each row of a chunk (rows,)."""
        code = np.zeros(len(columns[0]), dtype=np.int64)
        names: list[tuple[str, ...]] = [()]
        for known, column in zip(self._values, columns, strict=True):
            encoded = column.combine_chunks().dictionary_encode()
            values = encoded.dictionary.to_pylist()
            for value in values:
                known.setdefault(value, len(known))
            code = code * len(values) + encoded.indices.to_numpy()
            names = [(*name, value) for name, value in product(names, values)]
        present = np.flatnonzero(np.bincount(code, minlength=len(names)))
        numbers = np.zeros(len(names), dtype=np.int32)
        numbers[present] = [self._numbers.setdefault(names[i], len(self._numbers)) for i in present]
        return numbers[code]

    def order(self) -> list[tuple[str, ...]]:
        """The values of all numbers, sorted by where the first column's first occurs, then the second's and so on."""
        return sorted(
            self._numbers, key=lambda name: [known[value] for known, value in zip(self._values, name, strict=True)]
        )

    def numbers(self) -> list[int]:
        """The numbers in that order."""
        return [self._numbers[name] for name in self.order()]


def rows_by_language(dataset: Dataset, columns: list[str]) -> tuple[list[Runs], list[tuple[str, ...]]]:
    """The rows of each language, or combination of the values of some columns.

    Returns:
        The rows of each, in ascending order, and their values.

    Example:
        >>> groups, names = rows_by_language(Dataset.from_dict({"language": ["en", "fr", "en"]}), ["language"])
        >>> [group[np.arange(len(group))].tolist() for group in groups], names
        ([[0, 2], [1]], [('en',), ('fr',)])
    """
    codes, runs = Codes(len(columns)), RunsByGroup()
    for begin, table in _chunks(dataset, columns):
        code = codes.of([table[name] for name in columns])
        first = _first_of_each_run(code)
        runs.extend(begin + first, np.diff(np.append(first, len(code))), code[first])
    groups = runs.finish(len(codes.order()))
    return [groups[number] for number in codes.numbers()], codes.order()


class FoundDocuments(NamedTuple):
    """Some consecutive documents.

    Attributes:
        numbers: Number of each document, from 0 in the order of the rows (D,).
        first: Its first row, counted without those that are left out (D,).
        length: Its rows (D,).
        language: Number of its language (D,).
    """

    numbers: np.ndarray
    first: np.ndarray
    length: np.ndarray
    language: np.ndarray


class DocumentScan:
    """One pass over a data set with a row per sentence, which finds its documents.

    The language of a document is that of its first row.

    Args:
        dataset: Rows with `language` and `document`, those of a document together.
        skip_empty: Leave out rows without text in the column `sentence`.

    Attributes:
        rows: The rows that are not left out. Known after the pass, like all that follow.
        languages: The languages of all rows, in the order in which they occur.

    Raises:
        ValueError: In the pass, if the rows of a document are not contiguous.

    Example:
        >>> rows = {"language": ["en", "en", "fr"], "document": [7, 7, 9]}
        >>> scan = DocumentScan(Dataset.from_dict(rows))
        >>> [length for found in scan for length in found.length.tolist()], scan.languages
        ([2, 1], ['en', 'fr'])
    """

    def __init__(self, dataset: Dataset, *, skip_empty: bool = False) -> None:
        self.dataset, self.skip_empty = dataset, skip_empty
        self.rows = Runs(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        self.languages: list[str] = []

    def __iter__(self) -> Iterator[FoundDocuments]:
        """The documents, some at a time."""
        codes, kept, names = Codes(1), RunsByGroup(), ScratchList(np.int64, scratch_folder())
        ascending, total, documents = True, 0, 0
        # The last document of a chunk goes on in the next one.
        last: tuple[int, int, int] | None = None  # its name, first row and language
        columns = ["language", "document", *(["sentence"] if self.skip_empty else [])]
        for begin, table in _chunks(self.dataset, columns):
            code, name = codes.of([table["language"]]), table["document"].to_numpy()
            if self.skip_empty:
                filled = pc.greater(pc.binary_length(table["sentence"]), 0).fill_null(False).to_numpy()
                first = _first_of_each_run(filled)
                first, length = first[filled[first]], np.diff(np.append(first, len(filled)))[filled[first]]
                kept.extend(begin + first, length, np.zeros(len(first), dtype=np.int32))
                code, name = code[filled], name[filled]
            if not len(name):
                continue
            start = _first_of_each_run(name)
            names_here, first, language = name[start], total + start, code[start]
            total += len(name)
            if last is not None:
                if last[0] == names_here[0]:
                    names_here, first, language = names_here[1:], first[1:], language[1:]
                names_here, first, language = (
                    np.concatenate([[value], rest])
                    for value, rest in zip(last, (names_here, first, language), strict=True)
                )
            ascending = ascending and bool((np.diff(names_here) > 0).all())
            last = (names_here[-1], first[-1], language[-1])
            names.extend(names_here[:-1])
            if len(first) > 1:
                yield _found(documents, first, language)
                documents += len(first) - 1
        if last is not None:
            names.extend(np.array(last[:1]))
            yield _found(documents, np.array([last[1], total]), np.array([last[2], 0]))
        if not ascending and len(np.unique(all_names := names.finish())) != len(all_names):
            raise ValueError("the sentences of a document must be contiguous: sort the data set by document")
        self.rows = kept.finish(1)[0] if self.skip_empty else Runs(np.array([0]), np.array([total]))
        self.languages = [name for (name,) in codes.order()]


def _found(documents: int, first: np.ndarray, language: np.ndarray) -> FoundDocuments:
    numbers = documents + np.arange(len(first) - 1)
    return FoundDocuments(numbers, first[:-1], np.diff(first), language[:-1].astype(np.int32))


def _chunks(dataset: Dataset, columns: list[str]) -> Iterator[tuple[int, pa.Table]]:
    rows = dataset.with_format("arrow", columns=columns)
    for begin in range(0, len(dataset), _ROWS_AT_A_TIME):
        yield begin, rows[begin : begin + _ROWS_AT_A_TIME]


def _first_of_each_run(values: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
