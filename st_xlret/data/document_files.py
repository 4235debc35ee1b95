"""A reader of each format of documents: files to records."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import pyarrow as pa
import pyarrow.parquet as pq

from st_xlret.data import reading
from st_xlret.data.cells import read_tabbed_table, read_table
from st_xlret.data.reading import BadLines, DataError
from st_xlret.field_names import find_fields, problem_with_names
from st_xlret.folders import unpacked_name
from st_xlret.languages import LABEL_FIELDS, check_named_language

Records: TypeAlias = Iterable[tuple[int, Any]]
"""Records with the numbers of their last lines."""
_Format: TypeAlias = Literal["jsonl", "json", "parquet", "tsv", "csv", "txt", "md"]

TEXT_FIELDS = ("sentences", "text", "sentence", "content", "page_content")
_FACTS = ("title", "id", "metadata")
PARAGRAPHS = "paragraphs"
"""The field of the texts of text files."""
FORMATS = (
    'JSON lines such as {"language": "fr", "sentences": [...]} or {"language": "fr", "text": "..."}'
    " (.jsonl, .json, WikiExtractor's wiki_00), the same columns in Parquet files and tables (.tsv,"
    " .csv), BEIR folders, text (.txt: a line is a paragraph, a blank line ends a document) and"
    " Markdown (.md); all but Parquet may be compressed"
)

_ENDING = re.compile(r"(?:\.((?i:jsonl|json|parquet|tsv|csv|txt|md))|(?<=/wiki)_\d+)$")


def _format_of(file: Path) -> _Format | None:
    """The format of a file by its name; None if documents are not read from such files."""
    unpacked = file.with_name(unpacked_name(file))
    match = _ENDING.search(unpacked.as_posix())
    if not match:
        return None
    return cast(_Format, (match[1] or "jsonl").lower())


def is_text_file(file: Path) -> bool:
    """Whether a file has text without fields."""
    return _format_of(file) in ("txt", "md")


def language_in_name_or_none(file: Path) -> str | None:
    """The language that a text file is named after, or None.

    That of `zh-Hans.txt.xz` is `zh`, and of `hi_rom.txt` it is `hi-latn`.
    """
    name = file.name.partition(".")[0]
    with suppress(ValueError):
        return check_named_language(re.sub(r"_rom$", "-latn", name), file)
    return None


def field_names(file: Path) -> list[str]:
    """The fields of the records of a file, those of the first one where each has its own."""
    kind = _format_of(file)
    if kind == "parquet":
        try:
            return list(pq.read_schema(file).names)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"no Parquet file that can be read ({error})", file) from error
    if kind in ("tsv", "csv"):
        for _, cells in _table_rows(file, BadLines(skip=True)):
            return cells
        return []
    if kind in ("jsonl", "json"):
        record = reading.first_record(file)
        if record or kind == "json":
            return list(record)
        return list(TEXT_FIELDS)  # reading it says that all lines are bad
    return []


def read_records(file: Path, column: str | None, bad_lines: BadLines) -> Iterator[tuple[int, Any]]:
    """Stream the records of a file; `column` may be the number of a column of a table."""
    kind = _format_of(file)
    if kind == "parquet":
        yield from _parquet_records(file)
    elif kind in ("tsv", "csv"):
        yield from _table_records(file, column, bad_lines)
    elif kind in ("txt", "md"):
        yield from _text_file_records(file, bad_lines)
    elif kind in ("jsonl", "json"):
        yield from reading.read_jsonl(file, bad_lines)
    else:
        raise DataError(f"in no format of documents, which are {FORMATS}", file)


def _parquet_records(file: Path) -> Iterator[tuple[int, Any]]:
    """The rows of a table, counted from 1."""
    number = 0
    try:
        for batch in pq.ParquetFile(file).iter_batches(1_000):
            names = list(dict.fromkeys(batch.schema.names))
            for row in batch.select(names).to_pylist():  # refuses a name that stands twice
                number += 1
                yield number, row
    except (OSError, KeyError, pa.ArrowException) as error:
        raise DataError(f"no Parquet file that can be read ({error})", file) from error


def _table_records(
    file: Path, column: str | None, bad_lines: BadLines
) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows under the names of the first one; a column is chosen by its number without names."""
    rows = _table_rows(file, bad_lines)
    if column is not None and column.isdecimal():
        for number, cells in rows:
            numbers = map(str, range(1, len(cells) + 1))
            yield number, dict(zip(numbers, cells, strict=True))
        return
    _, names = next(rows, (0, []))
    _refuse_names_that_stand_twice(names, column, file)
    for number, cells in rows:
        if len(cells) > len(names):
            counts = f"{len(cells)} cells under {len(names)} names"
            bad_lines(f"{counts}, so a text may be cut in two", file, number)
            continue
        if len(cells) < len(names) and "".join(cells).count('"') % 2:
            counts = f"{len(cells)} cells under {len(names)} names"
            bad_lines(f"{counts} and an open quote, so a text may be cut in two", file, number)
            continue
        yield number, dict(zip(names, cells, strict=False))


def _refuse_names_that_stand_twice(names: list[str], column: str | None, file: Path) -> None:
    """One of the columns would be lost."""
    read = [*LABEL_FIELDS, *_FACTS]
    if column is None:
        read += TEXT_FIELDS
    elif column not in names:
        read.append(column)
    for name in read:
        alike = find_fields(names, [name])
        if len(alike) > 1:
            raise DataError(problem_with_names(alike), file, 1)
    if column is not None and names.count(column) > 1:
        raise DataError(problem_with_names([column, column]), file, 1)


def _table_rows(file: Path, bad_lines: BadLines) -> Iterator[tuple[int, list[str]]]:
    if _format_of(file) == "tsv":
        return read_tabbed_table(file, bad_lines)
    return read_table(file, bad_lines)


def _text_file_records(file: Path, bad_lines: BadLines) -> Iterator[tuple[int, Any]]:
    """The runs of lines between blank lines; those of Markdown are one paragraph each."""
    language = language_in_name_or_none(file)
    is_markdown = _format_of(file) == "md"
    lines: list[str] = []
    last = 0
    for number, line in chain(reading.read_lines(file, bad_lines), [(0, "")]):
        if lines and number != last + 1:
            paragraphs = [" ".join(lines)] if is_markdown else lines
            yield last, {"language": language, PARAGRAPHS: paragraphs}
            lines = []
        lines.append(line)
        last = number
