"""Standard input and output of the commands: UTF-8 in, and JSON that is JSON on any console."""

import codecs
import json
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from typing import Any

_BYTE_ORDER_MARK = "\ufeff"


def prepare_streams() -> None:
    """Read files and pipes as UTF-8, as all files are read; write what a console cannot show.

    Letters that it does not have are escaped: they take no result away.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, TextIOWrapper):
        is_file = not sys.stdin.isatty()
        if is_file and not _is_utf_8(sys.stdin):
            sys.stdin.reconfigure(encoding="utf-8", errors="strict")


def input_lines() -> Iterator[str]:
    """The lines of the standard input; a `ValueError` if they are no text.

    Byte-order marks, which some programs put before a text, are left out.
    """
    number = 0
    try:
        for line in sys.stdin:
            number += 1
            yield line.removeprefix(_BYTE_ORDER_MARK).strip()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"standard input, after line {number}: this is not UTF-8 ({error.reason}): convert it"
        ) from error


def print_json(value: Any) -> None:
    """Print a line of JSON; other letters than those of ASCII are escaped unless UTF-8 is shown."""
    print(json.dumps(value, ensure_ascii=not _is_utf_8(sys.stdout)))


def _is_utf_8(stream: Any) -> bool:
    encoding = getattr(stream, "encoding", None) or "ascii"
    return codecs.lookup(encoding).name == "utf-8"
