"""The formats of documents: which files are in one of them, and a reader for each; all yield records."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from st_xlret.data.beir import is_beir
from st_xlret.data.languages import check_language
from st_xlret.data.lines import BadLines, DataError, read_jsonl, read_lines, read_table
from st_xlret.data.sources import first_record
from st_xlret.data.text import check_characters, clean_text, join_sentences, split_sentences

Unit: TypeAlias = Literal["sentence", "text", "document"]
"""What is read: sentences; texts as they stand (a line of a text file, an element of a list); or whole documents."""

FORMATS = (
    'documents are read from JSON lines (.jsonl, .json) such as {"language": "fr", "sentences": [...]} or {"language": '
    '"fr", "text": "..."} (CCNet: "raw_content"), with the same names from Parquet files and from tables whose first '
    "line has them (.tsv, .csv), from folders in BEIR's layout, and from text (.txt: a line is a paragraph, a blank "
    "line ends a document) and Markdown files (.md); a folder gives its text files only if they are named after their "
    "language, as fr.txt is, or the language is given. All but Parquet may be compressed (.gz, .xz)"
)
TEXT_FIELDS = ("sentences", "text", "sentence", "raw_content", "content")
_ENDING = re.compile(r"\.(jsonl|json|parquet|tsv|csv|txt|md)(\.gz|\.xz)?$")
_PARAGRAPHS = "paragraphs"  # of text files
_ROMANISED = "_rom"  # CC-100's hi_rom.txt.xz and others
_ROWS_AT_A_TIME = 1_000

Records: TypeAlias = Iterator[tuple[int, Mapping[str, Any]]]


def ending(file: str | Path) -> str:
    """The ending of a file in a format of documents, without that of the compression; empty for other files."""
    found = _ENDING.search(os.fspath(file))
    return found[1] if found else ""


def is_in_folder(file: Path, column: str | None, has_language: bool) -> bool | None:
    """Whether to read a file of a folder; None for one that is not worth a mention."""
    kind, names = ending(file), {column} if column else set(TEXT_FIELDS)
    if kind in ("jsonl", "json"):
        if file.name.startswith("queries.jsonl") and is_beir(file.parent):
            return False
        record = first_record(file)
        # A file whose lines are all bad is taken: reading it then reports them. Other JSON has many lines.
        found = record is not None and (bool(names & record.keys()) or not record and kind == "jsonl")
        return found or (False if kind == "jsonl" else None)
    if kind == "parquet":
        return bool(names & set(_parquet(file).schema_arrow.names))
    if kind in ("tsv", "csv"):
        return bool(names & set(_cells(next(read_lines(file, BadLines(skip=True)), (0, ""))[1], kind))) or None
    if kind in ("txt", "md"):
        return has_language or (kind == "txt" and language_of_text(file) is not None) or None
    return None


def read_records(file: str, column: str | None, bad_lines: BadLines) -> Records:
    """(number of the last line, record) of each document of a file."""
    kind = ending(file)
    if kind in ("jsonl", "json"):
        return read_jsonl(file, bad_lines)
    if kind == "parquet":
        return _rows_of_parquet(file, column)
    if kind in ("tsv", "csv"):
        return _rows_of_table(file, column, bad_lines)
    return _blocks(file, bad_lines)


def texts_of(record: Mapping[str, Any], language: str, unit: Unit, column: str | None) -> list[str]:
    """The texts in a record, by unit; a ValueError if it has none."""
    if _PARAGRAPHS in record:
        lines = record[_PARAGRAPHS]
        return [text for line in lines for text in (split_sentences(line, language) if unit == "sentence" else [line])]
    name = text_field(record, column)
    value = record[name]
    if isinstance(value, list):
        texts = [clean_text(text) for text in value]
        return [join_sentences([text for text in texts if text], language)] if unit == "document" else texts
    if not isinstance(value, str):
        raise ValueError(f"field {name!r} must be a text or a list of texts, found {type(value).__name__}")
    check_characters(value)
    if unit == "sentence":
        # A line of CCNet is a paragraph.
        return split_sentences(value.replace("\n", "\n\n") if name == "raw_content" else value, language)
    return [clean_text(value)]


def text_field(record: Mapping[str, Any], column: str | None) -> str:
    """The field of a record that holds its text; a ValueError if there is none."""
    there = [name for name in ([column] if column else [_PARAGRAPHS, *TEXT_FIELDS]) if record.get(name) is not None]
    if not there:
        wanted = repr(column) if column else "'sentences' or 'text'"
        raise ValueError(f"no field {wanted} (the record has {', '.join(map(repr, record)) or 'no fields'})")
    return next((name for name in there if record[name]), there[0])


def language_of_record(record: Mapping[str, Any]) -> Any:
    """What a record names as its language, in `language`, `lang` or, as in BEIR's layout, in `metadata`; else None."""
    metadata = record.get("metadata")
    named = metadata.get("language") if isinstance(metadata, Mapping) else None
    return record.get("language") or record.get("lang") or named


