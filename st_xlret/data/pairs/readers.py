"""One reader for each format of parallel sentences; all of them yield the same `ReadPair`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from st_xlret.data.languages import check_language
from st_xlret.data.pairs.formats import PairFile
from st_xlret.data.pairs.tmx import read_units
from st_xlret.data.reading.jsonl import BadLines, DataError, read_jsonl, read_lines, required_field
from st_xlret.data.reading.text import clean_text, two_columns


class ReadPair(NamedTuple):
    """A pair as read, with checked language codes; `score` is None for formats that have none."""

    source: str
    target: str
    source_language: str
    target_language: str
    score: float | None = None

    def cut(self, bad_lines: BadLines, file: str, line: int) -> ReadPair:
        """The pair with sides no longer than the limit."""
        limit = bad_lines.limits.sentence_characters
        if len(self.source) <= limit and len(self.target) <= limit:
            return self
        source, target = (bad_lines.cut(text, file, line) for text in (self.source, self.target))
        return self._replace(source=source, target=target)


def read_pairs(
    file: PairFile, *, on_bad_line: BadLines, on_bytes_read: Callable[[int], None] | None = None
) -> Iterator[ReadPair]:
    """Stream the pairs of a file of any format but "verses", which takes several files at once.

    Args:
        file: The file, as `recognise` describes it.
        on_bad_line: What to do about a bad line.
        on_bytes_read: Called now and then with the number of bytes of the file (as stored) read since.

    Raises:
        DataError: For a bad line, unless `on_bad_line` skips it, and for two files of Moses' format that differ in
            length.
    """
    reader = {
        "records": _read_records,
        "tmx": _read_tmx,
        "moses": _read_moses,
        "columns": _read_columns,
        "words": _read_columns,
        "scored": _read_columns,
    }[file.format]
    return reader(file, on_bad_line, on_bytes_read)


def pair_of_record(record: Mapping[str, Any]) -> ReadPair:
    """The pair in a record with `source`, `target`, `source_language` and `target_language`.

    Raises:
        ValueError: If a field is missing, is not a string, or is not a language code.
    """
    source_code, target_code = (
        check_language(required_field(record, f"{side}_language", str)) for side in ("source", "target")
    )
    target = clean_text(required_field(record, "target", str))
    return ReadPair(clean_text(required_field(record, "source", str)), target, source_code, target_code)


def _read_records(
    file: PairFile, bad_lines: BadLines, on_bytes_read: Callable[[int], None] | None
) -> Iterator[ReadPair]:
    for number, record in read_jsonl(file.path, on_bad_line=bad_lines, on_bytes_read=on_bytes_read):
        try:
            pair = pair_of_record(record)
        except ValueError as error:
            bad_lines(DataError(str(error), file=file.path, line=number))
        else:
            yield pair.cut(bad_lines, file.path, number)


def _read_tmx(file: PairFile, bad_lines: BadLines, on_bytes_read: Callable[[int], None] | None) -> Iterator[ReadPair]:
    for (source_code, source), *others in read_units(file.path, on_bad_line=bad_lines, on_bytes_read=on_bytes_read):
        for code, text in others:
            yield ReadPair(source, text, source_code, code)


def _read_columns(
    file: PairFile, bad_lines: BadLines, on_bytes_read: Callable[[int], None] | None
) -> Iterator[ReadPair]:
    assert file.languages is not None
    source_code, target_code = file.languages
    for number, line in read_lines(file.path, on_bad_line=bad_lines, on_bytes_read=on_bytes_read):
        try:
            if file.format == "scored":
                score, source, target = _scored_columns(line)
            else:
                score, (source, target) = None, two_columns(line, spaces=file.format == "words")
        except ValueError as error:
            bad_lines(DataError(str(error), file=file.path, line=number))
        else:
            yield ReadPair(source, target, source_code, target_code, score).cut(bad_lines, file.path, number)


def _read_moses(file: PairFile, bad_lines: BadLines, on_bytes_read: Callable[[int], None] | None) -> Iterator[ReadPair]:
    assert file.languages is not None and file.other_side is not None
    source_code, target_code = file.languages
    first = _all_lines(file.path, on_bad_line=bad_lines, on_bytes_read=on_bytes_read)
    second = _all_lines(file.other_side, on_bad_line=bad_lines)
    count = [0, 0]
    for source, target in zip_longest(first, second):
        if source is None or target is None:
            # The longer file is read to its end, to say how long it is.
            count[source is None] += 1
            continue
        count = [count[0] + 1, count[1] + 1]
        try:
            pair = ReadPair(clean_text(source), clean_text(target), source_code, target_code)
        except ValueError as error:
            bad_lines(DataError(str(error), file=file.path, line=count[0]))
        else:
            yield pair.cut(bad_lines, file.path, count[0])
    if count[0] != count[1]:
        raise DataError(
            f"the two sides are not aligned: {file.path} has {count[0]:,} lines and {file.other_side} has "
            f"{count[1]:,}; fetch both files of one release again"
        )


def _all_lines(path: str | os.PathLike[str], **callbacks: Any) -> Iterator[str]:
    """All lines of a file, with empty strings for blank and bad ones, because their positions count."""
    last = 0
    for number, line in read_lines(path, **callbacks):
        yield from [""] * (number - last - 1)
        yield line
        last = number


def _scored_columns(line: str) -> tuple[float, str, str]:
    columns = line.split("\t")
    if len(columns) != 3:
        raise ValueError(f"expected score, source and target with tabs between them, found {line[:80]!r}")
    try:
        score = float(columns[0])
    except ValueError:
        raise ValueError(f"expected a score in the first column, found {columns[0][:40]!r}") from None
    return score, clean_text(columns[1]), clean_text(columns[2])
