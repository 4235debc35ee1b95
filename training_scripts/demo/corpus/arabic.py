"""Arabic word forms from the cells of the lexicon.

``+`` joins a construct (``حقيبة+سفر``: the article goes to its second word), ``&`` a noun with its adjective
(both take the article).
"""

from __future__ import annotations

from collections.abc import Callable

from training_scripts.demo.corpus.word_forms import Forms, words

_SEATS_WITHOUT_ALIF = ("ة", "ى", "اء", "ا")


def _definite(cell: str, prefix: str = "") -> str:
    article = "لل" if prefix == "ل" else prefix + "ال"
    if "+" in cell:
        head, tail = cell.split("+")
        return f"{prefix}{head} ال{tail}"
    first, *rest = cell.split("&")
    return " ".join([article + first, *("ال" + word for word in rest)])


def _bare(cell: str) -> str:
    return cell.replace("+", " ").replace("&", " ")


def _indefinite_accusative(cell: str) -> str:
    if "+" in cell or "&" in cell or cell.endswith(_SEATS_WITHOUT_ALIF):
        return _bare(cell)
    return cell + "ا"


def _noun(cell: str) -> Forms:
    gender, singular, plural = words(cell)
    return {
        "_": _definite(singular),
        "bare": _bare(singular),
        "bi": _definite(singular, "ب"),
        "count.few": _bare(plural),
        "count.many": _indefinite_accusative(singular),
        "g": gender,
    }


def _person(cell: str, gender: str, *, name: bool) -> Forms:
    word, *rest = words(cell)
    subject = word if name else _definite(word)
    return {
        "_": subject,
        "acc": rest[0] if rest else subject,
        "li": "ل" + word if name else _definite(word, "ل"),
        "ala": "على " + subject,
        "t": _t(gender),
        "g": gender,
    }


def _t(gender: str) -> str:
    return "ت" if gender == "f" else ""


def _pronoun(gender: str) -> Forms:
    """A subject pronoun is left out: the verb shows person and gender."""
    return {"_": "", "ala": {"m": "عليه", "f": "عليها"}[gender], "t": _t(gender), "g": gender}


def _feminine_past(masculine: str) -> str:
    return masculine.removesuffix("ى") + "ت"


def _verb(cell: str) -> Forms:
    past, present, *short = words(cell)
    jussive = short[0] if short else present
    her_past = _feminine_past(past)
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


def _giving(cell: str) -> Forms:
    return {"_.m": cell, "_.f": _feminine_past(cell)}


def _adjective(cell: str) -> Forms:
    masculine, *rest = words(cell)
    elative = rest[-1]
    colour = len(rest) == 2
    feminine = rest[0] if colour else masculine + "ة"
    return {
        "_.m": masculine,
        "_.f": feminine,
        "acc.m": masculine if colour else _indefinite_accusative(masculine),
        "acc.f": feminine,
        "def.m": "ال" + masculine,
        "def.f": "ال" + feminine,
        "comp": elative,
    }


def _place(cell: str) -> Forms:
    return {"_": cell, "dir": "إلى " + cell.split(" ", 1)[1]}


def _weather(cell: str) -> Forms:
    main, subordinate = cell.split("/")
    return {"_": main, "sub": subordinate}


def _feeling(cell: str) -> Forms:
    masculine, feminine = cell.split(",")
    return {"_.m": masculine, "_.f": feminine}


def _number(cell: str, value: int) -> Forms:
    """Three to ten take the gender opposite to their noun's; from eleven on, the noun is a singular."""
    with_masculine, _, with_feminine = cell.partition(",")
    return {
        "num.m": with_masculine,
        "num.f": with_feminine or with_masculine,
        "g": "few" if value <= 10 else "many",
    }


def _clock(hour: int, minute: int) -> Forms:
    return {"_": f"في الساعة {hour}:{minute:02d}"}


#: Kind of concept -> its inflector.
INFLECTORS: dict[str, Callable[..., Forms]] = {
    "noun": _noun,
    "person": _person,
    "pronoun": _pronoun,
    "verb": _verb,
    "giving": _giving,
    "adjective": _adjective,
    "place": _place,
    "weather": _weather,
    "feeling": _feeling,
    "number": _number,
    "clock": _clock,
}
