"""Finding the words of a sentence, and stop words."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import lru_cache

import regex

from st_xlret.data.languages import language_in_name
from st_xlret.data.reading.jsonl import read_lines
from st_xlret.data.reading.sources import existing_path
from st_xlret.data.reading.text import clean_text, fold
from st_xlret.optional import import_optional

UNSPACED_LANGUAGES = frozenset({"ja", "km", "lo", "my", "th", "wuu", "yue", "zh"})
"""Languages written without spaces between words (their primary codes)."""

Spans = list[tuple[int, int]]
"""Half-open character spans."""

# Marks (Indic vowel signs, accents) belong to the word, and so do the joiners inside it.
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}\u200c\u200d]+")
_ASCII_WORD = re.compile("[A-Za-z0-9]+")  # the same, faster
_STOP_WORD_CODES = {"nb": "no", "nn": "no", "fil": "tl"}


def split_words(text: str, language: str) -> Spans:
    """Find the words of a sentence.

    Words are runs of letters, marks and digits. In `UNSPACED_LANGUAGES` they come from the dictionaries
    of ICU, through the optional library `icu4py`.

    Args:
        text: A sentence.
        language: Its language code.

    Returns:
        Half-open character spans of the words, in order.

    Raises:
        ImportError: For a language without spaces where `icu4py` (the extra `words`) is not installed.

    Example:
        >>> [("It's a dog."[start:end]) for start, end in split_words("It's a dog.", "en")]
        ['It', 's', 'a', 'dog']
    """
    return word_splitter(language)(text)


def is_unspaced(language: str) -> bool:
    """Whether a language is written without spaces between words."""
    return language.partition("-")[0] in UNSPACED_LANGUAGES


@lru_cache(maxsize=1024)
def word_splitter(language: str) -> Callable[[str], Spans]:
    """The function from a text to its word spans, for one language; see `split_words`."""
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


@lru_cache(maxsize=1024)
def stop_words(language: str) -> frozenset[str]:
    """The stop words of a language, folded as `fold` does, from the library `stopwordsiso`.

    Returns:
        The words; none where the library has no list for the language.

    Raises:
        ImportError: If the library (the extra `words`) is not installed.

    Example:
        >>> "the" in stop_words("en"), "library" in stop_words("en")
        (True, False)
    """
    stopwordsiso = import_optional("stopwordsiso", extra="words", needed_for="lists of stop words")
    primary = language.partition("-")[0]
    return frozenset(map(fold, stopwordsiso.stopwords(_STOP_WORD_CODES.get(primary, primary))))


def read_stop_words(path: str | os.PathLike[str]) -> tuple[str, frozenset[str]]:
    r"""Read stop words from a text file of one word per line that is named after its language.

    Args:
        path: A UTF-8 file such as `en.txt` or `mine.pt-br.txt`, plain or gzipped.

    Returns:
        The language, and its words as `fold` gives them.

    Raises:
        DataError: If the file does not exist, is not named after a language, or is not UTF-8.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp(), "short.en.txt")
        >>> _ = file.write_text("the\nAnd\n", encoding="utf-8")
        >>> language, words = read_stop_words(file)
        >>> language, sorted(words)
        ('en', ['and', 'the'])
    """
    language = language_in_name(path)
    return language, frozenset(fold(clean_text(line)) for _, line in read_lines(existing_path(path)))


def _words_between_spaces(text: str) -> Spans:
    pattern = _ASCII_WORD if text.isascii() else _WORD
    return [match.span() for match in pattern.finditer(text)]
