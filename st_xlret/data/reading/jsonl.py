"""Streaming JSONL and other line-based text files, with errors that name the file and the line."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

SKIP_HINT = "use skip_bad_lines=True (--skip-bad-lines) to skip and count such lines"
_KEPT_BAD_LINES = 1_000


class DataError(ValueError):
    """Something is wrong with the data: a bad line, a missing field, an unknown language, no data at all.

    Example:
        >>> str(DataError("no field 'text'", file="a.jsonl", line=3)).startswith("a.jsonl, line 3: no field")
        True
    """

    def __init__(self, reason: str, *, file: str = "", line: int = 0) -> None:
        self.reason = reason
        self.file = file
        self.line = line
        super().__init__(f"{file}, line {line}: {reason}; {SKIP_HINT}" if file else reason)


@dataclass
class BadLines:
    """What to do about a bad line: raise it (``skip=False``), or count it and go on.

    Attributes:
        skip: Whether to count instead of raising.
        count: Number of bad lines met.
        examples: (file, line, reason) of the first 1 000 of them.
    """

    skip: bool = False
    count: int = 0
    examples: list[tuple[str, int, str]] = field(default_factory=list)

    def __call__(self, error: DataError) -> None:
        """Raise the error, or count it."""
        if not self.skip:
            raise error
        self.count += 1
        if len(self.examples) < _KEPT_BAD_LINES:
            self.examples.append((error.file, error.line, error.reason))


def read_lines(
    path: str | os.PathLike[str],
    *,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, str]]:
    """Stream the non-blank lines of a UTF-8 text file, unpacking it if its name ends in ``.gz``.

    Args:
        path: The file.
        on_bad_line: Called with a :class:`DataError` for a line that is not UTF-8 and for a damaged or
            truncated gzip file (of which no more is read); if it returns, reading goes on. Default: raise.
        on_bytes_read: Called now and then with the number of bytes of the file (as stored) read since.

    Yields:
        (line number from 1, line without its line break).

    Raises:
        DataError: On bad input, if ``on_bad_line`` is None or raises it.
    """
    handle_error = on_bad_line or BadLines()
    name = os.fspath(path)
    number = reported = 0
    with open(name, "rb") as stored:
        stream: IO[bytes] = gzip.GzipFile(fileobj=stored) if name.endswith(".gz") else stored  # type: ignore[assignment]
        try:
            for number, raw in enumerate(stream, start=1):
                if on_bytes_read is not None and number % 256 == 0:
                    on_bytes_read(stored.tell() - reported)
                    reported = stored.tell()
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError as error:
                    reason = f"not UTF-8 text ({error.reason} at byte {error.start})"
                    handle_error(DataError(reason, file=name, line=number))
                    continue
                if line and not line.isspace():
                    yield number, line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            reason = f"the gzip file is truncated or damaged ({error}); fetch or write it again"
            handle_error(DataError(reason, file=name, line=number + 1))
        if on_bytes_read is not None:
            on_bytes_read(stored.tell() - reported)


def read_jsonl(
    path: str | os.PathLike[str],
    *,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    r"""Stream a ``.jsonl`` or ``.jsonl.gz`` file, one JSON object a line, without holding it in memory.

    Args:
        path: The file.
        on_bad_line: Called with a :class:`DataError` for a line that is no UTF-8 or no JSON object; if it
            returns, the line is left out. ``BadLines(skip=True)`` counts them. Default: raise.
        on_bytes_read: As in :func:`read_lines`.

    Yields:
        (line number from 1, record). Blank lines are left out.

    Raises:
        DataError: On bad input, if ``on_bad_line`` is None or raises it. It names the file and the line.

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
    for number, line in read_lines(path, on_bad_line=handle_error, on_bytes_read=on_bytes_read):
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
