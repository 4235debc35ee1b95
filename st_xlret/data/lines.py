"""Text files, line by line: errors name the file and the line; and the reports of what was kept and left out."""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import lzma
import os
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

SKIP_HINT = "use skip_bad_lines=True to skip and count such lines"
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
"""What reading a truncated or damaged compressed file raises."""

PathLike: TypeAlias = str | os.PathLike[str]

_KEPT_EXAMPLES = 1_000

csv.field_size_limit(1 << 26)


class DataError(ValueError):
    """Something is wrong with the data: a bad line, a missing field, an unknown language, no data at all.

    Args:
        reason: What is wrong.
        file: Where.
        line: Number of the line, from 1; 0 if no line is meant.
        unit: What is counted: "line", or "entry" of a JSON list or an XML file.
    """

    def __init__(self, reason: str, *, file: str = "", line: int = 0, unit: str = "line") -> None:
        self.reason, self.file, self.line, self.unit = reason, file, line, unit
        place = f"{file}, {unit} {line}: " if line else f"{file}: "
        super().__init__(f"{place}{reason}" if file else reason)


@dataclass(frozen=True)
class Limits:
    """How much of a damaged or hostile file is read at once.

    Args:
        line_bytes: Longest line of a text file, entry of a JSON list, file of one JSON object or tag of an XML file.
            What is longer is a bad line. 64 MiB by default.
        sentence_characters: Longest sentence. What is longer is cut to this length and counted.

    Raises:
        ValueError: If a limit is below 1.
    """

    line_bytes: int = 1 << 26
    sentence_characters: int = 10_000

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"the limit {name} must be at least 1, got {value}")

    @classmethod
    def parse(cls, words: Sequence[str]) -> Limits:
        """Read limits as they are written in options: `["sentence_characters=20000"]`.

        Raises:
            ValueError: If a word is not the name of a limit, an equals sign and a number of at least 1.
        """
        names, found = [known.name for known in fields(cls)], {}
        for word in words:
            name, _, value = word.partition("=")
            if name not in names or not value.isdecimal():
                raise ValueError(f"limits: {word!r} is not {' or '.join(f'{known}=NUMBER' for known in names)}")
            found[name] = int(value)
        return cls(**found)


@dataclass
class BadLines:
    """What to do about a bad line: raise the error, or count it and go on. Sentences that are too long are cut.

    Attributes:
        skip: Whether to count instead of raising. With False, the error says how to skip such lines; None is for
            readers that have no such option.
        limits: What is too long.
        bad_lines: (file, line, reason) of the first 1,000 lines that were skipped.
        bad_line_count: Number of lines that were skipped.
        cut_sentences: (file, line, characters) of the first 1,000 sentences that were cut.
        cut_sentence_count: Number of sentences that were cut.
    """

    skip: bool | None = None
    limits: Limits = field(default_factory=Limits)
    bad_lines: list[tuple[str, int, str]] = field(default_factory=list)
    bad_line_count: int = 0
    cut_sentences: list[tuple[str, int, int]] = field(default_factory=list)
    cut_sentence_count: int = 0

    def __call__(self, reason: str, file: PathLike, line: int, *, unit: str = "line") -> None:
        """Raise a `DataError`, or count the line."""
        if not self.skip:
            hint = "" if self.skip is None else f"; {SKIP_HINT}"
            raise DataError(reason + hint, file=os.fspath(file), line=line, unit=unit)
        self.bad_line_count += 1
        if len(self.bad_lines) < _KEPT_EXAMPLES:
            self.bad_lines.append((os.fspath(file), line, reason))

    def cut(self, sentence: str, file: PathLike, line: int) -> str:
        """The beginning of a sentence that is too long."""
        if len(sentence) <= self.limits.sentence_characters:
            return sentence
        self.cut_sentence_count += 1
        if len(self.cut_sentences) < _KEPT_EXAMPLES:
            self.cut_sentences.append((os.fspath(file), line, len(sentence)))
        return sentence[: self.limits.sentence_characters].rstrip()

    def losses(self) -> list[str]:
        """What was skipped and cut, in lines of text; none if nothing was."""
        lines = []
        if self.bad_line_count:
            lines.append(f"bad lines skipped: {self.bad_line_count:,}, the first of them:")
            lines.extend(f"  {file}, line {line}: {reason}" for file, line, reason in self.bad_lines[:3])
        if self.cut_sentence_count:
            limit = f"{self.limits.sentence_characters:,} characters"
            lines.append(f"sentences cut to {limit}: {self.cut_sentence_count:,}, the first of them:")
            lines.extend(f"  {file}, line {line}: {size:,} characters" for file, line, size in self.cut_sentences[:3])
        return lines

    def warn(self, logger: logging.Logger) -> None:
        """Log what was skipped and cut, if anything was."""
        if lines := self.losses():
            logger.warning("%s", "\n".join(lines))


