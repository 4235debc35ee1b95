"""Texts: cleaned, compared, split into sentences and joined again."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import regex

from st_xlret.languages.codes import primary_code

_JOINED_WITHOUT_SPACES = ("ja", "zh", "yue")
_WITHOUT_SENTENCE_MARKS = ("lo", "th")
_PHRASES = re.compile(r"\S.{59,}?(?=\s.{60}|$)|\S.*")  # the last one is not shorter either
_NO_LETTERS = regex.compile(r"[^\p{L}\p{M}\p{N}]+")
_BLANK_LINE = "\n\\s*\n"
_MARK_OF_TIBETAN_OR_KHMER = "(?<=[\u0f0d\u0f0e\u17d4])(?!\\s*[\u0f0d\u0f0e])"
_BREAKS = re.compile(f"{_BLANK_LINE}|{_MARK_OF_TIBETAN_OR_KHMER}")


def clean_text(text: Any) -> str:
    """Replace every run of white space by a single space.

    A `ValueError` refuses what is no string, and half of a surrogate pair.
    """
    if not isinstance(text, str):
        raise ValueError(f"a text must be a string, found {type(text).__name__} {text!r:.40}")
    text.encode()  # Arrow would refuse half of a surrogate pair without naming a line
    return " ".join(text.split())


def normalize_text(text: str) -> str:
    """Reduce a text to its letters, marks and digits in lower case (NFKC).

    Texts that are nearly equal become equal.
    """
    return _NO_LETTERS.sub("", unicodedata.normalize("NFKC", text).lower())


def split_sentences(text: str, language: str) -> list[str]:
    r"""Split running text into sentences by `sentencex`, none empty; a blank line always ends one.

    Thai and Lao, without sentence marks, are cut at spaces into runs of whole phrases of at least
    60 characters.

    Example:
        >>> split_sentences("Dr. Smith left. Did he?\nYes.", "en")
        ['Dr. Smith left.', 'Did he?', 'Yes.']
    """
    import sentencex

    primary = primary_code(language)
    sentences = []
    for part in _BREAKS.split(text):
        for segment in sentencex.segment(primary, part):
            sentence = " ".join(segment.split())
            if not sentence:
                continue
            if primary in _WITHOUT_SENTENCE_MARKS:
                sentences += _PHRASES.findall(sentence)
            else:
                sentences.append(sentence)
    return sentences


def join_sentences(sentences: Sequence[str], language: str) -> str:
    """Join consecutive sentences into running text, with a space where the language writes one."""
    if primary_code(language) in _JOINED_WITHOUT_SPACES:
        return "".join(sentences)
    return " ".join(sentences)
