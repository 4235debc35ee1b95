"""The lexicon: language-independent concepts and, for each language, their word forms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from training_scripts.demo.corpus import arabic, chinese, english, french, german, russian
from training_scripts.demo.corpus.lexicon import (
    adjectives,
    circumstances,
    nouns_indoors,
    nouns_outdoors,
    people,
    verbs,
)
from training_scripts.demo.corpus.word_forms import Forms

TOY_LANGUAGES = ("en", "fr", "de", "ru", "ar", "zh")

_INFLECTORS = tuple(module.INFLECTORS for module in (english, french, german, russian, arabic, chinese))
_BIG_NUMBERS = (12, 15, 20, 25, 30, 40, 50)
_CLOCK_HOURS = range(6, 22)


@dataclass(frozen=True)
class Concept:
    """A language-independent unit of meaning.

    Attributes:
        name: Unique name, e.g. ``"knife"``.
        kind: Table that it comes from, e.g. ``"noun"``, ``"verb"``, ``"place"``.
        cells: One lexicon cell per language of ``TOY_LANGUAGES``.
        marks: What limits its use, e.g. ``"portable"`` or the class of a noun.
    """

    name: str
    kind: str
    cells: tuple[str, ...]
    marks: frozenset[str]


def _rows(table: str, kind: str) -> list[Concept]:
    concepts = []
    for line in table.strip().splitlines():
        head, *cells = (cell.strip() for cell in line.split(";"))
        name, *marks = head.replace(",", " ").split()
        if len(cells) != len(TOY_LANGUAGES):
            raise ValueError(f"{kind} {name!r} has {len(cells)} cells, not one per language")
        concepts.append(Concept(name, kind, tuple(cells), frozenset(marks)))
    return concepts


def _noun(concept: Concept) -> Concept:
    marks = set(concept.marks)
    if concept.name.endswith("+"):
        marks.add("portable")
    if not concept.name.endswith("-"):
        marks.add("visible")
    english, *_ = concept.cells
    if english.endswith(" -"):
        marks.add("mass")
    if not any(cell.split()[-1] == "-" or " - " in cell for cell in concept.cells):
        marks.add("countable")
    return Concept(concept.name.rstrip("+-"), "noun", concept.cells, frozenset(marks))


def _adjective(concept: Concept) -> Concept:
    marks = set(concept.marks)
    if not concept.name.endswith("!"):
        marks.add("attributive")
    if not any(form["comp"] == "-" for lang in range(6) for form in _forms(concept, lang) if "comp" in form):
        marks.add("gradable")
    return Concept(concept.name.rstrip("!"), "adjective", concept.cells, frozenset(marks))


def _computed() -> list[Concept]:
    empty = ("",) * len(TOY_LANGUAGES)
    concepts = [Concept(name, "pronoun", empty, frozenset(name[0])) for name in ("m_pronoun", "f_pronoun")]
    concepts += [
        Concept(f"{hour}:{minute:02d}", "clock", empty, frozenset())
        for hour in _CLOCK_HOURS
        for minute in (0, 15, 30, 45)
    ]
    return concepts + [
        Concept(str(value), "number", (str(value),) * len(TOY_LANGUAGES), frozenset()) for value in _BIG_NUMBERS
    ]


@lru_cache(maxsize=1)
def concepts() -> dict[str, Concept]:
    """All concepts by name.

    Example:
        >>> concepts()["knife"].kind, "portable" in concepts()["knife"].marks
        ('noun', True)
    """
    nouns = _rows(nouns_indoors.ROWS, "noun") + _rows(nouns_outdoors.ROWS, "noun")
    found = [
        *map(_noun, nouns),
        *map(_adjective, _rows(adjectives.ROWS, "adjective")),
        *_rows(people.NAMES, "name"),
        *_rows(people.ROLES, "role"),
        *_rows(verbs.VERBS, "verb"),
        *_rows(verbs.GIVING, "giving"),
        *_rows(verbs.TELLING, "telling"),
        *_rows(circumstances.PLACES, "place"),
        *_rows(circumstances.CITIES, "city"),
        *_rows(circumstances.DAYS, "day"),
        *_rows(circumstances.HOURS, "hour"),
        *_rows(circumstances.HABITS, "habit"),
        *_rows(circumstances.FUTURE, "future"),
        *_rows(circumstances.WEATHER, "weather"),
        *_rows(circumstances.FEELINGS, "feeling"),
        *_rows(circumstances.NUMBERS, "number"),
        *_rows(circumstances.CONNECTIVES, "connective"),
        *_computed(),
    ]
    table = {concept.name: concept for concept in found}
    if len(table) != len(found):
        names = [concept.name for concept in found]
        raise ValueError(f"concepts defined twice: {sorted({name for name in names if names.count(name) > 1})}")
    return table


def named(kind: str, mark: str = "") -> tuple[str, ...]:
    """Names of all concepts of a kind, in table order, optionally only those that carry a mark."""
    return tuple(c.name for c in concepts().values() if c.kind == kind and (not mark or mark in c.marks))


_INFLECTED_LIKE = {"city": "place", "telling": "giving", "name": "person", "role": "person"}


def _forms(concept: Concept, language: int) -> tuple[Forms, ...]:
    kind = _INFLECTED_LIKE.get(concept.kind, concept.kind)
    inflect = _INFLECTORS[language].get(kind)
    if kind == "pronoun" and inflect:
        return (inflect(next(iter(concept.marks))),)
    if kind == "clock" and inflect:
        hour, minute = concept.name.split(":")
        return (inflect(int(hour), int(minute)),)
    synonyms = concept.cells[language].split("~")
    if inflect is None:
        return tuple(_phrase(cell) for cell in synonyms)
    if kind == "person":
        gender = next(iter(concept.marks))
        return tuple(inflect(cell, gender, name=concept.kind == "name") for cell in synonyms)
    if kind == "number":
        return tuple(inflect(cell, int(concept.name)) for cell in synonyms)
    return tuple(inflect(cell) for cell in synonyms)


def _phrase(cell: str) -> Forms:
    masculine, comma, feminine = cell.partition(",")
    if comma and feminine:
        return {"_.m": masculine, "_.f": feminine}
    return {"_": cell}


@lru_cache(maxsize=len(TOY_LANGUAGES))
def forms(language: str) -> dict[str, tuple[Forms, ...]]:
    """Word forms of every concept in a language: one table per synonym.

    Args:
        language: One of ``TOY_LANGUAGES``.

    Raises:
        ValueError: For any other language.

    Example:
        >>> forms("de")["knife"][0]["indef_dat"]
        'einem Messer'
        >>> forms("ru")["knife"][0]["ins"]
        'ножом'
    """
    if language not in TOY_LANGUAGES:
        raise ValueError(f"no generated corpus for language {language!r}: choose from {', '.join(TOY_LANGUAGES)}")
    index = TOY_LANGUAGES.index(language)
    return {name: _forms(concept, index) for name, concept in concepts().items()}