def open_bytes(path: PathLike) -> io.BufferedReader[Any]:
    """Open a file, and decompress it as it is read if its name ends in `.gz` or `.xz`."""
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
    return openers.get(Path(path).suffix, open)(path, "rb")


def read_lines(path: PathLike, bad_lines: BadLines | None = None) -> Iterator[tuple[int, str]]:
    """Stream (line number, line) of the non-blank lines of a UTF-8 text file, plain or compressed (`.gz`, `.xz`).

    Args:
        path: The file.
        bad_lines: What to do about a bad line and the rest of a damaged compressed file. By default an error is raised.

    Raises:
        DataError: On bad input, unless `bad_lines` skips it.
    """
    bad_lines, number = bad_lines or BadLines(), 0
    limit = bad_lines.limits.line_bytes
    with open_bytes(path) as stream:
        try:
            while raw := stream.readline(limit + 1):
                number += 1
                if raw in (b"\n", b"\r\n"):
                    # Gigabytes of blank lines fit into a small .gz: they are counted by the buffer.
                    while (ahead := stream.peek(1)) and not ahead.strip(b"\r\n"):
                        number += stream.read(len(ahead)).count(b"\n")
                    continue
                if len(raw) > limit:
                    while raw and not raw.endswith(b"\n"):
                        raw = stream.readline(limit + 1)
                    bad_lines(f"the line is longer than {limit:,} bytes", path, number)
                    continue
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError as error:
                    reason = f"not UTF-8 text ({error.reason} at byte {error.start})"
                    bad_lines(f"{reason}; convert the file, as by iconv -f latin1 -t utf-8", path, number)
                    continue
                if line and not line.isspace():
                    yield number, line
        except DAMAGED as error:
            reason = f"the compressed file is truncated or damaged ({error}), and its rest is not read"
            bad_lines(f"{reason}; fetch or write it again", path, number + 1)


