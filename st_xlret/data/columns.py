"""The distinct values of columns, and the rows of each of them."""

from __future__ import annotations

import numpy as np
from datasets import Dataset


def column_codes(dataset: Dataset, columns: list[str]) -> tuple[np.ndarray, list[tuple[str, ...]]]:
    """A code for each row (rows,) by the values of some columns, and the values of each code."""
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


def rows_by_value(dataset: Dataset, columns: list[str]) -> tuple[list[np.ndarray], list[tuple[str, ...]]]:
    """The rows of each combination of the values of some columns, in ascending order, and these values."""
    code, names = column_codes(dataset, columns)
    # Small integers are sorted by their digits.
    order = np.argsort(code.astype(np.int16) if len(names) < 2**15 else code, kind="stable")
    return np.split(order, np.cumsum(np.bincount(code, minlength=len(names)))[:-1]), names
