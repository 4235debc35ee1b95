"""Streaming JSON lines and other line-based text files, with errors that name the file and the line."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import IO, Any, cast

SKIP_HINT = "use skip_bad_lines=True (--skip_bad_lines) to skip and count such lines"
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
"""What reading a truncated or damaged compressed file raises."""

_KEPT_BAD_LINES = 1_000
_BUFFER_BYTES = 1 << 16


class DataError(ValueError):
    """Something is wrong with the data: a bad line, a missing field, an unknown language, no data at all.

    Example:
        >>> str(DataError("no field 'text'", file="a.jsonl", line=3)).startswith("a.jsonl, line 3: no field")
        True
    """

    _unit = "line"

    def __init__(self, reason: str, *, file: str = "", line: int = 0) -> None:
        self.reason = reason
        self.file = file
        self.line = line
        place = f"{file}, {self._unit} {line}: " if line else f"{file}: "
        super().__init__(f"{place}{reason}" if file else reason)


class EntryError(DataError):
    """A `DataError` in an entry of a JSON list or of an XML file, which has no line of its own.

    Example:
        >>> str(EntryError("no field 'question'", file="nq.json", line=3)).startswith("nq.json, entry 3: no field")
        True
    """

    _unit = "entry"


@dataclass(frozen=True)
class Limits:
    """How much of a damaged or hostile file is read at once, so that no file can fill the memory.

    Args:
        line_bytes: Longest line of a text file, entry of a JSON list or tag of an XML file, in bytes. What is longer is
            a bad line. 64 MiB by default.
        sentence_characters: Longest sentence, in characters. What is longer is cut to this length, and counted in the
            report. 10,000 by default, which is more than encoders read.

    Raises:
        ValueError: If a limit is below 1.
    """

    line_bytes: int = 1 << 26
    sentence_characters: int = 10_000

    def __post_init__(self) -> None:
        for name in ("line_bytes", "sentence_characters"):
            if getattr(self, name) < 1:
                raise ValueError(f"the limit {name} must be at least 1, got {getattr(self, name)}")

    @classmethod
    def parse(cls, words: Sequence[str]) -> Limits:
        """Read limits as they are written in options.

        Raises:
            ValueError: If a word is not the name of a limit, an equals sign and a number of at least 1.

        Example:
            >>> Limits.parse(["sentence_characters=20000"])
            Limits(line_bytes=67108864, sentence_characters=20000)
        """
        names = [known.name for known in fields(cls)]
        found: dict[str, int] = {}
        for word in words:
            name, _, value = word.partition("=")
            if name not in names or not value.isdecimal():
                raise ValueError(
                    f"--limits {word}: give a limit and its number, such as {names[0]}=1000000; the limits "
                    f"are {' and '.join(names)}"
                )
            found[name] = int(value)
        return cls(**found)


@dataclass
class BadLines:
    """What to do about a bad line: raise the error, or count it and go on. Cuts and counts sentences that are too long.

    Attributes:
        skip: Whether to count instead of raising. With False, the error says how to skip such lines; None is for
            readers that have no such option.
        limits: What is too long.
        count: Number of bad lines met.
        examples: (file, line, reason) of the first 1,000 of them.
        cut_count: Number of sentences that were cut.
        cut_examples: (file, line, characters) of the first 1,000 of them.
    """

    skip: bool | None = None
    limits: Limits = field(default_factory=Limits)
    count: int = 0
    examples: list[tuple[str, int, str]] = field(default_factory=list)
    cut_count: int = 0
    cut_examples: list[tuple[str, int, int]] = field(default_factory=list)

    def __call__(self, error: DataError) -> None:
        """Raise the error, or count it."""
        if self.skip is None:
            raise error
        if not self.skip:
            raise type(error)(f"{error.reason}; {SKIP_HINT}", file=error.file, line=error.line)
        self.count += 1
        if len(self.examples) < _KEPT_BAD_LINES:
            self.examples.append((error.file, error.line, error.reason))

    def cut(self, sentence: str, file: str, line: int, *, characters: int | None = None) -> str:
        """The beginning of a sentence that is too long; other sentences as they are.

        Args:
            sentence: The sentence.
            file: Where it is from, for the report.
            line: Its line in the file.
            characters: Its length, where `sentence` is only its beginning.
        """
        length = len(sentence) if characters is None else characters
        if length <= self.limits.sentence_characters:
            return sentence
        self.cut_count += 1
        if len(self.cut_examples) < _KEPT_BAD_LINES:
            self.cut_examples.append((file, line, length))
        return sentence[: self.limits.sentence_characters].rstrip()


def limits_of(on_bad_line: Callable[[DataError], None] | None) -> Limits:
    """The limits that a reader's `on_bad_line` knows; the default ones if it knows none."""
    return on_bad_line.limits if isinstance(on_bad_line, BadLines) else Limits()


