"""Reading parallel sentences from TMX, the exchange format of translation memories."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any
from xml.etree.ElementTree import Element, ParseError, iterparse

import datasets

from st_xlret.data.languages import check_language, check_languages, match_language
from st_xlret.data.pairs.selection import Pair, PairReport, PairSelection, collect_pairs
from st_xlret.data.reading.json_lists import EntryError, open_bytes
from st_xlret.data.reading.jsonl import BadLines, DataError
from st_xlret.data.reading.records import clean_text
from st_xlret.data.reading.sources import Sources

_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# What these hold is mark-up of the translated document, not text of the sentence.
_CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})


def pairs_from_tmx(
    paths: Any,
    *,
    languages: Iterable[str] | None = None,
    per_language: int | None = None,
    seed: int = 0,
    exclude: Collection[str] | None = None,
    skip_bad_lines: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> tuple[datasets.Dataset, PairReport]:
    """Read the translation units of TMX files; the first language of a unit is the source of its pairs.

    The file is streamed through the XML parser of the standard library, a unit at a time: OPUS has TMX files
    of gigabytes, which the TMX libraries hold in memory as a whole.

    Args:
        paths: One or several ``.tmx`` or ``.tmx.gz`` files.
        languages: Codes to keep; both sides must be among them. Default: all.
        per_language: As in :func:`~st_xlret.data.load_pairs`.
        seed: As there.
        exclude: As there.
        skip_bad_lines: As there; of a damaged file, what stands before the damage is kept.
        cache_dir: As there.
        show_progress: As there.

    Returns:
        The same four columns as :func:`~st_xlret.data.load_pairs`, and a report of what was left out.

    Raises:
        DataError: For a file that is no XML (file and line are named), a unit without languages (its number
            is named), or no pair left.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp(), "a.tmx")
        >>> sides = "".join(
        ...     f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in (("en-US", "Yes."), ("fr", "Oui."))
        ... )
        >>> _ = file.write_text(f"<tmx><body><tu>{sides}</tu></body></tmx>", encoding="utf-8")
        >>> pairs, _ = pairs_from_tmx(file, languages=["en", "fr"], cache_dir=file.parent, show_progress=False)
        >>> pairs[0]
        {'source': 'Yes.', 'target': 'Oui.', 'source_language': 'en', 'target_language': 'fr'}
    """
    wanted = check_languages(languages)
    found = Sources.find(paths, lambda record: True, suffixes=(".tmx", ".tmx.gz"))

    def read(report: PairReport, bad_lines: BadLines) -> Iterator[Pair]:
        files = found.opened(read_units, bad_lines, show_progress=show_progress, description="Reading TMX files")
        for _, units in files:
            for (source_code, source), *others in units:
                for code, text in others:
                    kept = match_language(source_code, wanted), match_language(code, wanted)
                    if kept[0] is None or kept[1] is None:
                        name = f"{source_code}>{code}"
                        report.other_languages[name] = report.other_languages.get(name, 0) + 1
                    else:
                        yield source, text, kept[0], kept[1]

    options = {"languages": None if wanted is None else sorted(wanted)}
    selection = PairSelection(per_language, seed, exclude)
    return collect_pairs(found, "tmx", read, selection, options, skip_bad_lines, cache_dir)


def read_units(
    path: str | os.PathLike[str],
    *,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[list[tuple[str, str]]]:
    """Stream the units of a TMX file as lists of (language, text), of two languages at least.

    Args:
        path: The file.
        on_bad_line: Called with a :class:`~st_xlret.data.DataError` for a bad unit and for a damaged file;
            if it returns, the unit, or the rest of the file, is left out. Default: raise.
        on_bytes_read: Called once with the size of the file.
    """
    handle_error = on_bad_line or BadLines()
    name, number = os.fspath(path), 0
    with open_bytes(path) as stream:
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
            handle_error(DataError(f"the file is truncated or no XML from here on ({error})", file=name, line=line))
    if on_bytes_read is not None:
        on_bytes_read(os.path.getsize(path))


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
