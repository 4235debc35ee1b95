"""Bilingual dictionaries, the words of a sentence, and stop words."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import regex

from st_xlret.data.lines import BadLines, DataError, Limits, PathLike, read_lines
from st_xlret.data.sources import existing_path
from st_xlret.data.text import clean_text, fold, two_columns
from st_xlret.languages import check_language, check_languages, language_in_name, languages_in_name, match_language
from st_xlret.optional import import_optional

_SUFFIXES = (".txt", ".txt.gz", ".tsv", ".tsv.gz")
_FEWEST_WORDS = 10  # fewer words in the wrong column may be there by chance


@dataclass
class Dictionary:
    """Word pairs of two languages.

    Attributes:
        source_language: Language of the first words.
        target_language: Language of the second words.
        entries: (source word, target word), each pair once, in the order read. Words may be phrases.
        name: Its files, for messages.
        bad_lines: The lines that were skipped.
    """

    source_language: str
    target_language: str
    entries: list[tuple[str, str]]
    name: str = "<dictionary>"
    bad_lines: BadLines = field(default_factory=BadLines, repr=False)

    def __post_init__(self) -> None:
        self.source_language = check_language(self.source_language, where="source_language")
        self.target_language = check_language(self.target_language, where="target_language")

    def __len__(self) -> int:
        return len(self.entries)

    def swapped(self) -> Dictionary:
        """Return the same dictionary from the target to the source language."""
        entries = [(target, source) for source, target in self.entries]
        return replace(
            self, source_language=self.target_language, target_language=self.source_language, entries=entries
        )

    def check_direction(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Refuse a dictionary whose columns look swapped, judged by sentences of the two languages.

        They look swapped if over twice as many words of the sentences are in the other column as in their own.
        """
        columns = [{fold(entry[side]) for entry in self.entries} for side in (0, 1)]
        own = other = 0
        one, two = self.source_language, self.target_language
        for side, (sentences, language) in enumerate(((sources, one), (targets, two))):
            split = word_splitter(language)
            words = {fold(text[start:end]) for text in sentences for start, end in split(text)}
            own += len(words & columns[side])
            other += len(words & columns[1 - side])
        if other >= _FEWEST_WORDS and other > 2 * own:
            raise DataError(
                f"{self.name} is read from {one!r} to {two!r}, but {other} words of the sentences are in the column "
                f"of the other language and {own} in their own; did you mean to swap its languages? "
                f"Read it from {two!r} to {one!r} (a file is named after its languages: words.{two}-{one}.tsv)"
            )


def read_dictionary(
    paths: PathLike | Iterable[PathLike], *, skip_bad_lines: bool = False, limits: Limits | None = None
) -> Dictionary:
    r"""Read a bilingual dictionary: two columns with a tab or, as in MUSE's files, a space between them.

    White space becomes single spaces. A line with a tab may contain phrases; a line without one has exactly two words.
    An entry that occurs again is taken once.

    Args:
        paths: One or several `.txt` or `.tsv` files of one language pair, plain or gzipped (`.gz`). The languages of
            the two columns are read off the names (`WORDS.en-fr.tsv.gz`).
        skip_bad_lines: Skip and count bad lines instead of raising an error.
        limits: Longest line of a file.

    Raises:
        DataError: For a bad line (file and line are named) or file, files of several language pairs, or no entry.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "en-de.txt"
        >>> _ = file.write_text("dog Hund\nguinea pig\tMeerschweinchen\n", encoding="utf-8")
        >>> read_dictionary(file).entries
        [('dog', 'Hund'), ('guinea pig', 'Meerschweinchen')]
    """
    files = sorted({_checked_path(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)})
    named = {languages_in_name(file): file for file in files}
    if len(named) != 1:
        raise DataError(f"a dictionary is of one language pair, got {len(named)}: {list(map(str, named.values()))}")
    bad_lines = BadLines(skip_bad_lines, limits or Limits())
    entries: dict[tuple[str, str], None] = {}
    for file in files:
        for number, line in read_lines(file, bad_lines):
            try:
                source, target = two_columns(line, spaces=True)
                if not source or not target:
                    raise ValueError("one of the two columns is empty")
                if "\ufffd" in line:
                    raise ValueError(
                        f"{line!r:.60} contains the replacement character: the file was once read in a wrong encoding"
                    )
                entries[source, target] = None
            except ValueError as error:
                bad_lines(str(error), file, number)
    name = ", ".join(map(str, files))
    if not entries:
        raise DataError("\n".join([f"{name} contains no entry", *bad_lines.losses()]))
    return Dictionary(*next(iter(named)), list(entries), name, bad_lines)