def language_of_text(file: str | Path) -> str | None:
    """The language that a text file is named after: `zh-Hans.txt.xz`, `hi_rom.txt` (`hi-latn`), or None."""
    name = Path(file).name.partition(".")[0]
    try:
        return check_language(f"{name.removesuffix(_ROMANISED)}-latn" if name.endswith(_ROMANISED) else name)
    except ValueError:
        return None


def _parquet(file: str | Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"no whole Parquet file: {error}", file=os.fspath(file)) from error


def _rows_of_parquet(file: str, column: str | None) -> Records:
    parquet = _parquet(file)
    names = parquet.schema_arrow.names
    wanted = [name for name in (column, *TEXT_FIELDS, "language", "lang", "metadata", "title") if name in names]
    number = 0
    try:
        for batch in parquet.iter_batches(_ROWS_AT_A_TIME, columns=wanted):
            for number, row in enumerate(batch.to_pylist(), start=number + 1):  # noqa: B020
                yield number, row
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"the Parquet file is damaged: {error}", file=file, line=number + 1, unit="row") from error


def _cells(line: str, kind: str) -> list[str]:
    try:
        return next(csv.reader([line], **_dialect(kind)), [])
    except csv.Error:
        return []


def _dialect(kind: str) -> dict[str, Any]:
    quoting = csv.QUOTE_NONE if kind == "tsv" else csv.QUOTE_MINIMAL
    return {"delimiter": "\t" if kind == "tsv" else ",", "quoting": quoting, "strict": True}


def _rows_of_table(file: str, column: str | None, bad_lines: BadLines) -> Records:
    """The rows of a table by the names in its first line or, if the column is a number, by their numbers from 1."""
    rows = read_table(file, bad_lines, **_dialect(ending(file)))
    number, names = (0, list[str]()) if column and column.isdecimal() else next(rows, (0, []))
    if names and not {column} & {*names} if column else not {*TEXT_FIELDS} & {*names}:
        wanted = repr(column) if column else "'text'"
        raise DataError(f"no column is named {wanted}; there are: {', '.join(names)}", file=file, line=number)
    for number, row in rows:
        yield number, dict(zip(names or map(str, range(1, len(row) + 1)), row, strict=False))


def _blocks(file: str, bad_lines: BadLines) -> Records:
    """The runs of lines between blank lines; those of Markdown are one paragraph each."""
    language, limit = language_of_text(file), bad_lines.limits.line_bytes
    lines: list[str] = []
    size = last = 0

    def block() -> tuple[int, Mapping[str, Any]]:
        return last, {"language": language, _PARAGRAPHS: [clean_text("\n".join(lines))] if is_markdown else lines}

    is_markdown = ending(file) == "md"
    for number, line in read_lines(file, bad_lines):
        # A document longer than the limit is cut into several: a file without blank lines does not fill the memory.
        if lines and (number > last + 1 or size > limit):
            yield block()
            lines, size = [], 0
        lines.append(clean_text(line))
        size += len(line)
        last = number
    if lines:
        yield block()
