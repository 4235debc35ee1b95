"""Cleaning and comparing texts, splitting them into sentences, and joining sentences."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

_JOINED_WITHOUT_SPACES = frozenset({"ja", "zh", "yue"})
_WITHOUT_SENTENCE_MARKS = frozenset({"lo", "th"})
_PHRASE_RUN_CHARACTERS = 60
_PARAGRAPH_BREAK = re.compile(r"\n\s*\n")


def clean_text(text: Any) -> str:
    """Replace every run of white space by a single space; a ValueError for no string or half of a surrogate pair."""
    if not isinstance(text, str):
        raise ValueError(f"a sentence must be a string, found {type(text).__name__} {text!r:.40}")
    check_characters(text)
    return " ".join(text.split())


def check_characters(text: str) -> None:
    """Raise a ValueError if a text contains half of a surrogate pair."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError(
                f"the text contains half of a surrogate pair, which is not a character: {text!r:.60}"
            ) from None


def two_columns(line: str, *, spaces: bool) -> tuple[str, str]:
    """Split a line of two columns at its tab or, with `spaces`, two words at the space between them."""
    columns = line.split() if spaces and "\t" not in line else line.split("\t")
    if len(columns) != 2:
        separator = "a tab or (single words) a space" if spaces else "a tab"
        raise ValueError(f"expected 2 columns with {separator} between them, found {len(columns)}: {line[:80]!r}")
    return clean_text(columns[0]), clean_text(columns[1])


def normalise_text(text: str) -> str:
    """Reduce a text to its letters, marks and digits in lower case (NFKC), to find texts that are nearly equal.

    Example:
        >>> normalise_text("He said: “No, thanks!”") == normalise_text("he said no thanks")
        True
    """
    return unicodedata.normalize("NFKC", text).lower().translate(_LETTERS_ONLY)


def fold(text: str) -> str:
    """Make texts comparable that differ only in case or in how their accents are encoded."""
    return unicodedata.normalize("NFC", text).casefold()


class _LettersOnly(dict[int, "int | None"]):
    """A translation table that is filled as characters come up."""

    def __missing__(self, character: int) -> int | None:
        kept = character if unicodedata.category(chr(character))[0] in "LMN" else None
        self[character] = kept
        return kept


_LETTERS_ONLY = _LettersOnly()


def split_sentences(text: str, language: str) -> list[str]:
    r"""Split running text into sentences, none empty.

    The rules are those of the library `sentencex` for the language, a related one, or general ones. Thai and Lao,
    without sentence marks, are cut at spaces into runs of whole phrases of at least 60 characters. White space becomes
    a single space, and a blank line always ends a sentence.

    Example:
        >>> split_sentences("Dr. Smith left. Did he?\nYes.", "en")
        ['Dr. Smith left.', 'Did he?', 'Yes.']
    """
    import sentencex

    primary = _primary(language)
    sentences: list[str] = []
    for paragraph in _PARAGRAPH_BREAK.split(text):
        for segment in sentencex.segment(primary, paragraph):
            if sentence := " ".join(segment.split()):
                sentences.extend(_phrase_runs(sentence) if primary in _WITHOUT_SENTENCE_MARKS else [sentence])
    return sentences


def join_sentences(sentences: Sequence[str], language: str) -> str:
    """Join consecutive sentences into running text, with a space where the language writes one."""
    return ("" if _primary(language) in _JOINED_WITHOUT_SPACES else " ").join(sentences)


def _primary(language: str) -> str:
    return language.lower().replace("_", "-").partition("-")[0]


def _phrase_runs(text: str) -> list[str]:
    runs = [""]
    for phrase in text.split():
        if len(runs[-1]) >= _PHRASE_RUN_CHARACTERS:
            runs.append("")
        runs[-1] = f"{runs[-1]} {phrase}" if runs[-1] else phrase
    if len(runs) > 1 and len(runs[-1]) < _PHRASE_RUN_CHARACTERS:
        runs[-2:] = [" ".join(runs[-2:])]
    return runs
