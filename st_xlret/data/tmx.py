"""Reading TMX, the exchange format of translation memories, unit by unit: OPUS has files of gigabytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from st_xlret.data.languages import check_language
from st_xlret.data.lines import DAMAGED, BadLines, OnBytesRead, PathLike, open_bytes
from st_xlret.data.text import clean_text

_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_CHUNK_BYTES = 1 << 16
# These contain mark-up of the translated document, not text of the sentence.
_CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})


def read_units(
    path: PathLike, bad_lines: BadLines | None = None, on_bytes_read: OnBytesRead = None
) -> Iterator[list[tuple[str, str]]]:
    """Stream the units of a TMX file as lists of (language, text), of two languages at least.

    Raises:
        DataError: For no XML and a unit without languages, by its number, unless `bad_lines` skips it or the rest.
    """
    bad_lines, number, waiting = bad_lines or BadLines(), 0, 0
    parser: XMLPullParser[Any] = XMLPullParser(("start", "end"))
    chunk, parents = None, list[Element]()
    with open_bytes(path, on_bytes_read) as stream:
        try:
            while chunk != b"":
                chunk = stream.read(_CHUNK_BYTES)
                parser.feed(chunk) if chunk else parser.close()
                waiting += len(chunk)
                for event, element in cast("Iterator[tuple[str, Element]]", parser.read_events()):
                    waiting = 0
                    if event == "start":
                        parents.append(element)
                        continue
                    parents.pop()
                    if _tag(element) == "tu":
                        number += 1
                        unit = _unit(element, bad_lines, path, number)
                        if parents:
                            parents[-1].clear()
                        if len(unit) > 1:
                            yield unit
                if waiting > bad_lines.limits.line_bytes:
                    raise ParseError(f"a tag or text is longer than {bad_lines.limits.line_bytes:,} bytes")
        except (ParseError, OSError, *DAMAGED) as error:
            reason = f"the file is truncated or is not XML from here on ({error})"
            bad_lines(reason, path, number + 1, unit="entry")


def _unit(element: Element, bad_lines: BadLines, path: PathLike, number: int) -> list[tuple[str, str]]:
    sides: list[tuple[str, str]] = []
    try:
        for variant in (child for child in element if _tag(child) == "tuv"):
            code = variant.get(_LANGUAGE) or variant.get("lang")
            if code is None:
                raise ValueError("a <tuv> without xml:lang")
            code = check_language(code)
            for segment in (child for child in variant if _tag(child) == "seg"):
                sides.append((code, clean_text("".join(_texts(segment)))))
    except (ValueError, RecursionError) as error:
        bad_lines(str(error), path, number, unit="entry")
        return []
    return [(code, bad_lines.cut(text, path, number)) for code, text in sides]


def _texts(element: Element) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        if _tag(child) not in _CODES:
            yield from _texts(child)
        yield child.tail or ""


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]
