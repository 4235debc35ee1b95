"""What the inflection of all languages shares.

An inflector turns a cell of the lexicon into a table of forms: ``"_"`` is the form that a pattern's plain
``{slot}`` takes, ``"g"`` the gender that other words agree with.
"""

from __future__ import annotations

Forms = dict[str, str]


def words(cell: str) -> list[str]:
    """Split a cell at its spaces; an underscore stands for a space inside a word."""
    return [word.replace("_", " ") for word in cell.split()]
