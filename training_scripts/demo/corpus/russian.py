"""Russian declension and conjugation from the cells of the lexicon."""

from __future__ import annotations

from collections.abc import Callable

from training_scripts.demo.corpus.word_forms import Forms, words

_VELARS, _HUSHERS = "кгх", "жшчщ"
_CLUSTER_STARTS, _VOWELS = "сзжшщ", "аеёиоуыэюя"


def decline(nominative: str, gender: str, *, animate: bool, stem: str = "", instrumental: str = "") -> Forms:
    """Decline a singular noun.

    Args:
        nominative: The dictionary form.
        gender: ``"m"``, ``"f"`` or ``"n"``; a masculine in ``-а``/``-я`` declines as a feminine.
        animate: Whether a masculine accusative is its genitive.
        stem: The stem before endings where a vowel falls out (``"Павл"`` of ``"Павел"``).
        instrumental: The instrumental where stress changes it (``"ножом"``).

    Returns:
        The forms ``"_"``, ``"gen"``, ``"dat"``, ``"acc"`` and ``"ins"``.

    Example:
        >>> decline("книга", "f", animate=False)["gen"]
        'книги'
    """
    last = nominative[-1]
    base = stem or (nominative[:-1] if last in "аяоеёьй" else nominative)
    if last in "ая":
        hushed = base[-1] in _HUSHERS
        soft = last == "я"
        genitive = base + ("и" if soft or hushed or base[-1] in _VELARS else "ы")
        dative = base + ("и" if soft and base[-1] == "и" else "е")
        accusative = base + ("ю" if soft else "у")
        by = base + ("ей" if soft or hushed else "ой")
    elif gender == "f":
        genitive = dative = base + "и"
        accusative, by = nominative, nominative + "ю"
    else:
        soft = last in "ьй" or (last == "е" and base[-1] not in _HUSHERS + "ц")
        genitive, dative = (base + "я", base + "ю") if soft else (base + "а", base + "у")
        by = base + ("ем" if soft or last == "е" or base[-1] in _HUSHERS + "ц" else "ом")
        accusative = genitive if animate and gender == "m" else nominative
    return {"_": nominative, "gen": genitive, "dat": dative, "acc": accusative, "ins": instrumental or by}


def _marked(parts: list[str]) -> tuple[list[str], dict[str, str]]:
    plain = [part for part in parts if "=" not in part]
    return plain, dict(part.split("=") for part in parts if "=" in part)


def _noun(cell: str) -> Forms:
    (gender, nominative, genitive_plural), marks = _marked(words(cell))
    forms = decline(
        nominative,
        gender[0],
        animate=gender.endswith("a"),
        stem=marks.get("stem", ""),
        instrumental=marks.get("ins", ""),
    )
    return {
        **forms,
        "tool": marks.get("tool", forms["ins"]),
        "count.few": forms["gen"],
        "count.many": genitive_plural,
        "g": gender.replace("fa", "f"),
    }


def _person(cell: str, gender: str, *, name: bool) -> Forms:
    (nominative,), marks = _marked(words(cell))
    forms = decline(nominative, gender, animate=True, stem=marks.get("stem", ""), instrumental=marks.get("ins", ""))
    by = forms["ins"].lower()
    clumsy = by[0] in _CLUSTER_STARTS and by[1] not in _VOWELS
    return {**forms, "with": ("со " if clumsy else "с ") + forms["ins"], "g": gender}


def _pronoun(gender: str) -> Forms:
    return {"_": {"m": "он", "f": "она"}[gender], "g": gender}


def _past(cell: str) -> Forms:
    masculine, _, feminine = cell.partition(",")
    return {"past.m": masculine, "past.f": feminine or masculine + "а"}


def _verb(cell: str) -> Forms:
    perfective, imperfective, present, *past = words(cell)
    forms = _past(past[0] if past else perfective.removesuffix("ть") + "л")
    return {"_": perfective, "imperf": imperfective, "pres": present, **forms}


def _giving(cell: str) -> Forms:
    masculine, feminine = cell.split(",")
    return {"_.m": masculine, "_.f": feminine}


def _adjective(cell: str) -> Forms:
    nominative, comparative = words(cell)
    stem, ending = nominative[:-2], nominative[-2:]
    hushed, soft = stem[-1] in _HUSHERS, ending == "ий" and stem[-1] == "н"
    fronted = soft or (hushed and ending != "ой")
    masculine_by = stem + ("им" if soft or hushed or stem[-1] in _VELARS else "ым")
    neuter = stem + ("ее" if fronted else "ое")
    return {
        "nom.m": nominative,
        "nom.ma": nominative,
        "nom.f": stem + ("яя" if soft else "ая"),
        "nom.n": neuter,
        "acc.m": nominative,
        "acc.ma": stem + ("его" if fronted else "ого"),
        "acc.f": stem + ("юю" if soft else "ую"),
        "acc.n": neuter,
        "ins.m": masculine_by,
        "ins.ma": masculine_by,
        "ins.f": stem + ("ей" if fronted else "ой"),
        "ins.n": masculine_by,
        "comp": comparative,
    }


def _place(cell: str) -> Forms:
    at, _, to = cell.partition(">")
    return {"_": at, "dir": to}


def _feeling(cell: str) -> Forms:
    masculine, feminine = cell.split(",")
    return {"_.m": masculine, "_.f": feminine}


def _number(cell: str, value: int) -> Forms:
    return {"_": cell, "g": "few" if value in (3, 4) else "many"}


def _clock(hour: int, minute: int) -> Forms:
    return {"_": f"в {hour}:{minute:02d}"}


#: Kind of concept -> its inflector.
INFLECTORS: dict[str, Callable[..., Forms]] = {
    "noun": _noun,
    "person": _person,
    "pronoun": _pronoun,
    "verb": _verb,
    "giving": _giving,
    "adjective": _adjective,
    "place": _place,
    "feeling": _feeling,
    "number": _number,
    "clock": _clock,
}
