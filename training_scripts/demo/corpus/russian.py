"""Russian declension and conjugation; see `morphology`."""

from __future__ import annotations

from collections.abc import Callable

from training_scripts.demo.corpus.lexicon import Forms

_VELARS, _HUSHERS = "кгх", "жшчщ"
_CLUSTER_STARTS, _VOWELS = "сзжшщ", "аеёиоуыэюя"


def decline(nominative: str, gender: str, *, animate: bool, stem: str = "", ins: str = "") -> Forms:
    """Decline a singular noun.

    Args:
        nominative: The dictionary form.
        gender: `"m"`, `"f"` or `"n"`; a masculine in `-а` or `-я` declines as a feminine.
        animate: Whether a masculine accusative is its genitive.
        stem: The stem before endings where a vowel falls out (`"Павл"` of `"Павел"`).
        ins: The instrumental where stress changes it (`"ножом"`).

    Returns:
        The forms `"_"`, `"gen"`, `"dat"`, `"acc"` and `"ins"`.

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
    return {"_": nominative, "gen": genitive, "dat": dative, "acc": accusative, "ins": ins or by}


def _noun(
    gender: str, nominative: str, genitive_plural: str, *, stem: str = "", ins: str = "", tool: str = ""
) -> Forms:
    forms = decline(nominative, gender[0], animate=gender.endswith("a"), stem=stem, ins=ins)
    return {
        **forms,
        "tool": tool or forms["ins"],
        "count.few": forms["gen"],
        "count.many": genitive_plural,
        "g": gender.replace("fa", "f"),
    }


def _person(gender: str, nominative: str, *, stem: str = "", ins: str = "") -> Forms:
    forms = decline(nominative, gender, animate=True, stem=stem, ins=ins)
    by = forms["ins"].lower()
    clumsy = by[0] in _CLUSTER_STARTS and by[1] not in _VOWELS
    return {**forms, "with": ("со " if clumsy else "с ") + forms["ins"]}


def _verb(perfective: str, imperfective: str, present: str, past: str = "", past_feminine: str = "") -> Forms:
    past = past or perfective.removesuffix("ть") + "л"
    return {
        "_": perfective,
        "imperf": imperfective,
        "pres": present,
        "past.m": past,
        "past.f": past_feminine or past + "а",
    }


def _adjective(nominative: str, comparative: str) -> Forms:
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


def _place(at: str, to: str) -> Forms:
    return {"_": at, "dir": to}


def _number(plural: str, word: str) -> Forms:
    """`few` takes a genitive singular, `many` a genitive plural."""
    return {"_": word, "g": plural}


RUSSIAN: dict[str, Callable[..., Forms]] = {
    "noun": _noun,
    "name": _person,
    "role": _person,
    "verb": _verb,
    "adjective": _adjective,
    "place": _place,
    "city": _place,
    "number": _number,
}
