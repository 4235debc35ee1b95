"""Documents in plain text: a paragraph per line, and a blank line between documents, as CC-100 is published."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from st_xlret.data.languages import check_language
from st_xlret.data.reading.jsonl import BadLines, DataError, limits_of, read_lines

PLAIN_TEXT = (".txt", ".txt.gz", ".txt.xz")

_ROMANISED = "_rom"  # CC-100's hi_rom.txt.xz and others


def read_plain_text(
    path: str | os.PathLike[str],
    *,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
    after: int = 0,
) -> Iterator[tuple[int, dict[str, Any]]]:
    r"""Stream the documents of a text file: a paragraph per line, and a blank line between documents.

    Args:
        path: A `.txt` file, plain, gzipped or as `.xz`, that is named after its language, such as `fr.txt.xz`.
        on_bad_line: Called with an error for a line that is not UTF-8 or longer than the limit. If it returns, the line
            is left out. By default the error is raised.
        on_bytes_read: Called now and then with the number of bytes of the file (as stored) read since.
        after: Leave out the lines up to this one, to read on where reading stopped.

    Yields:
        (number of the last line, `{"language", "text"}`). A document that is longer than the limit of a line is cut
        into several, so that a file without blank lines does not fill the memory.

    Raises:
        DataError: If the file is not named after a language, or for a bad line.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "fr.txt")
        >>> _ = file.write_text("Un.\nDeux.\n\nTrois.\n", encoding="utf-8")
        >>> list(read_plain_text(file))
        [(2, {'language': 'fr', 'text': 'Un.\n\nDeux.'}), (4, {'language': 'fr', 'text': 'Trois.'})]
    """
    handle_error = on_bad_line or BadLines()
    language, limit = language_of_text(path), limits_of(on_bad_line).line_bytes
    paragraphs: list[str] = []
    size = last = 0
    for number, line in read_lines(path, on_bad_line=handle_error, on_bytes_read=on_bytes_read, after=after):
        if paragraphs and (number > last + 1 or size > limit):
            yield last, {"language": language, "text": "\n\n".join(paragraphs)}
            paragraphs, size = [], 0
        paragraphs.append(line)
        size += len(line)
        last = number
    if paragraphs:
        yield last, {"language": language, "text": "\n\n".join(paragraphs)}


def language_of_text(path: str | os.PathLike[str]) -> str:
    """The language that a text file is named after.

    Raises:
        DataError: If it is named after none.

    Example:
        >>> language_of_text("cc100/zh-Hans.txt.xz"), language_of_text("hi_rom.txt.xz")
        ('zh-hans', 'hi-latn')
    """
    name = Path(path).name.partition(".")[0]
    code = f"{name.removesuffix(_ROMANISED)}-latn" if name.endswith(_ROMANISED) else name
    try:
        return check_language(code)
    except ValueError as error:
        raise DataError(
            f"{os.fspath(path)!r} is not named after its language, as fr.txt.xz is ({error}); rename it"
        ) from error
