"""Streaming the entries of a file that is one JSON list."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from st_xlret.data.reading.jsonl import SKIP_HINT, BadLines, DataError


class EntryError(DataError):
    """A :class:`DataError` in an entry of a JSON list, which has no line of its own.

    Example:
        >>> str(EntryError("no field 'question'", file="nq.json", line=3)).startswith("nq.json, entry 3: no field")
        True
    """

    def __init__(self, reason: str, *, file: str, line: int) -> None:
        super().__init__(reason, file=file, line=line)
        self.args = (f"{file}, entry {line}: {reason}; {SKIP_HINT}",)


def open_bytes(path: str | os.PathLike[str]) -> IO[bytes]:
    """A file to read, unpacked if its name ends in ``.gz``."""
    return _unpacked(open(path, "rb"), os.fspath(path))


def _unpacked(stored: IO[bytes], name: str) -> IO[bytes]:
    return gzip.GzipFile(fileobj=stored) if name.endswith(".gz") else stored  # type: ignore[return-value]


def first_character(path: str | os.PathLike[str]) -> str:
    """The first character of a text file that is no white space."""
    with open_bytes(path) as stream:
        while chunk := stream.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n"):
            return chr(chunk[0])
    return ""


def read_json_list(
    path: str | os.PathLike[str],
    *,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Stream the objects of a ``.json`` or ``.json.gz`` file that is one list, however large.

    Args:
        path: The file.
        on_bad_line: Called with an :class:`EntryError` for an entry that is no object, and for a damaged
            file, of which no more is read; if it returns, reading goes on. Default: raise.
        on_bytes_read: Called now and then with the number of bytes of the file (as stored) read since.

    Yields:
        (entry number from 1, object).

    Raises:
        DataError: On bad input, if ``on_bad_line`` is None or raises it.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp(), "a.json")
        >>> _ = file.write_text('[{"question": "who"}]', encoding="utf-8")
        >>> list(read_json_list(file))
        [(1, {'question': 'who'})]
    """
    import ijson

    handle_error = on_bad_line or BadLines()
    name = os.fspath(path)
    number = 0
    with open(path, "rb") as stored, _unpacked(stored, name) as stream:
        counted = _Counted(stream, stored, on_bytes_read or (lambda count: None))
        try:
            for number, entry in enumerate(ijson.items(counted, "item", use_float=True), start=1):
                if isinstance(entry, dict):
                    yield number, entry
                else:
                    reason = f"expected a JSON object, found {type(entry).__name__}"
                    handle_error(EntryError(reason, file=name, line=number))
        except (ijson.JSONError, UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            reason = f"the file is truncated or no JSON from here on ({str(error).splitlines()[0]})"
            handle_error(EntryError(reason, file=name, line=number + 1))


class _Counted:
    """A stream that tells how much was read of the file that it unpacks."""

    def __init__(self, stream: IO[bytes], stored: IO[bytes], on_bytes_read: Callable[[int], None]) -> None:
        self.stream, self.stored, self.on_bytes_read = stream, stored, on_bytes_read
        self.reported = 0

    def read(self, size: int = -1) -> bytes:
        chunk = self.stream.read(size)
        self.on_bytes_read(self.stored.tell() - self.reported)
        self.reported = self.stored.tell()
        return chunk
