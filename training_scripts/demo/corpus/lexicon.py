"""The words, sentence patterns and topics of the generated corpus, read from the tables in `tables/`.

`tables/README.md` describes the tables. Errors in them are reported with the file and the line.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from training_scripts.demo.corpus.rows import NONE, Row, by_first_column, read_rows

TOY_LANGUAGES = ("en", "fr", "de", "ru", "ar", "zh")
TABLES = Path(__file__).parent / "tables"

_CONCEPT_TABLES = ("nouns", "adjectives", "people", "verbs", "places", "phrases")
_COLUMNS = {
    **dict.fromkeys(_CONCEPT_TABLES, ("concept", "kind", "marks", *TOY_LANGUAGES)),
    "classes": ("class", "marks", "adjectives", "told_by"),
    "reasons": ("verb", "adjectives"),
    "templates": ("template", "slots", "marks", "first", "middle", "last", *TOY_LANGUAGES),
    "topics": ("topic", "people", "places", *TOY_LANGUAGES),
    "actions": ("topic", "verb", "things", "tools"),
}
_GENDERS = frozenset({"m", "f"})
_MARKS: dict[str, frozenset[str]] = {
    "noun": frozenset({"portable", "hidden"}),
    "adjective": frozenset({"before_noun"}),
    "verb": frozenset({"once", "bad", "luck", "moving", "everyday", "by_sight"}),
    "place": frozenset({"in", "go"}),
    "feeling": frozenset({"good", "bad"}),
    **dict.fromkeys(("name", "role", "pronoun"), _GENDERS),
    **dict.fromkeys(
        ("giving", "telling", "city", "day", "hour", "habit", "future", "weather", "number", "clock", "connective"),
        frozenset(),
    ),
}
_TEMPLATE_MARKS = frozenset({"no_connective", "no_moments", "no_mishaps"})
_CLOCK_HOURS, _CLOCK_MINUTES = range(6, 22), ("00", "15", "30", "45")

Cell = tuple[tuple[str, ...], ...]
"""A cell of a concept: its synonyms, each a tuple of parts."""

Forms = dict[str, str]
"""Word forms of a concept in a language, by name."""


class Concept(NamedTuple):
    """A language-independent unit of meaning.

    Attributes:
        name: Unique name, e.g. `"knife"`.
        kind: What it is, e.g. `"noun"`, `"verb"`, `"place"`.
        marks: What limits its use, e.g. `"portable"`, the gender of a person or the class of a thing.
        cells: Language -> synonyms, each a tuple of parts.
        row: Where it is defined.
    """

    name: str
    kind: str
    marks: frozenset[str]
    cells: dict[str, Cell]
    row: Row


class ThingClass(NamedTuple):
    """A class of things: whether it is a part of the landscape, its adjectives, and the ways to tell of it."""

    name: str
    is_landscape: bool
    adjectives: tuple[str, ...]
    told_by: tuple[str, ...]


class Template(NamedTuple):
    """A sentence pattern: how often it is a story's first, middle and last sentence, and its variants by language."""

    slots: tuple[str, ...]
    marks: frozenset[str]
    frequencies: tuple[int, int, int]
    variants: dict[str, tuple[str, ...]]
    row: Row


class Action(NamedTuple):
    """A verb with the things that it is done to and the instruments that it takes in one topic."""

    verb: str
    things: tuple[str, ...]
    tools: tuple[str, ...]


@dataclass(frozen=True)
class Topic:
    """A setting with its people, places and usual course of events.

    Attributes:
        titles: Title of its documents, by language.
        people: Roles that occur in it.
        places: Places where it happens, the most usual first.
        actions: What is done, in the usual order.
        things: Everything that is acted on.
    """

    titles: dict[str, str]
    people: tuple[str, ...]
    places: tuple[str, ...]
    actions: tuple[Action, ...]
    things: tuple[str, ...]


class Lexicon(NamedTuple):
    """All tables.

    Attributes:
        concepts: By name, in table order.
        classes: Classes of things, by name.
        reasons: Verb -> adjectives of its object that are a reason for it.
        templates: By name, in table order.
        topics: The most frequent first.
    """

    concepts: dict[str, Concept]
    classes: dict[str, ThingClass]
    reasons: dict[str, tuple[str, ...]]
    templates: dict[str, Template]
    topics: tuple[Topic, ...]