def load_dictionaries(
    paths: Iterable[PathLike],
    *,
    languages: Iterable[str] | None = None,
    skip_bad_lines: bool = False,
    limits: Limits | None = None,
) -> list[Dictionary]:
    """Read the dictionaries whose two languages are wanted, each file as one dictionary.

    `languages` are the codes to keep, all by default; the rest is as for [`read_dictionary`][st_xlret.read_dictionary].

    Raises:
        DataError: For a bad file, as `read_dictionary`, or if no dictionary is left.
    """
    wanted, listed = check_languages(languages), list(paths)
    kept = [path for path in listed if all(match_language(code, wanted) for code in languages_in_name(path))]
    if not kept:
        named = f" is between two of {', '.join(sorted(wanted))}: {[os.fspath(p) for p in listed]}" if wanted else ""
        raise DataError(f"none of the {len(listed)} dictionaries{named}" if listed else "no dictionaries given")
    return [read_dictionary(path, skip_bad_lines=skip_bad_lines, limits=limits) for path in kept]


def _checked_path(path: PathLike) -> Path:
    file = existing_path(path)
    if file.is_dir():
        raise DataError(f"{os.fspath(path)!r} is a directory; pass the dictionaries of one language pair by name")
    if not file.name.endswith(_SUFFIXES):
        raise DataError(f"{os.fspath(path)!r} does not end in {' or '.join(_SUFFIXES)}")
    return file


UNSPACED_LANGUAGES = frozenset({"ja", "km", "lo", "my", "th", "wuu", "yue", "zh"})
"""Languages written without spaces between words (their primary codes)."""

Spans = list[tuple[int, int]]
"""Half-open character spans."""

# Marks (Indic vowel signs, accents) belong to the word, and so do the joiners inside it.
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}\u200c\u200d]+")
_ASCII_WORD = re.compile("[A-Za-z0-9]+")  # the same, faster
_STOP_WORD_CODES = {"nb": "no", "nn": "no", "fil": "tl"}


def is_unspaced(language: str) -> bool:
    """Whether a language is written without spaces between words."""
    return language.partition("-")[0] in UNSPACED_LANGUAGES


@lru_cache(maxsize=1024)
def word_splitter(language: str) -> Callable[[str], Spans]:
    """The function from a sentence of a language to the half-open character spans of its words, in order.

    Words are runs of letters, marks and digits. In `UNSPACED_LANGUAGES` they come from the dictionaries of ICU.

    Raises:
        ImportError: For a language without spaces where `icu4py` (the extra `words`) is not installed.

    Example:
        >>> [("It's a dog."[start:end]) for start, end in word_splitter("en")("It's a dog.")]
        ['It', 's', 'a', 'dog']
    """
    if not is_unspaced(language):
        return _words_between_spaces
    purpose = f"finding words in {language!r}, which puts no spaces between them (needs Python 3.11; or leave it out)"
    WordBreaker = import_optional("icu4py.breakers", extra="words", needed_for=purpose).WordBreaker  # noqa: N806

    def words_by_dictionary(text: str) -> Spans:
        spans, end = [], 0
        # Not its segments(): those count UTF-16 units.
        for piece in WordBreaker(text, language):
            start, end = end, end + len(piece)
            if _WORD.search(piece):
                spans.append((start, end))
        return spans

    return words_by_dictionary


def _words_between_spaces(text: str) -> Spans:
    pattern = _ASCII_WORD if text.isascii() else _WORD
    return [match.span() for match in pattern.finditer(text)]


@lru_cache(maxsize=1024)
def stop_words(language: str) -> frozenset[str]:
    """The stop words of a language, folded as `fold` does, from the library `stopwordsiso`; none if it has no list.

    Raises:
        ImportError: If the library (the extra `words`) is not installed.
    """
    stopwordsiso = import_optional("stopwordsiso", extra="words", needed_for="lists of stop words")
    primary = language.partition("-")[0]
    return frozenset(map(fold, stopwordsiso.stopwords(_STOP_WORD_CODES.get(primary, primary))))


def read_stop_words(path: PathLike) -> tuple[str, frozenset[str]]:
    """Read stop words, one per line, of a text file that is named after its language: `en.txt`, `mine.pt-br.txt`."""
    language = language_in_name(path)
    return language, frozenset(fold(clean_text(line)) for _, line in read_lines(existing_path(path)))
