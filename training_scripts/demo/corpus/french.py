"""French word forms from the cells of the lexicon."""

from __future__ import annotations

from collections.abc import Callable

from training_scripts.demo.corpus.word_forms import Forms, words


def _elides(word: str) -> bool:
    return word[0].lower() in "aeiouyàâéèêëîïôûœh" and word != "hisser"


def _noun(cell: str) -> Forms:
    gender, singular, *rest = cell.split()
    singular = singular.replace("_", " ")
    plural = rest[0].replace("_", " ") if rest else singular + "s"
    article = "l'" if _elides(singular) else {"m": "le ", "f": "la "}[gender]
    bare_of = ("d'" if _elides(singular) else "de ") + singular
    definite = article + singular
    if plural == "-":
        indefinite = "du " + singular if article == "le " else "de " + definite
    else:
        indefinite = {"m": "un ", "f": "une "}[gender] + singular
    return {"_": definite, "indef": indefinite, "de": bare_of, "plural": plural, "g": gender}


def _person(cell: str, gender: str, *, name: bool) -> Forms:
    word = words(cell)[0]
    article = "" if name else "l'" if _elides(word) else {"m": "le ", "f": "la "}[gender]
    subject = article + word
    to_person = "au " + word if article == "le " else "à " + subject
    return {
        "_": subject,
        "que": ("qu'" if _elides(subject) else "que ") + subject,
        "a": to_person,
        "g": gender,
    }


def _pronoun(gender: str) -> Forms:
    word = {"m": "il", "f": "elle"}[gender]
    return {"_": word, "que": "qu'" + word, "g": gender}


def _verb(cell: str) -> Forms:
    infinitive, present, participle = words(cell)
    return {
        "_": infinitive,
        "de": ("d'" if _elides(infinitive) else "de ") + infinitive,
        "pres": present,
        "pp": participle,
        "pp.m": participle,
        "pp.f": participle + "e",
    }


def _adjective(cell: str) -> Forms:
    masculine, feminine = words(cell)
    return {"_": masculine, "_.m": masculine, "_.f": feminine}


def _place(cell: str) -> Forms:
    return {"_": cell}


def _weather(cell: str) -> Forms:
    return {"_": cell, "que": "qu'" + cell}


def _number(cell: str, value: int) -> Forms:
    return {"_": cell}


def _clock(hour: int, minute: int) -> Forms:
    return {"_": f"à {hour} h {minute:02d}" if minute else f"à {hour} h"}


#: Kind of concept -> its inflector.
INFLECTORS: dict[str, Callable[..., Forms]] = {
    "noun": _noun,
    "person": _person,
    "pronoun": _pronoun,
    "verb": _verb,
    "adjective": _adjective,
    "place": _place,
    "weather": _weather,
    "number": _number,
    "clock": _clock,
}
