"""Texts that the commands are given: lines, a column of a table, a field of JSON lines, a Hugging Face data set."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
from tqdm.auto import tqdm

from st_xlret.data.lines import BadLines, DataError, read_jsonl, read_lines, required_field
from st_xlret.data.sources import existing_path

csv.field_size_limit(1 << 24)

_ENDINGS = (".txt", ".tsv", ".csv", ".jsonl", ".gz")
_OnBytesRead = Callable[[int], None]


def stream_texts(
    source: str,
    column: str | None = None,
    *,
    streaming: bool = False,
    bad_lines: BadLines | None = None,
    show_progress_bar: bool = False,
) -> Iterator[str]:
    """The texts of a file or a data set, in their order, without blank ones.

    Args:
        source: A file with lines of text, `.tsv` or `.csv`, or `.jsonl`; all of them may end in `.gz`. Otherwise a
            Hugging Face data set, `NAME[:CONFIG[:SPLIT]]`, where the name may be a folder.
        column: Of a table, the number of the column, from 1, or its name in the first line; of JSON lines and data
            sets, the field. A field of JSON lines may be a list of texts. By default it is "text", or "sentences" of
            documents.
        streaming: Read a data set without downloading it first.
        bad_lines: What to do about bad lines of a file. By default they are errors.
        show_progress_bar: Whether to show a bar.

    Raises:
        DataError: If there is no such file or data set, it is malformed, holds no text, or has no such column. Names
            file and line.
    """
    with tqdm(desc=f"Reading {source}", unit_scale=True, disable=not show_progress_bar) as bar:
        if _is_dataset(source):
            bar.unit = " texts"
            found = _of_dataset(source, column, streaming, bar.update)
        else:
            path = existing_path(source)
            bar.unit, bar.total = "B", path.stat().st_size
            found = _of_file(path, column, bad_lines, bar.update)
        is_empty = True
        for text in map(str.strip, found):
            if text:
                is_empty = False
                yield text
    if is_empty:
        raise DataError("the file holds no text", file=source)


def check_source(source: str) -> None:
    """Check that a file is there, before long work. Data sets are not looked up.

    Raises:
        DataError: If it is not.
    """
    if not _is_dataset(source):
        existing_path(source)


def _is_dataset(source: str) -> bool:
    path = os.path.expanduser(source)
    return os.path.isdir(path) or not (os.path.exists(path) or source.endswith(_ENDINGS))


def _of_file(path: Path, column: str | None, bad_lines: BadLines | None, on_bytes_read: _OnBytesRead) -> Iterator[str]:
    ending = "".join(path.suffixes[-2:]).removesuffix(".gz").rpartition(".")[2]
    if ending == "jsonl":
        return _of_json_lines(path, column, on_bytes_read)
    if ending in ("tsv", "csv"):
        return _of_table(path, column or "1", "\t" if ending == "tsv" else ",", bad_lines, on_bytes_read)
    if column is not None:
        raise DataError(f"a column ({column!r}) needs a table (.tsv, .csv) or JSON lines (.jsonl)", file=str(path))
    return (text for _, text in read_lines(path, bad_lines, on_bytes_read))


def _of_json_lines(path: Path, column: str | None, on_bytes_read: _OnBytesRead) -> Iterator[str]:
    for line, record in read_jsonl(path, on_bytes_read=on_bytes_read):
        field = column or ("sentences" if record.get("sentences") and not record.get("text") else "text")
        try:
            if not isinstance(record.get(field), list):
                yield required_field(record, field, str)
                continue
            for text in record[field]:
                if not isinstance(text, str):
                    raise ValueError(f"field {field!r} must hold texts, found {text!r}")
                yield text
        except ValueError as error:
            raise DataError(f"{error}; the field is chosen by --column", file=str(path), line=line) from error


def _of_table(
    path: Path, column: str, delimiter: str, bad_lines: BadLines | None, on_bytes_read: _OnBytesRead
) -> Iterator[str]:
    place = int(column) - 1 if column.isdigit() else None
    rows = csv.reader(
        (text for _, text in read_lines(path, bad_lines, on_bytes_read)),
        delimiter=delimiter,
        quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
        strict=True,
    )
    for number, row in _numbered(rows, path):
        if place is None:
            if column not in row:
                raise DataError(f"no column is named {column!r}; there are: {', '.join(row)}", file=str(path), line=1)
            place = row.index(column)
            continue
        if not 0 <= place < len(row):
            raise DataError(f"there is no column {place + 1} of {len(row)}", file=str(path), line=number)
        yield row[place]


def _numbered(rows: Iterator[list[str]], path: Path) -> Iterator[tuple[int, list[str]]]:
    number = 0
    try:
        for number, row in enumerate(rows, 1):
            yield number, row
    except csv.Error as error:
        raise DataError(f"no row of a table from here on ({error})", file=str(path), line=number + 1) from error


def _of_dataset(source: str, column: str | None, streaming: bool, on_texts_read: _OnBytesRead) -> Iterator[str]:
    for row in _load_dataset(source, streaming):
        on_texts_read(1)
        if column is None:
            texts = [name for name, value in row.items() if isinstance(value, str)]
            column = "text" if "text" in texts else texts[0] if len(texts) == 1 else None
        if column is None or not isinstance(row.get(column), str):
            asked = (
                "which column holds the texts is not clear" if column is None else f"{column!r} is no column of text"
            )
            raise DataError(f"{asked}; there are: {', '.join(row)}", file=source)
        yield row[column]


def _load_dataset(source: str, streaming: bool) -> Any:
    name, config, split = (*source.split(":", 2), "", "")[:3]
    try:
        if (Path(name) / "dataset_info.json").exists() or (Path(name) / "dataset_dict.json").exists():
            found = datasets.load_from_disk(name)
            return found[config or "train"] if isinstance(found, datasets.DatasetDict) else found
        return datasets.load_dataset(name, config or None, split=split or "train", streaming=streaming)
    except (OSError, ValueError, KeyError, datasets.exceptions.DatasetsError) as error:
        reason = f"there is no such file, and it cannot be loaded as a data set NAME[:CONFIG[:SPLIT]]: {error}"
        raise DataError(reason, file=source) from error
