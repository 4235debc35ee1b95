"""The languages of texts: checked in a data set, and as integers in a batch."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from st_xlret.columns import Declared
from st_xlret.languages import UNKNOWN, check_language, language_to_id


def language_ids(codes: Sequence[object], column: str) -> list[int]:
    """The integers of languages; a ValueError names the column and the row of what is none."""
    ids = []
    for row, code in enumerate(codes):
        language = _language_or_unknown(code, column, row)
        ids.append(language_to_id(language))
    return ids


def _language_or_unknown(value: object, column: str, row: int) -> str:
    """The language of a text in normal form; `und`, the unknown one, stays.

    Raises:
        ValueError: It is no code; the error names column and row.
    """
    if value == UNKNOWN:
        return UNKNOWN
    return check_language(value, where=f"column {column!r}, row {row}")


def check_languages_of_rows(dataset: Dataset) -> set[str]:
    """Check that all rows name languages, and return these.

    A `ValueError` names the column and the row of what is no code.
    """
    languages = set()
    for column in Declared(dataset.column_names).of("language"):
        table = dataset.with_format("arrow", columns=[column])[:]
        values = table[column]
        for value in pc.unique(values).to_pylist():
            row = _first_row_with(value, values)
            language = _language_or_unknown(value, column, row)
            languages.add(language)
    return languages


def _first_row_with(value: object, values: pa.ChunkedArray) -> int:
    """The first row with a value; Arrow finds no missing one by itself."""
    if value is None:
        return pc.index(values.is_null(), True).as_py()
    return values.index(value).as_py()
