"""Streaming the entries of a file that is one JSON list, in little memory."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import IO, Any

_CHUNK_BYTES = 1 << 18
_SPACE = " \t\r\n"
# The decoder reports a string that goes on after the end of the buffer where the string begins.
_CUT_SHORT = "Unterminated string"
_LONGEST_TOKEN = 32  # of JSON, besides strings: numbers, "false", an escape


def stream_list(stream: IO[bytes], limit: int) -> Iterator[Any]:
    r"""Stream the entries of one JSON list.

    The entries are decoded by the `json` of the standard library, so that they are the same as in JSON lines (streaming
    parsers replace halves of surrogate pairs), and an entry that is nested too deeply raises an error.

    Args:
        stream: UTF-8 text.
        limit: Longest entry, in characters: more is never held in memory.

    Raises:
        ValueError: If the text is not UTF-8, is no JSON list or is cut short, or an entry is longer than the limit.
        RecursionError: If an entry is nested too deeply.

    Example:
        >>> import io
        >>> list(stream_list(io.BytesIO(b'[{"a": 1}, {"a": [2]}]'), limit=100))
        [{'a': 1}, {'a': [2]}]
    """
    buffer = _Buffer(stream, limit)
    if buffer.next_character() != "[":
        raise ValueError("expected a list")
    buffer.position += 1
    if buffer.next_character() == "]":
        return
    while True:
        yield buffer.entry()
        separator = buffer.next_character()
        if separator not in (",", "]"):
            raise ValueError(f"expected a comma or the end of the list, found {separator!r}")
        buffer.position += 1
        if separator == "]":
            return


class _Buffer:
    """The text from the entry on that is read next."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self.stream, self.limit = stream, limit
        self.decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self.decoder = json.JSONDecoder()
        self.text, self.position, self.ended = "", 0, False

    def read(self) -> None:
        """Read on, and drop what was decoded; as much again as there is, so that long entries are not tried often."""
        self.text = self.text[self.position :]
        self.position = 0
        data = self.stream.read(max(_CHUNK_BYTES, len(self.text)))
        self.ended = not data
        self.text += self.decode(data, final=self.ended)

    def next_character(self) -> str:
        """The next character that is not white space."""
        while True:
            while self.position < len(self.text):
                if self.text[self.position] not in _SPACE:
                    return self.text[self.position]
                self.position += 1
            if self.ended:
                raise ValueError("the list is cut short")
            self.read()

    def entry(self) -> Any:
        """The next entry."""
        self.next_character()
        while True:
            try:
                entry, end = self.decoder.raw_decode(self.text, self.position)
                if end < len(self.text) or self.ended:  # else a number may go on
                    self.position = end
                    return entry
            except json.JSONDecodeError as error:
                goes_on = error.msg.startswith(_CUT_SHORT) or error.pos >= len(self.text) - _LONGEST_TOKEN
                if self.ended or not goes_on:
                    raise ValueError(f"{error.msg} after {self.text[max(0, error.pos - 30) : error.pos]!r}") from None
            if len(self.text) - self.position > self.limit:
                raise ValueError(f"the entry is longer than {self.limit:,} characters")
            self.read()
