"""The documents of a data set: their rows, in order."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from st_xlret.batches.languages import check_languages_of_rows
from st_xlret.columns import Declared, check_complete


class DocumentRows(NamedTuple):
    """The rows of documents in order, and where each document is among them.

    A place counts in `rows`, a row in the data set: `rows[place]` is the row at a place.

    Attributes:
        rows: Rows of the data set, document after document.
        starts: The place at which each document begins.
        lengths: How many places each document has, one after the other.
        languages: The language of each document, as a number.
    """

    rows: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    languages: np.ndarray

    def long_documents_by_language(self) -> list[np.ndarray]:
        """The numbers of the documents of two sentences or more, by language.

        They count in `starts`, `lengths` and `languages`.
        """
        numbers = np.flatnonzero(self.lengths > 1)
        languages = self.languages[numbers]
        return [numbers[languages == language] for language in np.unique(languages)]


def find_documents(dataset: Dataset, *, skip_empty: bool = False) -> DocumentRows:
    """The documents of a data set, in order of `position` if it has one.

    Args:
        dataset: A row for each sentence.
        skip_empty: Leave out the rows without text.

    Raises:
        ValueError: The rows of a document are in no order, or a value is missing.
    """
    check_languages_of_rows(dataset)
    described = [name for name in ("document", "position") if name in dataset.column_names]
    check_complete(dataset, described)
    table: pa.Table = dataset.with_format("arrow")[:]  # mapped, not read
    rows = np.arange(len(dataset))
    if skip_empty:
        rows = _rows_with_text(table)
    if "position" in table.column_names:
        rows = _sort_by_position(table, rows)
    document = _value_numbers(table, "document")[rows]
    starts = np.flatnonzero(np.diff(document, prepend=document[:1] - 1))
    _check_contiguous(document[starts])
    lengths = np.diff(starts, append=len(rows))
    languages = _value_numbers(table, "language")[rows]
    return DocumentRows(rows, starts, lengths, languages[starts])


def _rows_with_text(table: pa.Table) -> np.ndarray:
    """The numbers of the rows in which no text column is empty, ascending."""
    has_text = np.ones(len(table), dtype=bool)
    for name in Declared(table.column_names).of("text"):
        lengths = pc.binary_length(table[name])
        is_filled = pc.greater(lengths, 0)
        has_text &= is_filled.fill_null(False).to_numpy()
    return np.flatnonzero(has_text)


def _sort_by_position(table: pa.Table, rows: np.ndarray) -> np.ndarray:
    """The rows of each document by their positions, where the first of them stood.

    A `ValueError` refuses two rows at one position of a document.
    """
    document = _value_numbers(table, "document")[rows]
    position = table["position"].cast(pa.int64()).to_numpy()[rows]
    _, first_rows, number = np.unique(document, return_index=True, return_inverse=True)
    order = np.lexsort((position, first_rows[number]))
    is_same_position = np.diff(position[order]) == 0
    is_same_document = np.diff(document[order]) == 0
    if (is_same_position & is_same_document).any():
        raise ValueError(
            "two rows of a document have one 'position': two documents may have the same id"
        )
    return rows[order]


def _check_contiguous(first_documents: np.ndarray) -> None:
    """Refuse a document that begins twice; `first_documents` has one for each beginning."""
    if len(np.unique(first_documents)) != len(first_documents):
        way_out = "number them first, as by dataset.add_column('position', range(len(dataset)))"
        raise ValueError(
            "the rows of a document must be contiguous and in order, which sorting breaks: "
            f"{way_out}"
        )


def _value_numbers(table: pa.Table, name: str) -> np.ndarray:
    """The values of a column as numbers from 0 on; zeros for a column that is not there."""
    if name not in table.column_names:
        return np.zeros(len(table), dtype=np.int64)
    column = table[name]
    numbers: np.ndarray = pc.index_in(column, value_set=column.unique()).to_numpy()
    return numbers
