"""A reader of each format of parallel sentences: files to pairs."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from glob import escape
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from st_xlret.data.cells import read_tabbed_table
from st_xlret.data.reading import (
    BadLines,
    DataError,
    first_record,
    is_header,
    parse_entries,
    raw_lines,
    read_jsonl,
    read_lines,
    with_known_names,
)
from st_xlret.data.texts import clean_text
from st_xlret.field_names import has_fields
from st_xlret.files import PathLike
from st_xlret.folders import unpacked_name
from st_xlret.languages import check_language, languages_in_name, required_language

FORMATS = (
    "JSON lines with source, target, source_language and target_language (.jsonl), and a score or"
    " not; two columns, or"
    " three with a score in the first, in files named after their languages (WikiMatrix.en-fr.tsv,"
    " en-fr.txt); and a file for each side, line by line (X.en-fr.en beside X.en-fr.fr,"
    " tatoeba.fra-eng.fra beside tatoeba.fra-eng.eng); all may be compressed (.gz, .xz)"
)
_LIKE_TWO_LANGUAGES = re.compile(r"(^|\.)[a-z]{2,3}-[a-z]{2,3}([-_]\w+)*\.", re.IGNORECASE)


class Pair(NamedTuple):
    """A pair as read; None is the score of formats without one, NaN a missing one."""

    source: str
    target: str
    source_language: str
    target_language: str
    score: float | None = None


def holds_pairs(file: Path) -> bool:
    """Whether a file of a folder is one of parallel sentences, or is to be refused as such."""
    name = unpacked_name(file)
    if name.endswith(".jsonl"):
        record = first_record(file)
        return not record or has_fields(record, ("source", "target"))
    if name.endswith((".tsv", ".txt")):
        return has_languages_in_name(file) or bool(_LIKE_TWO_LANGUAGES.search(name))
    return moses_files(file) is not None


def has_languages_in_name(file: PathLike) -> bool:
    """Whether a file is named after two languages, as tables of pairs and dictionaries are."""
    with suppress(ValueError):
        return bool(languages_in_name(file))
    return False


def moses_files(file: Path) -> tuple[Path, Path] | None:
    """Source and target file, of which this is one in Moses' format, or None.

    A `DataError` if one is missing.
    """
    base = unpacked_name(file).rpartition(".")[0]
    if not has_languages_in_name(base):
        return None
    languages = languages_in_name(base)
    if _code_at_the_end(file) not in languages:
        return None
    # Files of the same compression come first: there may be X.en-fr.fr and X.en-fr.fr.gz.
    beside = sorted(
        file.parent.glob(f"{escape(base)}.*"),
        key=lambda path: (path != file, path.suffix != file.suffix),
    )
    sides = []
    for code in languages:
        for path in beside:
            if _code_at_the_end(path) == code:
                sides.append(path)
                break
        else:
            missing = f"{base}.{code}"
            raise DataError(f"the other file of parallel sentences, {missing}, is missing", file)
    source, target = sides
    return source, target


def _code_at_the_end(file: Path) -> str | None:
    """The language that a file is named after, as `en` of `talks.en`; None if it is none."""
    with suppress(ValueError):
        return check_language(unpacked_name(file).rpartition(".")[2])
    return None


def pairs_of_file(file: Path, bad_lines: BadLines) -> Iterator[Pair]:
    """Stream the pairs of a file; of two in Moses' format, it is either."""
    name = unpacked_name(file)
    sides = moses_files(file)
    if sides:
        languages = languages_in_name(name.rpartition(".")[0])
        both = _aligned_lines(*sides, bad_lines)
        return parse_entries(both, partial(_pair_of_lines, languages=languages), file, bad_lines)
    if name.endswith(".jsonl"):
        return parse_entries(read_jsonl(file, bad_lines), pair_of_record, file, bad_lines)
    if not name.endswith((".tsv", ".txt")):
        raise DataError(f"in no format of parallel sentences, which are {FORMATS}", file)
    languages = languages_in_name(file)
    cells = rows_below_header(file, languages, bad_lines)
    return parse_entries(cells, partial(_pair_of_cells, languages=languages), file, bad_lines)


def rows_below_header(
    file: Path, languages: tuple[str, str], bad_lines: BadLines
) -> Iterator[tuple[int, list[str]]]:
    """The numbers and cells of the lines of a table, whose first line may name its columns."""
    for number, cells in _rows_of(file, bad_lines):
        if number == 1 and is_header(cells[-2:], languages, file):
            continue
        yield number, cells


def _rows_of(file: Path, bad_lines: BadLines) -> Iterator[tuple[int, list[str]]]:
    """The numbers and cells of the lines of a table, or of two words with a space between them."""
    if unpacked_name(file).endswith(".tsv"):
        yield from read_tabbed_table(file, bad_lines)
        return
    for number, line in read_lines(file, bad_lines):  # of words
        yield number, line.split("\t") if "\t" in line else line.split()


def _aligned_lines(
    source: Path, target: Path, bad_lines: BadLines
) -> Iterator[tuple[int, tuple[bytes, bytes]]]:
    """The lines of two files with the same number, undecoded."""
    # Line belongs to line: bad and blank ones keep their place.
    sides = raw_lines(source, bad_lines), raw_lines(target, bad_lines)
    for one, other in zip_longest(*sides):
        if one is None or other is None:
            problem = f"it and {target.name} have different numbers of lines: fetch both again"
            raise DataError(problem, source)
        number, line = one
        yield number, (line, other[1])


def _pair_of_cells(cells: Sequence[str], languages: tuple[str, str]) -> Pair:
    """The pair of source and target, with a score before them or not."""
    if len(cells) not in (2, 3):
        line = "\t".join(cells)[:80]
        expected = "expected two columns with a tab between them, or a score before them"
        raise ValueError(f"{expected}, found {line!r}")
    source, target = map(clean_text, cells[-2:])
    score = float(cells[0]) if len(cells) == 3 else None
    return Pair(source, target, *languages, score)


def _pair_of_lines(lines: Sequence[bytes], languages: tuple[str, str]) -> Pair:
    """The pair of two lines; a `ValueError` refuses what is no text."""
    texts = [line.decode("utf-8-sig") for line in lines]
    if any("\0" in text for text in texts):
        raise ValueError("a NUL character: no text, or UTF-16; save it as UTF-8")
    return _pair_of_cells(texts, languages)


def pair_of_record(record: Mapping[str, Any]) -> Pair:
    """The pair of a record; a `KeyError`, `TypeError` or `ValueError` for what is none."""
    named = with_known_names(record, ("source", "target", "score"))
    source = clean_text(named["source"])
    target = clean_text(named["target"])
    source_language = required_language(record, "source_language")
    target_language = required_language(record, "target_language")
    score = None
    if "score" in named:
        score = math.nan if named["score"] is None else float(named["score"])
    return Pair(source, target, source_language, target_language, score)
