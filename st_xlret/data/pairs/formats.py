"""Recognising the format of a file of parallel sentences by its name and its first lines."""

from __future__ import annotations

from glob import escape
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from st_xlret.data.languages import NoLanguagesError, check_language, languages_in_name
from st_xlret.data.reading.jsonl import BadLines, DataError, read_lines
from st_xlret.data.reading.sources import JSONL, first_record

FORMATS = """the formats of parallel sentences are:
  .jsonl    records with 'source', 'target', 'source_language' and 'target_language', or documents with 'language',
            'sentences' and 'verses' (sentences of two languages with the same reference are a pair)
  .tmx      translation memories
  .tsv      two columns, or three with a score in the first; the languages are in the name: WikiMatrix.en-fr.tsv
  .txt      the same, or two words with a space between them: en-fr.txt
  Moses     one file for each side, X.en-fr.en beside X.en-fr.fr
each of them plain or gzipped (.gz)"""

_LINES_TO_JUDGE_BY = 20


class PairFile(NamedTuple):
    """A file of parallel sentences and its format.

    Attributes:
        path: The file.
        format: "records", "verses", "tmx", "columns", "words" (two words with a space between them), "scored" or
            "moses".
        languages: The languages in its name, for the last four of these formats.
        other_side: The file of the target language, for "moses"; `path` is that of the source language.
    """

    path: str
    format: str
    languages: tuple[str, str] | None = None
    other_side: str | None = None


def recognise(path: Path) -> PairFile | None:
    r"""Tell the format of a file, or return None if it contains no parallel sentences.

    Raises:
        DataError: If its name has an unknown language code or may stand for several language pairs, or if one of the
            two files of Moses' format is missing.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "my-words.en-fr.tsv")
        >>> _ = file.write_text("dog\tchien\n", encoding="utf-8")
        >>> recognise(file)[1:3]
        ('columns', ('en', 'fr'))
    """
    name = path.name.removesuffix(".gz")
    if path.name.endswith(JSONL):
        return _recognise_jsonl(path)
    if name.endswith(".tmx"):
        return PairFile(str(path), "tmx")
    if name.endswith((".tsv", ".txt")):
        return _recognise_columns(path)
    return _recognise_moses(path)


def require_format(path: Path) -> PairFile:
    """Tell the format of a file that the user named.

    Raises:
        DataError: If it contains no parallel sentences; the formats are listed.
    """
    try:
        found = recognise(path)
    except NoLanguagesError as error:
        raise DataError(f"{error}\n{FORMATS}") from error
    if found is None:
        raise DataError(f"{str(path)!r} contains no parallel sentences; {FORMATS}")
    return found


def _recognise_jsonl(path: Path) -> PairFile | None:
    record = first_record(path)
    if record is None:
        return None
    if "verses" in record and "sentences" in record:
        return PairFile(str(path), "verses")
    # Files whose lines are all bad give an empty record. They are taken: reading them then reports the lines.
    return PairFile(str(path), "records") if not record or {"source", "target"} <= record.keys() else None


def _recognise_columns(path: Path) -> PairFile | None:
    languages = languages_in_name(path)
    for _, line in islice(read_lines(path, on_bad_line=BadLines(skip=True)), _LINES_TO_JUDGE_BY):
        cells = line.split("\t")
        if len(cells) == 3 and _is_number(cells[0]):
            return PairFile(str(path), "scored", languages)
        if len(cells) == 2:
            return PairFile(str(path), "columns", languages)
        if path.name.removesuffix(".gz").endswith(".txt") and len(line.split()) == 2:
            return PairFile(str(path), "words", languages)
    return None


def _recognise_moses(path: Path) -> PairFile | None:
    base = path.name.removesuffix(".gz").rpartition(".")[0]
    try:
        languages = languages_in_name(base)
    except DataError:
        return None
    if _side(path, base) not in languages:
        return None
    # The given file and others of the same compression come first: there may be X.en-fr.fr and X.en-fr.fr.gz.
    beside = sorted(path.parent.glob(f"{escape(base)}.*"), key=lambda file: (file != path, file.suffix != path.suffix))
    sides = [next((file for file in beside if _side(file, base) == code), None) for code in languages]
    if sides[0] is None or sides[1] is None:
        missing = languages[sides.index(None)]
        raise DataError(f"{str(path)!r} is one of two files in Moses' format, and {base}.{missing} is not beside it")
    return PairFile(str(sides[0]), "moses", languages, str(sides[1]))


def _side(path: Path, base: str) -> str | None:
    """The language of one of two files in Moses' format."""
    try:
        return check_language(path.name[len(base) + 1 :].removesuffix(".gz"))
    except ValueError:
        return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