@contextmanager
def open_bytes(path: str | os.PathLike[str], on_bytes_read: Callable[[int], None] | None = None) -> Iterator[IO[bytes]]:
    """Open a file for reading, and decompress it if its name ends in `.gz` or `.xz`.

    Args:
        path: The file.
        on_bytes_read: Called with the number of bytes of the file, as stored, of each read: for progress bars.
    """
    with io.BufferedReader(_CountedFile(path, on_bytes_read), _BUFFER_BYTES) as stored:
        if os.fspath(path).endswith(".gz"):
            with gzip.GzipFile(fileobj=stored) as unpacked:
                yield cast("IO[bytes]", unpacked)
        elif os.fspath(path).endswith(".xz"):
            with io.BufferedReader(lzma.LZMAFile(stored), _BUFFER_BYTES) as lines:
                yield cast("IO[bytes]", lines)
        else:
            yield stored


class _CountedFile(io.FileIO):
    """A file that reports how many bytes of it are read."""

    def __init__(self, path: str | os.PathLike[str], on_bytes_read: Callable[[int], None] | None) -> None:
        super().__init__(os.fspath(path))
        self._on_bytes_read = on_bytes_read

    def readinto(self, buffer: Any) -> int | None:  # type: ignore[override]
        count = super().readinto(buffer)
        return self._report(count) if count else count

    def readall(self) -> bytes:
        content = super().readall()
        self._report(len(content))
        return content

    def _report(self, count: int) -> int:
        if self._on_bytes_read is not None:
            self._on_bytes_read(count)
        return count


def read_lines(
    path: str | os.PathLike[str],
    *,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
    after: int = 0,
) -> Iterator[tuple[int, str]]:
    """Stream the non-blank lines of a UTF-8 text file, decompressing it if its name ends in `.gz` or `.xz`.

    Args:
        path: The file.
        on_bad_line: Called with a `DataError` for a line that is not UTF-8 or longer than the limit, and for a damaged
            or truncated compressed file (the rest of which is not read). If it returns, reading goes on. By default the
            error is raised.
        on_bytes_read: Called now and then with the number of bytes of the file (as stored) read since.
        after: Leave out the lines up to this one, to read on where reading stopped.

    Yields:
        (line number from 1, line without its line break).

    Raises:
        DataError: On bad input, if `on_bad_line` is None or raises it.
    """
    handle_error = on_bad_line or BadLines()
    name = os.fspath(path)
    number = 0
    limit = limits_of(on_bad_line).line_bytes
    with open_bytes(path, on_bytes_read) as stream:
        try:
            for number, raw in enumerate(iter(lambda: stream.readline(limit + 1), b""), start=1):
                if len(raw) > limit:
                    while raw and not raw.endswith(b"\n"):
                        raw = stream.readline(limit + 1)
                    if number <= after:
                        continue
                    handle_error(DataError(f"the line is longer than {limit:,} bytes", file=name, line=number))
                    continue
                if number <= after:
                    continue
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError as error:
                    reason = f"not UTF-8 text ({error.reason} at byte {error.start})"
                    handle_error(DataError(reason, file=name, line=number))
                    continue
                if line and not line.isspace():
                    yield number, line
        except DAMAGED as error:
            reason = f"the compressed file is truncated or damaged ({error}); fetch or write it again"
            handle_error(DataError(reason, file=name, line=number + 1))


def read_jsonl(
    path: str | os.PathLike[str],
    *,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
    after: int = 0,
) -> Iterator[tuple[int, dict[str, Any]]]:
    r"""Stream a file of JSON lines, plain, gzipped or as `.xz`, one JSON object per line, without holding it in memory.

    Args:
        path: The file.
        on_bad_line: Called with a `DataError` for a line that is not UTF-8 or not a JSON object. If it returns, the
            line is left out; `BadLines(skip=True)` counts such lines. By default the error is raised.
        on_bytes_read: Called now and then with the number of bytes of the file (as stored) read since.
        after: Leave out the lines up to this one, to read on where reading stopped.

    Yields:
        (line number from 1, record). Blank lines are left out.

    Raises:
        DataError: On bad input, if `on_bad_line` is None or raises it. It names the file and the line.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp(), "a.jsonl")
        >>> _ = file.write_text('{"text": "one"}\nno JSON\n', encoding="utf-8")
        >>> bad_lines = BadLines(skip=True)
        >>> list(read_jsonl(file, on_bad_line=bad_lines)), bad_lines.count
        ([(1, {'text': 'one'})], 1)
    """
    handle_error = on_bad_line or BadLines()
    name = os.fspath(path)
    for number, line in read_lines(path, on_bad_line=handle_error, on_bytes_read=on_bytes_read, after=after):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            handle_error(DataError(f"not valid JSON ({error})", file=name, line=number))
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            reason = f"expected a JSON object, found {type(record).__name__} {line[:40]!r}"
            handle_error(DataError(reason, file=name, line=number))


def required_field(record: Mapping[str, Any], name: str, kind: type) -> Any:
    """Return a field of a record.

    Raises:
        ValueError: If the record lacks the field, or its value is not of the given type.
    """
    value = record.get(name)
    if value is None:
        raise ValueError(f"no field {name!r} (the record has {', '.join(map(repr, record)) or 'no fields'})")
    if not isinstance(value, kind):
        raise ValueError(f"field {name!r} must be a {kind.__name__}, found {type(value).__name__}")
    return value
