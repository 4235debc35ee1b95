"""Texts that the commands are given: lines, a column of a table, a field of JSON lines."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from st_xlret.data.reading.jsonl import DataError, read_jsonl, read_lines, required_field
from st_xlret.data.reading.sources import existing_path

csv.field_size_limit(1 << 24)


def read_texts(file: str, column: str | None = None) -> list[str]:
    """The distinct texts of a file, in their order, without blank ones.

    Args:
        file: Lines of text, `.tsv` or `.csv`, or `.jsonl`; all of them may end in `.gz`.
        column: Of a table, the number of the column, from 1, or its name in the first line; of JSON lines, the field.

    Raises:
        DataError: If there is no such file, it is malformed, holds no text, or has no such column. Names file and line.
    """
    path = existing_path(file)
    ending = "".join(path.suffixes[-2:]).removesuffix(".gz").rpartition(".")[2]
    if ending == "jsonl":
        found = _of_json_lines(path, column or "text")
    elif ending in ("tsv", "csv"):
        found = _of_table(path, column or "1", "\t" if ending == "tsv" else ",")
    elif column is not None:
        raise DataError(f"a column ({column!r}) needs a table (.tsv, .csv) or JSON lines (.jsonl)", file=file)
    else:
        found = (text for _, text in read_lines(path))
    texts = list(dict.fromkeys(text for text in map(str.strip, found) if text))
    if not texts:
        raise DataError("the file holds no text", file=file)
    return texts


def _of_json_lines(path: Path, field: str) -> Iterator[str]:
    for line, record in read_jsonl(path):
        try:
            yield required_field(record, field, str)
        except ValueError as error:
            raise DataError(f"{error}; the field is chosen by --column", file=str(path), line=line) from error


def _of_table(path: Path, column: str, delimiter: str) -> Iterator[str]:
    place = int(column) - 1 if column.isdigit() else None
    rows = csv.reader(
        (text for _, text in read_lines(path)),
        delimiter=delimiter,
        quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
    )
    for number, row in enumerate(rows, 1):
        if place is None:
            if column not in row:
                raise DataError(f"no column is named {column!r}; there are: {', '.join(row)}", file=str(path), line=1)
            place = row.index(column)
            continue
        if not 0 <= place < len(row):
            raise DataError(f"there is no column {place + 1} of {len(row)}", file=str(path), line=number)
        yield row[place]
