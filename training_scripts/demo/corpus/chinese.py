"""Chinese word forms from the cells of the lexicon."""

from __future__ import annotations

from collections.abc import Callable

from training_scripts.demo.corpus.word_forms import Forms


def _noun(cell: str) -> Forms:
    measure, noun = cell.split()
    return {"_": noun, "measure": measure, "g": "n"}


def _person(cell: str, gender: str, *, name: bool) -> Forms:
    return {"_": cell, "g": gender}


def _pronoun(gender: str) -> Forms:
    return {"_": {"m": "他", "f": "她"}[gender], "g": gender}


def _adjective(cell: str) -> Forms:
    predicate, _, attribute = cell.partition("/")
    if attribute:
        return {"pred": predicate, "attr": attribute, "bare": predicate}
    return {"pred": "很" + cell, "attr": cell + "的", "bare": cell}


def _place(cell: str) -> Forms:
    noun, _, localiser = cell.partition(">")
    return {"_": f"在{noun}{localiser}", "bare": noun + localiser, "noun": noun}


def _number(cell: str, value: int) -> Forms:
    return {"_": cell}


def _clock(hour: int, minute: int) -> Forms:
    return {"_": f"{hour}点{minute:02d}分" if minute else f"{hour}点"}


#: Kind of concept -> its inflector.
INFLECTORS: dict[str, Callable[..., Forms]] = {
    "noun": _noun,
    "person": _person,
    "pronoun": _pronoun,
    "adjective": _adjective,
    "place": _place,
    "number": _number,
    "clock": _clock,
}
