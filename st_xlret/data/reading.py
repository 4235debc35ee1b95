"""Lines and records of files, plain or compressed, each with its number."""

import codecs
import gzip
import json
import logging
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from st_xlret.field_names import unique_fields
from st_xlret.files import PathLike
from st_xlret.folders import UNPACKERS
from st_xlret.languages import normal_code_or_none
from st_xlret.strict_json import object_of_pairs

_Parsed = TypeVar("_Parsed")

_logger = logging.getLogger(__name__)
_DAMAGES = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
_SOURCE = {"source", "src"}
_TARGET = {"target", "trg", "tgt"}
_COLUMN_NAME = re.compile(
    "source|target|src|tgt|trg|text|sent(ence)?|segment|word|phrase|query|translation|lang"
)


class DataError(ValueError):
    """Something is wrong with data; the message begins with the file and the line."""

    def __init__(self, reason: str, file: PathLike = "", line: int = 0) -> None:
        place = []
        if file:
            place.append(os.fspath(file))
        if line:
            place.append(str(line))
        where = ", line ".join(place)
        super().__init__(f"{where}: {reason}" if where else reason)


@dataclass
class BadLines:
    """What to do about a bad line: a `DataError`, or with `skip` it is kept in `skipped`."""

    skip: bool = False
    skipped: list[str] = field(default_factory=list)
    """File, line and reason of each."""

    def __call__(self, reason: str, file: PathLike, line: int) -> None:
        """Raise the error, or count the line."""
        error = DataError(reason, file, line)
        if not self.skip:
            raise error
        self.skipped.append(str(error))

    def warn(self) -> None:
        """Log how many lines were skipped, and the first of them."""
        if self.skipped:
            first = "\n".join(self.skipped[:3])
            _logger.warning("bad lines skipped: %d, the first: %s", len(self.skipped), first)


def raw_lines(path: PathLike, bad_lines: BadLines) -> Iterator[tuple[int, bytes]]:
    """Stream (number, bytes) of all lines of a file, plain or compressed (`UNPACKERS`)."""
    number = 0
    with _open(path) as stream:
        try:
            for number, line in enumerate(stream, start=1):
                if number == 1 and b"\r" in line.rstrip() and not line.endswith(b"\n"):
                    problem = "its lines end as on old Macs, by \\r alone: write \\n in its place"
                    bad_lines(problem, path, number)
                    return
                yield number, line
        except _DAMAGES as error:
            problem = f"the compressed file is truncated or damaged from here on ({error})"
            bad_lines(problem, path, number + 1)


def _open(path: PathLike) -> BinaryIO:
    unpack = UNPACKERS.get(Path(path).suffix)
    return open(path, "rb") if unpack is None else cast(BinaryIO, unpack(path))


def decoded_lines(path: PathLike, bad_lines: BadLines) -> Iterator[tuple[int, str]]:
    """Stream (number, line) of all lines of a file, without their ends.

    What is no UTF-8, or holds a NUL character, is a bad line. A byte order mark is left out.
    """
    for number, raw in raw_lines(path, bad_lines):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            is_utf16 = number == 1 and raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            hint = "; it looks like UTF-16: save it as UTF-8" if is_utf16 else ""
            problem = f"not UTF-8 text ({error.reason} at byte {error.start}){hint}"
            bad_lines(problem, path, number)
            continue
        if "\0" in line:
            bad_lines("a NUL character: no text, or UTF-16; save it as UTF-8", path, number)
            continue
        yield number, line.rstrip("\r\n")


def read_lines(path: PathLike, bad_lines: BadLines | None = None) -> Iterator[tuple[int, str]]:
    """Stream (number, line) of the lines of a UTF-8 file that are not blank.

    The file is plain or compressed. What is no UTF-8 is a bad line.
    """
    for number, line in decoded_lines(path, bad_lines or BadLines()):
        if line and not line.isspace():
            yield number, line


def read_jsonl(
    path: PathLike, bad_lines: BadLines | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Stream (line number, object) of a file of JSON lines, as `read_lines` does."""
    bad_lines = bad_lines or BadLines()
    # Twice as fast as `json.loads` with a hook.
    decode = json.JSONDecoder(object_pairs_hook=object_of_pairs).decode
    for number, line in read_lines(path, bad_lines):
        try:
            record = decode(line)
        except (ValueError, RecursionError) as error:
            bad_lines(f"not a JSON object ({error})", path, number)
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            bad_lines(f"not a JSON object ({type(record).__name__})", path, number)


def first_record(path: PathLike) -> Mapping[str, Any]:
    """The first record of a file of JSON lines; an empty one if there is none."""
    for _, record in read_jsonl(path, BadLines(skip=True)):
        return record
    return {}


def with_known_names(record: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """A record with fields under the known names from which theirs differ in case alone.

    A `ValueError` names two fields of one known name.
    """
    named = dict(record)
    for known_name in known:
        for own_name in unique_fields(record, [known_name]):
            named[known_name] = record[own_name]
    return named


def parse_entries(
    entries: Iterable[tuple[int, Any]],
    parse: Callable[[Any], _Parsed],
    file: PathLike,
    bad_lines: BadLines | None = None,
) -> Iterator[_Parsed]:
    """What `parse` makes of entries with their lines; those that it refuses are bad lines."""
    bad_lines = bad_lines or BadLines()
    for line, entry in entries:
        try:
            result = parse(entry)
        except KeyError as error:
            bad_lines(f"no field {error}", file, line)
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            bad_lines(str(error), file, line)
        else:
            yield result


def is_header(cells: Sequence[str], languages: tuple[str, str], file: PathLike) -> bool:
    """Whether the first line has the names of two columns, as `en` or `Text (English)`.

    A `DataError` if the languages stand the other way round than in the name of the file.
    """
    if len(cells) != 2:
        return False
    first, second = cells
    source, target = (code.partition("-")[0] for code in languages)
    of_first = _languages_in_cell(first, (source, target))
    of_second = _languages_in_cell(second, (source, target))
    if of_first is None or of_second is None or first.casefold() == second.casefold():
        return False
    if not of_first | of_second <= {source, target}:
        return False
    if of_first == {target} or of_second == {source}:
        said = f"its name says {' and '.join(languages)}"
        raise DataError(f"{said}, and its first line {first} and {second}", file, 1)
    if _TARGET & _words(first) and _SOURCE & _words(second):
        raise DataError(f"its columns stand the other way round: {first} and {second}", file, 1)
    return True


def _words(cell: str) -> set[str]:
    return set(re.findall("[a-z]+", cell.casefold()))


def _languages_in_cell(cell: str, primary: tuple[str, str]) -> set[str | None] | None:
    """The languages that a cell names, beside words such as `text`; None in it for other words.

    None if the cell has no words at all.
    """
    from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE as CODE_OF_NAME

    words = _words(cell)
    if not words:
        return None
    whole = (normal_code_or_none(cell) or "").partition("-")[0]  # such as en_US and fra_Latn
    if whole in primary:
        return {whole}
    codes = set()
    for word in words:
        if not _COLUMN_NAME.fullmatch(word):
            codes.add(CODE_OF_NAME.get(word) or normal_code_or_none(word))
    return codes
