"""Word forms in each language, from the cells of the lexicon.

An inflector takes the parts of a cell as its arguments, so that its parameters document the cell, and returns forms by
name: `"_"` is the form that a pattern's plain `{slot}` takes, and `"g"` is the gender (for a number, the kind of
plural) that other words agree with. Concepts of a kind without an inflector are phrases. This module has English,
French, German and Chinese; Russian and Arabic, which inflect more, have modules of their own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache

from training_scripts.demo.corpus.arabic import ARABIC
from training_scripts.demo.corpus.lexicon import TOY_LANGUAGES, Concept, Forms, lexicon
from training_scripts.demo.corpus.rows import NONE
from training_scripts.demo.corpus.russian import RUSSIAN

PEOPLE = ("name", "role", "pronoun")
"""Kinds of concepts whose gender is a mark of the concept: their inflectors take it before the parts of the cell."""


@cache
def forms(language: str) -> dict[str, tuple[Forms, ...]]:
    """Word forms of every concept in a language: one table per synonym.

    Args:
        language: One of `TOY_LANGUAGES`.

    Raises:
        ValueError: For any other language, and for a cell with too few or too many parts.

    Example:
        >>> forms("de")["knife"][0]["indef_dat"]
        'einem Messer'
        >>> forms("ru")["knife"][0]["ins"]
        'ножом'
    """
    if language not in TOY_LANGUAGES:
        raise ValueError(f"no generated corpus for language {language!r}: choose from {', '.join(TOY_LANGUAGES)}")
    return inflect_all(lexicon().concepts, language)


def inflect_all(concepts: Mapping[str, Concept], language: str) -> dict[str, tuple[Forms, ...]]:
    """Word forms of the given concepts in a language; see `forms`."""
    return {
        name: tuple(_inflect(concept, language, parts) for parts in concept.cells[language])
        for name, concept in concepts.items()
    }


def _inflect(concept: Concept, language: str, parts: tuple[str, ...]) -> Forms:
    inflector = _INFLECTORS[language].get(concept.kind, _phrase)
    plain = [part for part in parts if "=" not in part]
    exceptions = dict(part.split("=", 1) for part in parts if "=" in part)
    gender = next(iter(concept.marks)) if concept.kind in PEOPLE else ""
    if gender and inflector is not _phrase:
        plain = [gender, *plain]
    try:
        inflected = inflector(*plain, **exceptions)
    except (TypeError, KeyError, IndexError, ValueError) as error:
        takes = inspect.signature(inflector).parameters.values()
        parts_of_kind = "|".join(
            f"[{each.name}{'=' if each.kind is each.KEYWORD_ONLY else ''}]" if each.default == "" else each.name
            for each in takes
            if each.name != "gender" or not gender
        )
        raise concept.row.error(
            f"column {language!r} has {'|'.join(parts)!r}, but a {concept.kind} is {parts_of_kind} ({error})"
        ) from error
    return {**inflected, "g": gender} if gender else inflected


def _phrase(text: str, feminine: str = "") -> Forms:
    return {"_.m": text, "_.f": feminine} if feminine else {"_": text}


# English


def _english_s(word: str) -> str:
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _english_article(word: str) -> str:
    return ("an " if word[0] in "aeiou" and not word.startswith("use") else "a ") + word


def _english_noun(singular: str, plural: str = "") -> Forms:
    indefinite = "some " + singular if plural == NONE else _english_article(singular)
    return {"_": "the " + singular, "bare": singular, "indef": indefinite, "plural": plural or _english_s(singular)}


def _english_role(gender: str, word: str) -> Forms:
    return {"_": "the " + word}


def _english_verb(base: str, past: str = "", participle: str = "") -> Forms:
    if not past and base.endswith("y") and base[-2] not in "aeiou":
        past = base[:-1] + "ied"
    past = past or base.removesuffix("e") + "ed"
    head, space, rest = base.partition(" ")
    return {"_": base, "past": past, "pp": participle or past, "pres": _english_s(head) + space + rest}


def _english_adjective(positive: str, comparative: str) -> Forms:
    return {"_": positive, "comp": comparative, "indef": _english_article(positive)}


def _english_place(at: str) -> Forms:
    preposition, _, noun = at.partition(" ")
    to = "on " if preposition == "on" and not noun.startswith("the ") else "to "
    return {"_": at, "dir": to + noun}


# French


def _elides(word: str) -> bool:
    return word[0].lower() in "aeiouyàâéèêëîïôûœh"


def _french_definite(gender: str, word: str) -> str:
    return ("l'" if _elides(word) else {"m": "le ", "f": "la "}[gender]) + word


def _french_noun(gender: str, singular: str, plural: str = "") -> Forms:
    definite = _french_definite(gender, singular)
    if plural != NONE:
        indefinite = {"m": "un ", "f": "une "}[gender] + singular
    elif definite.startswith("le "):
        indefinite = "du " + singular
    else:
        indefinite = "de " + definite
    return {
        "_": definite,
        "indef": indefinite,
        "de": ("d'" if _elides(singular) else "de ") + singular,
        "plural": plural or singular + "s",
        "g": gender,
    }


def _french_name(gender: str, word: str) -> Forms:
    return {"_": word, "que": ("qu'" if _elides(word) else "que ") + word, "a": "à " + word}


def _french_role(gender: str, word: str) -> Forms:
    subject = _french_definite(gender, word)
    return {"_": subject, "que": "que " + subject, "a": "au " + word if subject.startswith("le ") else "à " + subject}


def _french_pronoun(gender: str, word: str) -> Forms:
    return {"_": word, "que": "qu'" + word}


def _french_verb(infinitive: str, present: str, participle: str, *, h: str = "") -> Forms:
    de = "d'" if _elides(infinitive) and h != "aspirated" else "de "
    return {
        "_": infinitive,
        "de": de + infinitive,
        "pres": present,
        "pp": participle,
        "pp.m": participle,
        "pp.f": participle + "e",
    }


def _french_adjective(masculine: str, feminine: str) -> Forms:
    return {"_.m": masculine, "_.f": feminine}


def _french_weather(clause: str) -> Forms:
    return {"_": clause, "que": "qu'" + clause}


# German

_NOMINATIVE = {"m": "der", "f": "die", "n": "das"}
_ACCUSATIVE = {"m": "den", "f": "die", "n": "das"}
_DATIVE = {"m": "dem", "f": "der", "n": "dem"}
_EIN_ACCUSATIVE = {"m": "einen", "f": "eine", "n": "ein"}
_EIN_DATIVE = {"m": "einem", "f": "einer", "n": "einem"}


def _german_noun(gender: str, singular: str, plural: str) -> Forms:
    return {
        "_": f"{_NOMINATIVE[gender]} {singular}",
        "acc": f"{_ACCUSATIVE[gender]} {singular}",
        "dat": f"{_DATIVE[gender]} {singular}",
        "indef_dat": f"{_EIN_DATIVE[gender]} {singular}",
        "indef_art": _EIN_ACCUSATIVE[gender],
        "none": f"k{_EIN_ACCUSATIVE[gender]} {singular}",
        "bare": singular,
        "art": _NOMINATIVE[gender],
        "art_acc": _ACCUSATIVE[gender],
        "plural": plural,
        "g": gender,
    }


def _german_name(gender: str, word: str) -> Forms:
    return {"_": word, "acc": word, "dat": word, "von": "von " + word}


def _german_role(gender: str, nominative: str, oblique: str = "") -> Forms:
    oblique = oblique or nominative
    return {
        "_": f"{_NOMINATIVE[gender]} {nominative}",
        "acc": f"{_ACCUSATIVE[gender]} {oblique}",
        "dat": f"{_DATIVE[gender]} {oblique}",
        "von": {"m": "vom ", "f": "von der "}[gender] + oblique,
    }


def _german_verb(infinitive: str, present: str, participle: str) -> Forms:
    particle, _, stem = infinitive.rpartition("·")
    zu = f"{particle}zu{stem}" if particle else "zu " + stem
    return {"_": particle + stem, "zu": zu, "pres": present, "particle": particle, "pp": participle}


def _german_adjective(positive: str, comparative: str, stem: str = "") -> Forms:
    stem = stem or positive
    return {
        "_": positive,
        "comp": comparative,
        **{f"nom.{gender}": stem + "e" for gender in "mfn"},
        **{f"acc.{gender}": stem + ("en" if gender == "m" else "e") for gender in "mfn"},
        **{f"indef_acc.{gender}": stem + {"m": "en", "f": "e", "n": "es"}[gender] for gender in "mfn"},
    }


def _german_place(at: str, to: str) -> Forms:
    return {"_": at, "dir": to}


def _german_weather(finite: str, middle: str, end: str) -> Forms:
    return {"finite": finite, "middle": middle, "end": end, "sub": f"{middle} {end} {finite}".strip()}


# Chinese


def _chinese_noun(measure: str, noun: str) -> Forms:
    return {"_": noun, "measure": measure}


def _chinese_adjective(predicate: str, attribute: str = "") -> Forms:
    if attribute:
        return {"pred": predicate, "attr": attribute, "bare": predicate}
    return {"pred": "很" + predicate, "attr": predicate + "的", "bare": predicate}


def _chinese_place(noun: str, localiser: str = "") -> Forms:
    return {"_": f"在{noun}{localiser}", "bare": noun + localiser, "noun": noun}


_INFLECTORS: dict[str, Mapping[str, Callable[..., Forms]]] = {
    "en": {
        "noun": _english_noun,
        "role": _english_role,
        "verb": _english_verb,
        "adjective": _english_adjective,
        "place": _english_place,
        "city": _english_place,
    },
    "fr": {
        "noun": _french_noun,
        "name": _french_name,
        "role": _french_role,
        "pronoun": _french_pronoun,
        "verb": _french_verb,
        "adjective": _french_adjective,
        "weather": _french_weather,
    },
    "de": {
        "noun": _german_noun,
        "name": _german_name,
        "role": _german_role,
        "verb": _german_verb,
        "adjective": _german_adjective,
        "place": _german_place,
        "city": _german_place,
        "weather": _german_weather,
    },
    "ru": RUSSIAN,
    "ar": ARABIC,
    "zh": {
        "noun": _chinese_noun,
        "adjective": _chinese_adjective,
        "place": _chinese_place,
        "city": _chinese_place,
    },
}
