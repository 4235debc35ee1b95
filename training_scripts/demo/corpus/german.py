"""German word forms from the cells of the lexicon."""

from __future__ import annotations

from collections.abc import Callable

from training_scripts.demo.corpus.word_forms import Forms, words

_NOMINATIVE = {"m": "der ", "f": "die ", "n": "das "}
_ACCUSATIVE = {"m": "den ", "f": "die ", "n": "das "}
_DATIVE = {"m": "dem ", "f": "der ", "n": "dem "}
_EIN_ACCUSATIVE = {"m": "einen ", "f": "eine ", "n": "ein "}
_EIN_DATIVE = {"m": "einem ", "f": "einer ", "n": "einem "}


def _noun(cell: str) -> Forms:
    gender, singular, plural = words(cell)
    return {
        "_": _NOMINATIVE[gender] + singular,
        "acc": _ACCUSATIVE[gender] + singular,
        "dat": _DATIVE[gender] + singular,
        "indef_dat": _EIN_DATIVE[gender] + singular,
        "indef_art": _EIN_ACCUSATIVE[gender].strip(),
        "none": "k" + _EIN_ACCUSATIVE[gender] + singular,
        "bare": singular,
        "bare_acc": singular,
        "art": _NOMINATIVE[gender].strip(),
        "art_acc": _ACCUSATIVE[gender].strip(),
        "plural": plural,
        "g": gender,
    }


def _person(cell: str, gender: str, *, name: bool) -> Forms:
    nominative, _, oblique = words(cell)[0].partition(">")
    oblique = oblique or nominative
    if name:
        return {
            "_": nominative,
            "acc": nominative,
            "dat": nominative,
            "von": "von " + nominative,
            "g": gender,
        }
    return {
        "_": _NOMINATIVE[gender] + nominative,
        "acc": _ACCUSATIVE[gender] + oblique,
        "dat": _DATIVE[gender] + oblique,
        "von": {"m": "vom ", "f": "von der "}[gender] + oblique,
        "g": gender,
    }


def _pronoun(gender: str) -> Forms:
    return {"_": {"m": "er", "f": "sie"}[gender], "g": gender}


def _verb(cell: str) -> Forms:
    infinitive, present, participle = words(cell)
    particle, _, stem = infinitive.rpartition("·")
    zu = f"{particle}zu{stem}" if particle else "zu " + stem
    return {"_": particle + stem, "zu": zu, "pres": present, "particle": particle, "pp": participle}


def _adjective(cell: str) -> Forms:
    positive, comparative, *stems = words(cell)
    stem = stems[0] if stems else positive
    return {
        "_": positive,
        "comp": comparative,
        **{f"nom.{gender}": stem + "e" for gender in "mfn"},
        **{f"acc.{gender}": stem + ("en" if gender == "m" else "e") for gender in "mfn"},
        **{f"indef_acc.{gender}": stem + {"m": "en", "f": "e", "n": "es"}[gender] for gender in "mfn"},
    }


def _place(cell: str) -> Forms:
    at, _, to = cell.partition(">")
    return {"_": at, "dir": to}


def _weather(cell: str) -> Forms:
    finite, middle, end = cell.split("/")
    return {"finite": finite, "middle": middle, "end": end, "sub": f"{middle} {end} {finite}".strip()}


def _number(cell: str, value: int) -> Forms:
    return {"_": cell}


def _clock(hour: int, minute: int) -> Forms:
    return {"_": f"um {hour}:{minute:02d} Uhr" if minute else f"um {hour} Uhr"}


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
