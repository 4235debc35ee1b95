"""Reading parallel sentences from TMX, the exchange format of translation memories."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from xml.parsers.expat import ExpatError, ParserCreate

from st_xlret.data.languages import check_language
from st_xlret.data.reading.jsonl import BadLines, DataError, EntryError, open_bytes
from st_xlret.data.reading.text import clean_text

_LANGUAGE = "http://www.w3.org/XML/1998/namespace}lang"
_CHUNK_BYTES = 1 << 16
# These contain mark-up of the translated document, not text of the sentence.
_CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})


def read_units(
    path: str | os.PathLike[str],
    *,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[list[tuple[str, str]]]:
    """Stream the units of a TMX file as lists of (language, text), of two languages at least.

    The file is streamed through the standard library's expat, one unit at a time: OPUS has TMX files of gigabytes,
    which the TMX libraries hold in memory as a whole.

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
    bad_lines = on_bad_line if isinstance(on_bad_line, BadLines) else BadLines()
    handle_error, limits = on_bad_line or bad_lines, bad_lines.limits
    name, units, fed = os.fspath(path), _Units(limits.sentence_characters), 0
    with open_bytes(path, on_bytes_read) as stream:
        damage: DataError | None = None
        while damage is None and not units.ended:
            try:
                chunk = stream.read(_CHUNK_BYTES)
                fed += len(chunk)
                units.read(chunk)
                if fed - units.parser.CurrentByteIndex > limits.line_bytes:
                    raise ValueError(f"a tag is longer than {limits.line_bytes:,} bytes")
            except (ExpatError, ValueError, EOFError, OSError, zlib.error) as error:
                line = units.parser.CurrentLineNumber
                reason = f"the file is truncated or is not XML from here on ({error})"
                damage = DataError(reason, file=name, line=line)
            for number, unit in units.take():
                if isinstance(unit, str):
                    handle_error(EntryError(unit, file=name, line=number))
                elif len(unit) > 1:
                    yield [(code, bad_lines.cut(text, name, number, characters=size)) for code, text, size in unit]
        if damage is not None:
            handle_error(damage)


class _Units:
    """Collects the units of a TMX file from the events of the parser.

    Nothing recurses, however deep the elements are, and the text of a sentence is collected up to the limit only,
    however much its entities expand to.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.number = 0
        self.ended = False
        self.done: list[tuple[int, str | list[tuple[str, str, int]]]] = []
        self.fault: str | None = None
        self.sides: list[tuple[str, str, int]] = []
        self.language: str | None = None
        self.text: list[str] | None = None  # of the <seg> that is open
        self.size = self.inside_codes = 0
        self.parser = ParserCreate(namespace_separator="}")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.SkippedEntityHandler = self._undefined
        self.parser.ExternalEntityRefHandler = self._external

    def read(self, chunk: bytes) -> None:
        """Give the parser a piece of the file, an empty one at its end."""
        self.ended = not chunk
        self.parser.Parse(chunk, self.ended)

    def take(self) -> list[tuple[int, str | list[tuple[str, str, int]]]]:
        """(number, what is wrong or [(language, text, length)]) of the units since the last call."""
        done, self.done = self.done, []
        return done

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        tag = name.rpartition("}")[2]
        if tag == "tu":
            self.number += 1
            self.fault, self.sides = None, []
        elif tag == "tuv":
            self.language = attributes.get(_LANGUAGE) or attributes.get("lang")
            self._check_language()
        elif tag == "seg" and self.language is not None:
            self.text, self.size = [], 0
        elif self.text is not None and (self.inside_codes or tag in _CODES):
            self.inside_codes += 1

    def _end(self, name: str) -> None:
        tag = name.rpartition("}")[2]
        if tag == "tu":
            self.done.append((self.number, self.fault or self.sides))
        elif tag == "seg" and self.text is not None:
            self._close()
        elif self.text is not None and self.inside_codes:
            self.inside_codes -= 1

    def _characters(self, text: str) -> None:
        if self.text is not None and not self.inside_codes:
            # White space is still to be removed: so more than the limit is kept.
            if self.size <= 2 * self.limit:
                self.text.append(text)
            self.size += len(text)

    def _check_language(self) -> None:
        try:
            if self.language is None:
                raise ValueError("a <tuv> without xml:lang")
            self.language = check_language(self.language)
        except ValueError as error:
            self.fault, self.language = self.fault or str(error), None

    def _close(self) -> None:
        try:
            text = clean_text("".join(self.text or ()))
            size = len(text) if self.size <= 2 * self.limit else max(len(text), self.size)
            self.sides.append((self.language or "", text, size))
        except ValueError as error:
            self.fault = self.fault or str(error)
        self.text, self.inside_codes = None, 0

    def _undefined(self, name: str, is_parameter: bool) -> None:
        self.fault = self.fault or f"the entity &{name}; is not defined"

    def _external(self, context: str | None, *others: str | None) -> int:
        self.fault = self.fault or "an entity in another file, which is not read"
        return 1
