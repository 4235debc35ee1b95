"""Names of fields, of which case, white space and the encoding of accents do not matter."""

import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias

_Names: TypeAlias = tuple[str, ...]


def find_fields(names: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """The names that are wanted, in that order; of those that differ in case alone, all.

    The one that is spelled as it is wanted comes first. White space around names does not matter,
    nor how accents are encoded.
    """
    groups = _alike(tuple(names), tuple(wanted))
    return list(chain.from_iterable(groups))


def has_fields(names: Iterable[str], wanted: Iterable[str]) -> bool:
    """Whether all that are wanted are among the names, whatever their case."""
    return all(_alike(tuple(names), tuple(wanted)))


def unique_fields(record: Mapping[str, Any], wanted: Iterable[str]) -> list[str]:
    """The names of the fields that are wanted, in that order, whatever their case.

    Of several names of one field, the one with a value. A `ValueError` refuses two with values:
    one of these would be lost.
    """
    fields: list[str] = []
    for alike in _alike(tuple(record), tuple(wanted)):
        names = alike
        if len(alike) > 1:
            names = tuple(name for name in alike if record[name] is not None)
        if len(names) > 1:
            raise ValueError(problem_with_names(names))
        fields += names
    return fields


def problem_with_names(names: Iterable[str]) -> str:
    """What is wrong with names that differ in case alone."""
    listed = " and ".join(map(repr, names))
    return f"{listed} are names of one field: rename or remove all but one"


@lru_cache(maxsize=256)
def _alike(names: _Names, wanted: _Names) -> tuple[_Names, ...]:
    """The names that are meant by each that is wanted, the one that is spelled so first.

    A group for each, in that order; empty where no name is meant.
    """
    groups = []
    for field in wanted:
        alike = [name for name in names if _folded(name) == _folded(field)]
        alike.sort(key=lambda name: name != field)
        groups.append(tuple(alike))
    return tuple(groups)


def _folded(name: Any) -> str:
    """What two spellings of a name have in common."""
    return unicodedata.normalize("NFC", str(name)).strip().casefold()
