"""English word forms from the cells of the lexicon."""

from __future__ import annotations

from collections.abc import Callable

from training_scripts.demo.corpus.word_forms import Forms, words


def _english_s(word: str) -> str:
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _english_article(word: str) -> str:
    return ("an " if word[0] in "aeiou" and not word.startswith("use") else "a ") + word


def _noun(cell: str) -> Forms:
    singular, *rest = words(cell)
    plural = rest[0] if rest else _english_s(singular)
    indefinite = "some " + singular if plural == "-" else _english_article(singular)
    return {"_": "the " + singular, "bare": singular, "indef": indefinite, "plural": plural, "g": "n"}


def _person(cell: str, gender: str, *, name: bool) -> Forms:
    word = words(cell)[0]
    return {"_": word if name else "the " + word, "g": gender}


def _pronoun(gender: str) -> Forms:
    return {"_": {"m": "he", "f": "she"}[gender], "g": gender}


def _verb(cell: str) -> Forms:
    base, *parts = words(cell)
    if parts:
        past, participle = parts[0], parts[-1]
    elif base.endswith("e"):
        past = participle = base + "d"
    elif base.endswith("y") and base[-2] not in "aeiou":
        past = participle = base[:-1] + "ied"
    elif base in {"stop"}:
        past = participle = base + base[-1] + "ed"
    else:
        past = participle = base + "ed"
    head, space, rest = base.partition(" ")
    return {"_": base, "past": past, "pp": participle, "pres": _english_s(head) + space + rest}


def _adjective(cell: str) -> Forms:
    positive, comparative = words(cell)
    return {"_": positive, "comp": comparative, "indef": _english_article(positive)}


def _place(cell: str) -> Forms:
    for preposition in ("in the ", "on the ", "at the "):
        if cell.startswith(preposition):
            return {"_": cell, "dir": "to the " + cell.removeprefix(preposition)}
    preposition, _, rest = cell.partition(" ")
    return {"_": cell, "dir": ("on " if preposition == "on" else "to ") + rest}


def _number(cell: str, value: int) -> Forms:
    return {"_": cell}


def _clock(hour: int, minute: int) -> Forms:
    return {"_": f"at {hour}:{minute:02d}" if minute else f"at {hour} o'clock"}


#: Kind of concept -> its inflector.
INFLECTORS: dict[str, Callable[..., Forms]] = {
    "noun": _noun,
    "person": _person,
    "pronoun": _pronoun,
    "verb": _verb,
    "adjective": _adjective,
    "place": _place,
    "number": _number,
    "clock": _clock,
}
