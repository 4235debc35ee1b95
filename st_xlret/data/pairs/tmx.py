"""Reading parallel sentences from TMX, the exchange format of translation memories."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from xml.etree.ElementTree import Element, ParseError, iterparse

from st_xlret.data.languages import check_language
from st_xlret.data.reading.jsonl import BadLines, DataError, EntryError, open_bytes
from st_xlret.data.reading.text import clean_text

_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# These contain mark-up of the translated document, not text of the sentence.
_CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})


def read_units(
    path: str | os.PathLike[str],
    *,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[list[tuple[str, str]]]:
    """Stream the units of a TMX file as lists of (language, text), of two languages at least.

    The file is streamed through the XML parser of the standard library, one unit at a time: OPUS has TMX files of
    gigabytes, which the TMX libraries hold in memory as a whole.

    Args:
        path: A `.tmx` or `.tmx.gz` file.
        on_bad_line: Called with a `DataError` for a bad unit and for a damaged file. If it returns, the unit, or the
            rest of the file, is left out. By default the error is raised.
        on_bytes_read: Called now and then with the number of bytes of the file (as stored) read since.

    Raises:
        DataError: For a file that is not XML (file and line are named) and a unit without languages (its number is
            named), unless `on_bad_line` returns.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp(), "a.tmx")
        >>> sides = "".join(
        ...     f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in (("en-US", "Yes."), ("fr", "Oui."))
        ... )
        >>> _ = file.write_text(f"<tmx><body><tu>{sides}</tu></body></tmx>", encoding="utf-8")
        >>> list(read_units(file))
        [[('en-us', 'Yes.'), ('fr', 'Oui.')]]
    """
    handle_error = on_bad_line or BadLines()
    name, number = os.fspath(path), 0
    with open_bytes(path, on_bytes_read) as stream:
        try:
            body: Element | None = None
            for event, element in iterparse(stream, events=("start", "end")):
                if event == "start":
                    body = element if _tag(element) == "body" else body
                elif _tag(element) == "tu":
                    number += 1
                    try:
                        unit = [_side(side) for side in element if _tag(side) == "tuv"]
                    except ValueError as error:
                        handle_error(EntryError(str(error), file=name, line=number))
                        unit = []
                    if len(unit) > 1:
                        yield unit
                    if body is not None:
                        body.clear()
        except (ParseError, EOFError, OSError) as error:
            line = error.position[0] if isinstance(error, ParseError) else number + 1
            handle_error(DataError(f"the file is truncated or is not XML from here on ({error})", file=name, line=line))


def _side(side: Element) -> tuple[str, str]:
    code = side.get(_LANGUAGE) or side.get("lang")
    if code is None:
        raise ValueError("a <tuv> without xml:lang")
    segment = next((child for child in side if _tag(child) == "seg"), None)
    return check_language(code), "" if segment is None else clean_text("".join(_texts(segment)))


def _texts(element: Element) -> Iterator[str]:
    if _tag(element) not in _CODES:
        yield element.text or ""
        for child in element:
            yield from _texts(child)
            yield child.tail or ""


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]