def read_jsonl(path: PathLike, bad_lines: BadLines | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    r"""Stream (line number, object) of a file of JSON lines, plain or compressed, without its blank lines.

    The arguments are those of `read_lines`.

    Raises:
        DataError: On bad input, unless `bad_lines` skips it.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp(), "a.jsonl")
        >>> _ = file.write_text('{"text": "one"}\nno JSON\n', encoding="utf-8")
        >>> bad_lines = BadLines(skip=True)
        >>> list(read_jsonl(file, bad_lines)), bad_lines.bad_line_count
        ([(1, {'text': 'one'})], 1)
    """
    bad_lines = bad_lines or BadLines()
    for number, line in read_lines(path, bad_lines):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            bad_lines(f"not valid JSON ({error})", path, number)
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            bad_lines(f"expected a JSON object, found {type(record).__name__} {line[:40]!r}", path, number)


def read_table(path: PathLike, bad_lines: BadLines | None = None, **dialect: Any) -> Iterator[tuple[int, list[str]]]:
    """Stream (number of its last line, cells) of the rows of a table; `dialect` are options of `csv.reader`.

    Raises:
        DataError: On bad input, unless `bad_lines` skips it.
    """
    bad_lines, number = bad_lines or BadLines(), 0

    def lines() -> Iterator[str]:
        nonlocal number
        for number, line in read_lines(path, bad_lines):  # noqa: B007
            yield f"{line}\n"

    try:
        for cells in csv.reader(lines(), **dialect):
            yield number, cells
    except csv.Error as error:
        bad_lines(f"no row of a table from here on ({error})", path, number)


def required_field(record: Mapping[str, Any], name: str, kind: type) -> Any:
    """A field of a record; a ValueError if the record lacks it, or its value is not of the given type."""
    value = record.get(name)
    if value is None:
        raise ValueError(f"no field {name!r} (the record has {', '.join(map(repr, record)) or 'no fields'})")
    if not isinstance(value, kind):
        raise ValueError(f"field {name!r} must be a {kind.__name__}, found {type(value).__name__}")
    return value


@dataclass
class Report(BadLines):
    """What a loader kept and what it left out; `str(report)` is a small table.

    Pass an empty report to a loader as `report=`, and the loader fills it. Every loader also logs its report at the
    level INFO, and what was skipped or cut at the level WARNING.

    Attributes:
        languages: Name of a language, language pair or source -> what was counted there -> number.
        other_languages: Number of items left out by the language filter, by name.
        skipped_files: Files found in folders that hold other kinds of records.
        reused: Whether an earlier result for the same unchanged sources was taken.
    """

    languages: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    other_languages: Counter[str] = field(default_factory=Counter)
    skipped_files: list[str] = field(default_factory=list)
    reused: bool = False

    counted: ClassVar[tuple[str, ...]] = ()
    """What is counted, in the order of the table's columns; the first two are always shown."""

    def total(self, name: str) -> int:
        """Sum of one count over all languages."""
        return sum(counts[name] for counts in self.languages.values())

    def as_json(self) -> dict[str, Any]:
        """The report as JSON can hold it."""
        return {**vars(self), "limits": vars(self.limits)}

    def restore(self, stored: dict[str, Any]) -> None:
        """Take over what `as_json` gave."""
        taken = {each.name: stored[each.name] for each in fields(self)}
        taken["limits"] = Limits(**taken["limits"])
        for name in ("bad_lines", "cut_sentences"):
            taken[name] = [(file, line, what) for file, line, what in taken[name]]
        taken["languages"] = defaultdict(Counter, {name: Counter(n) for name, n in taken["languages"].items()})
        taken["other_languages"] = Counter(taken["other_languages"])
        vars(self).update(taken)

    def publish(self, report: Report | None, logger: logging.Logger) -> None:
        """Fill the caller's report, and log it."""
        if report is not None:
            vars(report).update(vars(self))
        logger.info("%s", self)
        self.warn(logger)

    def __str__(self) -> str:
        from tabulate import tabulate

        shown = [name for place, name in enumerate(self.counted) if place < 2 or self.total(name)]
        rows = [[code, *(f"{counts[name]:,}" for name in shown)] for code, counts in sorted(self.languages.items())]
        rows.append(["total", *(f"{self.total(name):,}" for name in shown)])
        names = ["", *(name.replace("_", " ") for name in shown)]
        alignment = ["left", *("right" for _ in shown)]
        lines = [tabulate(rows, names, tablefmt="plain", colalign=alignment, disable_numparse=True)]
        if self.other_languages:
            by_count = sorted(self.other_languages.items(), key=lambda item: (-item[1], item[0]))
            lines.append("left out by the language filter: " + ", ".join(f"{name} {n:,}" for name, n in by_count))
        lines += self.losses()
        if self.skipped_files:
            lines.append(f"files with other kinds of records: {len(self.skipped_files)}")
        return "\n".join(lines)