def read_lexicon(folder: Path = TABLES) -> Lexicon:
    """Read and check all tables of a folder.

    Raises:
        ValueError: For a wrong header, a row with too few, too many or empty cells, a name that is defined twice,
            and a word that no table defines. The message names the file and the line.
    """
    rows = {table: read_rows(folder / f"{table}.tsv", columns) for table, columns in _COLUMNS.items()}
    class_rows = by_first_column(rows["classes"])
    concepts: dict[str, Concept] = {}
    for name, row in by_first_column([row for table in _CONCEPT_TABLES for row in rows[table]]).items():
        concept = _concept(name, row, class_rows)
        concepts.update(_clock_times(concept) if concept.kind == "clock" else {name: concept})
    kinds: dict[str, set[str]] = {kind: set() for kind in _MARKS}
    for name, concept in concepts.items():
        kinds[concept.kind].add(name)

    def names(row: Row, column: str, kind: str) -> tuple[str, ...]:
        return row.words(column, kinds[kind], f"a {kind}")

    classes = {
        name: ThingClass(
            name,
            "landscape" in row.words("marks", {"landscape"}, "a mark of a class"),
            names(row, "adjectives", "adjective"),
            names(row, "told_by", "telling"),
        )
        for name, row in class_rows.items()
    }
    reasons = {
        row.word("verb", kinds["verb"], "a verb"): names(row, "adjectives", "adjective")
        for row in by_first_column(rows["reasons"]).values()
    }
    templates = {name: _template(row) for name, row in by_first_column(rows["templates"]).items()}
    topic_rows = by_first_column(rows["topics"])
    actions: dict[str, list[Action]] = {name: [] for name in topic_rows}
    for row in rows["actions"]:
        verb = row.word("verb", kinds["verb"], "a verb")
        action = Action(verb, names(row, "things", "noun"), names(row, "tools", "noun"))
        actions[row.word("topic", topic_rows, "a topic")].append(action)
    topics = tuple(
        Topic(
            {language: row.cells[language] for language in TOY_LANGUAGES},
            names(row, "people", "role"),
            names(row, "places", "place"),
            tuple(actions[name]),
            tuple(dict.fromkeys(thing for action in actions[name] for thing in action.things)),
        )
        for name, row in topic_rows.items()
    )
    return Lexicon(concepts, classes, reasons, templates, topics)


def _concept(name: str, row: Row, classes: Collection[str]) -> Concept:
    kind = row.word("kind", _MARKS, "a kind of concept")
    allowed = _MARKS[kind].union(classes) if kind == "noun" else _MARKS[kind]
    marks = set(row.words("marks", allowed, f"a mark of a {kind}"))
    one_of = classes if kind == "noun" else _GENDERS if allowed == _GENDERS else None
    if one_of is not None and len(marks.intersection(one_of)) != 1:
        raise row.error(f"a {kind} has exactly one of the marks {', '.join(sorted(one_of))}")
    cells = {language: _cell(row.cells[language]) for language in TOY_LANGUAGES}
    return Concept(name, kind, frozenset(marks | _implied(kind, marks, cells)), cells, row)


def _cell(text: str) -> Cell:
    return tuple(tuple(form.strip() for form in synonym.split("|")) for synonym in text.split("~"))


def _implied(kind: str, marks: Collection[str], cells: Mapping[str, Cell]) -> set[str]:
    lacks_a_form = {language: any(NONE in forms for forms in cell) for language, cell in cells.items()}
    implied = {
        "noun": {
            "visible": "hidden" not in marks,
            "mass": lacks_a_form["en"],
            "countable": not any(lacks_a_form.values()),
        },
        "adjective": {
            "attributive": "before_noun" not in marks,
            "gradable": not any(lacks_a_form.values()),
        },
    }
    return {mark for mark, holds in implied.get(kind, {}).items() if holds}


def _clock_times(pattern: Concept) -> dict[str, Concept]:
    def at(hour: int, minute: str, cell: Cell) -> Cell:
        on_the_hour, otherwise = cell[0][0], cell[0][-1]
        text = on_the_hour if minute == "00" else otherwise
        return ((text.replace("{hour}", str(hour)).replace("{minute}", minute),),)

    return {
        f"{hour}:{minute}": pattern._replace(
            name=f"{hour}:{minute}",
            cells={language: at(hour, minute, cell) for language, cell in pattern.cells.items()},
        )
        for hour in _CLOCK_HOURS
        for minute in _CLOCK_MINUTES
    }


def _template(row: Row) -> Template:
    marks = frozenset(row.words("marks", _TEMPLATE_MARKS, "a mark of a template"))
    try:
        first, middle, last = (int(row.cells[column]) for column in ("first", "middle", "last"))
    except ValueError as error:
        raise row.error(f"columns 'first', 'middle' and 'last' are whole numbers: {error}") from None
    variants = {
        language: tuple(variant.strip() for variant in row.cells[language].split("~")) for language in TOY_LANGUAGES
    }
    return Template(row.words("slots"), marks, (first, middle, last), variants, row)


@cache
def lexicon() -> Lexicon:
    """The lexicon of the generated corpus.

    Example:
        >>> knife = lexicon().concepts["knife"]
        >>> knife.kind, "portable" in knife.marks, knife.cells["fr"]
        ('noun', True, (('m', 'couteau', 'couteaux'),))
        >>> len(lexicon().topics), lexicon().topics[0].titles["de"]
        (16, 'Ein Tag in der Küche')
    """
    return read_lexicon()


@cache
def named(kind: str, mark: str = "") -> tuple[str, ...]:
    """Names of all concepts of a kind, in table order, optionally only those that carry a mark."""
    concepts = lexicon().concepts.values()
    return tuple(c.name for c in concepts if c.kind == kind and (not mark or mark in c.marks))


@cache
def marks_of(name: str) -> frozenset[str]:
    """Marks of a concept: the gender of a person, the class of a thing, what limits a verb."""
    return lexicon().concepts[name].marks


@cache
def class_of(thing: str) -> ThingClass:
    """The class of a thing.

    Example:
        >>> class_of("apple").adjectives
        ('ripe', 'sweet', 'fresh', 'big', 'small', 'cheap')
    """
    (name,) = marks_of(thing).intersection(lexicon().classes)
    return lexicon().classes[name]


@cache
def fitting(thing: str, mark: str = "") -> tuple[str, ...]:
    """Adjectives that fit a thing, optionally only the `"gradable"` or `"attributive"` ones."""
    return tuple(a for a in class_of(thing).adjectives if not mark or mark in marks_of(a))
