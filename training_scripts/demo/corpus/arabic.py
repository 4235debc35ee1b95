"""Arabic word forms; see `morphology`.

`+` joins a construct (`حقيبة+سفر`: the article goes to its second word), `&` a noun with its adjective (both take the
article).
"""

from __future__ import annotations

from collections.abc import Callable

from training_scripts.demo.corpus.lexicon import Forms

_SEATS_WITHOUT_ALIF = ("ة", "ى", "اء", "ا")


def _definite(word: str, prefix: str = "") -> str:
    article = "لل" if prefix == "ل" else prefix + "ال"
    if "+" in word:
        head, tail = word.split("+")
        return f"{prefix}{head} ال{tail}"
    first, *rest = word.split("&")
    return " ".join([article + first, *("ال" + adjective for adjective in rest)])


def _bare(word: str) -> str:
    return word.replace("+", " ").replace("&", " ")


def _indefinite_accusative(word: str) -> str:
    if "+" in word or "&" in word or word.endswith(_SEATS_WITHOUT_ALIF):
        return _bare(word)
    return word + "ا"


def _noun(gender: str, singular: str, plural: str) -> Forms:
    return {
        "_": _definite(singular),
        "bare": _bare(singular),
        "bi": _definite(singular, "ب"),
        "count.few": _bare(plural),
        "count.many": _indefinite_accusative(singular),
        "g": gender,
    }


def _name(gender: str, word: str, accusative: str = "") -> Forms:
    return _person(gender, word, accusative or word, "ل" + word)


def _role(gender: str, word: str) -> Forms:
    return _person(gender, _definite(word), _definite(word), _definite(word, "ل"))


def _person(gender: str, subject: str, accusative: str, to: str) -> Forms:
    return {"_": subject, "acc": accusative, "li": to, "ala": "على " + subject, "t": _t(gender)}


def _t(gender: str) -> str:
    return "ت" if gender == "f" else ""


def _pronoun(gender: str, with_ala: str) -> Forms:
    """A subject pronoun is left out: the verb shows person and gender."""
    return {"_": "", "ala": with_ala, "t": _t(gender)}


def _verb(past: str, present: str, jussive: str = "") -> Forms:
    jussive = jussive or present
    her_past = past.removesuffix("ى") + "ت"
    before_suffix = past.removesuffix("ى") + "ا" if past.endswith("ى") else past
    return {
        "past.m": past,
        "past.f": her_past,
        "past_it.m.m": before_suffix + "ه",
        "past_it.m.f": before_suffix + "ها",
        "past_it.f.m": her_past + "ه",
        "past_it.f.f": her_past + "ها",
        "pres.m": present,
        "pres.f": "ت" + present[1:],
        "juss.m": jussive,
        "juss.f": "ت" + jussive[1:],
        "fut.m": "س" + present,
        "fut.f": "ست" + present[1:],
    }


def _adjective(masculine: str, elative: str, feminine: str = "") -> Forms:
    """Colours have a feminine of their own, and no ending in the accusative."""
    accusative = masculine if feminine else _indefinite_accusative(masculine)
    feminine = feminine or masculine + "ة"
    return {
        "_.m": masculine,
        "_.f": feminine,
        "acc.m": accusative,
        "acc.f": feminine,
        "def.m": "ال" + masculine,
        "def.f": "ال" + feminine,
        "comp": elative,
    }


def _place(at: str) -> Forms:
    return {"_": at, "dir": "إلى " + at.split(" ", 1)[1]}


def _weather(clause: str, subordinate: str) -> Forms:
    return {"_": clause, "sub": subordinate}


def _number(plural: str, with_masculine: str, with_feminine: str = "") -> Forms:
    """`few` (three to ten) takes a plural and the gender opposite to its noun's, `many` a singular."""
    return {"num.m": with_masculine, "num.f": with_feminine or with_masculine, "g": plural}


ARABIC: dict[str, Callable[..., Forms]] = {
    "noun": _noun,
    "name": _name,
    "role": _role,
    "pronoun": _pronoun,
    "verb": _verb,
    "adjective": _adjective,
    "place": _place,
    "city": _place,
    "weather": _weather,
    "number": _number,
}
