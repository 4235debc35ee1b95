"""Cleaning texts, splitting columns, and making texts comparable."""

from __future__ import annotations

import unicodedata
from typing import Any


def clean_text(text: Any) -> str:
    r"""Replace every run of white space by a single space.

    Raises:
        ValueError: If `text` is not a string, or contains half of a surrogate pair (which JSON escapes can produce).

    Example:
        >>> clean_text(" It\trained.\n")
        'It rained.'
    """
    if not isinstance(text, str):
        raise ValueError(f"a sentence must be a string, found {type(text).__name__} {text!r:.40}")
    check_characters(text)
    return " ".join(text.split())


def check_characters(text: str) -> None:
    """Raise a ValueError if a text contains half of a surrogate pair, which JSON escapes can produce."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError(
                f"the text contains half of a surrogate pair, which is not a character: {text!r:.60}"
            ) from None


def two_columns(line: str, *, spaces: bool) -> tuple[str, str]:
    r"""Split a line of two columns at its tab or, with `spaces`, two words at the space between them.

    Raises:
        ValueError: If there are not two columns.

    Example:
        >>> two_columns("guinea pig\tMeerschweinchen", spaces=True), two_columns("dog Hund", spaces=True)
        (('guinea pig', 'Meerschweinchen'), ('dog', 'Hund'))
    """
    columns = line.split() if spaces and "\t" not in line else line.split("\t")
    if len(columns) != 2:
        separator = "a tab or (single words) a space" if spaces else "a tab"
        raise ValueError(f"expected 2 columns with {separator} between them, found {len(columns)}: {line[:80]!r}")
    return clean_text(columns[0]), clean_text(columns[1])


def normalise_text(text: str) -> str:
    """Reduce a text to its letters, marks and digits in lower case, to find texts that are nearly equal.

    Compatibility forms are unified (NFKC); punctuation, symbols, white space and invisible characters are removed.

    Example:
        >>> normalise_text("He said: “No, thanks!”") == normalise_text("he said no thanks")
        True
    """
    return unicodedata.normalize("NFKC", text).lower().translate(_LETTERS_ONLY)


def fold(text: str) -> str:
    """Make texts comparable that differ only in case or in how their accents are encoded.

    Example:
        >>> fold("CAFE\u0301") == fold("café")
        True
    """
    return unicodedata.normalize("NFC", text).casefold()


class _LettersOnly(dict[int, "int | None"]):
    """A translation table that keeps letters, marks and digits. It is filled as characters come up."""

    def __missing__(self, character: int) -> int | None:
        kept = character if unicodedata.category(chr(character))[0] in "LMN" else None
        self[character] = kept
        return kept


_LETTERS_ONLY = _LettersOnly()
