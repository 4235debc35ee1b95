"""Words of a language: where they stand in a sentence, when they are equal, and its stop words."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import regex

from st_xlret.data.reading import read_lines
from st_xlret.data.texts import clean_text
from st_xlret.files import PathLike
from st_xlret.languages import language_in_name
from st_xlret.optional import import_optional

_UNSPACED_LANGUAGES = frozenset({"ja", "km", "lo", "my", "th", "wuu", "yue", "zh"})
"""Languages written without spaces between words (their primary codes)."""
Span: TypeAlias = tuple[int, int]
"""Half-open, of characters or tokens."""

# Marks (Indic vowel signs, accents) belong to the word, and so do the joiners inside it.
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}\u200c\u200d]+")
_ASCII_WORD = regex.compile("[A-Za-z0-9]+")  # the same, faster
_STOP_WORD_CODES = {"nb": "no", "nn": "no", "fil": "tl"}


def fold_text(text: str) -> str:
    """Make texts comparable that differ only in case or in how their accents are encoded."""
    return unicodedata.normalize("NFC", text).casefold()


@lru_cache(maxsize=1024)
def stop_words(language: str) -> frozenset[str]:
    """The stop words of a language, after `fold_text`, from the library `stopwordsiso`.

    None at all, an empty set, where it has no list.
    """
    stopwordsiso = import_optional("stopwordsiso", extra="words", needed_for="lists of stop words")
    primary = language.partition("-")[0]
    words = stopwordsiso.stopwords(_STOP_WORD_CODES.get(primary, primary))
    return frozenset(map(fold_text, words))


def read_stop_words(path: PathLike) -> tuple[str, frozenset[str]]:
    """Read stop words, one per line, of a text file that is named after its language.

    Such as `en.txt` or `mine.pt-br.txt`.
    """
    words = [fold_text(clean_text(line)) for _, line in read_lines(path)]
    return language_in_name(path), frozenset(words)


@lru_cache(maxsize=1024)
def word_splitter(language: str) -> Callable[[str], list[Span]]:
    """The function from a sentence to the half-open character spans of its words, in order.

    Words are runs of letters, marks and digits; in languages without spaces, those of ICU's
    dictionaries (`icu4py`).
    """
    if language.partition("-")[0] in _UNSPACED_LANGUAGES:
        return _icu_splitter(language)
    return _spans_of_runs


def _spans_of_runs(text: str) -> list[Span]:
    word = _ASCII_WORD if text.isascii() else _WORD
    return [found.span() for found in word.finditer(text)]


def _icu_splitter(language: str) -> Callable[[str], list[Span]]:
    """A function that finds the words in a text: half-open spans of characters, ascending."""
    needed_for = (
        f"finding words in {language!r}, which puts no spaces between them"
        " (needs Python 3.11; or leave it out)"
    )
    breakers = import_optional("icu4py.breakers", extra="words", needed_for=needed_for)

    def spans_of_pieces(text: str) -> list[Span]:
        spans = []
        end = 0
        # Not its segments(): those count UTF-16 units.
        for piece in breakers.WordBreaker(text, language):
            start = end
            end += len(piece)
            if _WORD.search(piece):
                spans.append((start, end))
        return spans

    return spans_of_pieces
