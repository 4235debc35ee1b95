"""Stories: ordered meanings about a few people, things and places of one topic.

A story follows the usual order of its topic's actions, keeps its people, and returns to the few things that it is about
and to their properties. A sentence therefore predicts the words of its neighbours, and not only their topic.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TypeVar

from training_scripts.demo.corpus.lexicon import Topic, class_of, fitting, lexicon, marks_of, named
from training_scripts.demo.corpus.realise import Meaning

_TOPIC_STEEPNESS, _WORD_STEEPNESS = 1.3, 1.4
_GENERIC_ACTION_SHARE, _CONNECTIVE_SHARE, _PRONOUN_SHARE = 0.2, 0.3, 0.4
_SAME_PERSON_SHARE, _USUAL_PLACE_SHARE = 0.45, 0.85
_THINGS_IN_FOCUS, _FOCUS_SHARE, _SAME_THING_SHARE, _SAME_PROPERTY_SHARE = 4, 0.85, 0.4, 0.7
_FIRST, _MIDDLE, _LAST = range(3)

# What limits the things, adjectives and places of a template: a mark that they carry.
_MARK_OF_THINGS = {
    "there_were": "countable",
    **dict.fromkeys(("there_was_no", "look_find", "where", "located"), "portable"),
}
_MARK_OF_ADJECTIVES = {
    "compare": "gradable",
    **dict.fromkeys(("attribute", "located", "there_was"), "attributive"),
}
_MARK_OF_PLACES = {"go": "go", "stay": "in"}

T = TypeVar("T")


class _Misfit(Exception):
    """Nothing in the story fits a slot of the template."""


@dataclass(frozen=True)
class Story:
    """A planned document.

    Attributes:
        topic: What it is about.
        hero: Concept of its main person.
        meanings: Its sentences, in order.
    """

    topic: Topic
    hero: str
    meanings: tuple[Meaning, ...]


def stories(seed: str, allow: Callable[[Meaning], bool]) -> Iterator[Story]:
    """Plan an endless sequence of stories, which the seed determines.

    Args:
        seed: Any text.
        allow: Whether a meaning may be used; if not, another one is drawn.
    """
    rng = random.Random(seed)
    while True:
        yield _StoryTeller(rng, allow).tell()


class _StoryTeller:
    """Plans one story."""

    def __init__(self, rng: random.Random, allow: Callable[[Meaning], bool]) -> None:
        self.rng = rng
        self.allow = allow
        self.topic = self._skewed(lexicon().topics, _TOPIC_STEEPNESS)
        people = [self._skewed(self.topic.people), self._skewed(named("name"))]
        rng.shuffle(people)
        self.cast = list(dict.fromkeys([*people, self._skewed(self.topic.people + named("name"), 1.0)]))
        self.places = rng.sample(self.topic.places, 2)
        # Neighbours in the topic's list are used together, so they are what one story is about.
        first = _THINGS_IN_FOCUS * rng.randrange(-(-len(self.topic.things) // _THINGS_IN_FOCUS))
        self.focus = set(self.topic.things[first : first + _THINGS_IN_FOCUS])
        self.mentioned: tuple[str, ...] = ()
        self.properties: dict[str, str] = {}
        self.day = self._skewed(named("day"))
        self.clock = rng.randrange(24)
        self.progress = 0
        self.last_subject = ""

    def tell(self) -> Story:
        """Plan 6 to 14 sentences."""
        meanings: list[Meaning] = []
        length = self.rng.randint(6, 14)
        for position in range(length):
            phase = _FIRST if position == 0 else _LAST if position == length - 1 else _MIDDLE
            meanings.append(self._next(phase, meanings))
        return Story(self.topic, self.cast[0], tuple(meanings))

    def _next(self, phase: int, so_far: Sequence[Meaning]) -> Meaning:
        names, cumulative_frequencies = _frequencies(phase)
        while True:
            template = self.rng.choices(names, cum_weights=cumulative_frequencies)[0]
            try:
                filled, person = self._fill(template, phase)
            except _Misfit:
                continue
            concepts = tuple([filled[slot] for slot in lexicon().templates[template].slots])
            meaning = Meaning(template, concepts, self._connective(template, concepts, phase))
            if self.allow(meaning) and all(meaning[:2] != earlier[:2] for earlier in so_far):
                self.last_subject = person if "s" in filled else ""
                self._remember(filled)
                self.progress = min(self.progress + self.rng.randrange(3), len(self.topic.actions) - 1)
                return meaning

    def _remember(self, filled: dict[str, str]) -> None:
        self.mentioned = tuple([filled[slot] for slot in ("o", "o2") if filled.get(slot) in self.topic.things])
        for thing, property_ in (("o", "a"), ("o2", "a2")):
            if thing in filled and property_ in filled:
                self.properties[filled[thing]] = filled[property_]

    def _connective(self, template: str, concepts: tuple[str, ...], phase: int) -> str:
        if phase == _FIRST or "no_connective" in lexicon().templates[template].marks or self.day in concepts:
            return ""
        if self.rng.random() > _CONNECTIVE_SHARE:
            return ""
        *others, finally_ = named("connective")
        return finally_ if phase == _LAST else self._skewed(others)

    def _fill(self, template: str, phase: int) -> tuple[dict[str, str], str]:
        filled: dict[str, str] = {}
        person = self._person()
        for slot in _slots_verbs_first(template):
            if slot in filled:
                continue
            if slot == "s":
                again = person == self.last_subject and phase != _FIRST
                (gender,) = marks_of(person)
                filled["s"] = f"{gender}_pronoun" if again and self.rng.random() < _PRONOUN_SHARE else person
            elif slot == "r":
                filled["r"] = self._choose([other for other in self.cast if other != person])
            elif slot in ("v", "v2"):
                filled.update(self._action(template, slot, filled))
            else:
                filled[slot] = self._detail(template, slot, filled)
        return filled, person

    def _skewed(self, options: Sequence[T], steepness: float = _WORD_STEEPNESS) -> T:
        """Draw an option, the first ones more often: a steepness of 1 is uniform, 2 prefers the first quarter."""
        return options[int(len(options) * self.rng.random() ** steepness)]

    def _choose(self, options: Sequence[str], steepness: float = _WORD_STEEPNESS) -> str:
        if not options:
            raise _Misfit
        return self._skewed(options, steepness)

    def _person(self) -> str:
        if self.last_subject and self.rng.random() < _SAME_PERSON_SHARE:
            return self.last_subject
        return self._skewed(self.cast, 1.6)

    def _focused(self, things: Sequence[str]) -> str:
        again = [thing for thing in things if thing in self.mentioned]
        if again and self.rng.random() < _SAME_THING_SHARE:
            return self._choose(again)
        in_focus = [thing for thing in things if thing in self.focus]
        return self._choose(in_focus if in_focus and self.rng.random() < _FOCUS_SHARE else things)

    def _action(self, template: str, slot: str, filled: dict[str, str]) -> dict[str, str]:
        suffix = slot[1:]
        verb, things, tools = self._verb_and_things(template, later=bool(suffix))
        slots, template_marks = lexicon().templates[template].slots, lexicon().templates[template].marks
        marks = marks_of(verb)
        if "no_moments" in template_marks and "once" in marks:
            raise _Misfit
        if "no_mishaps" in template_marks and marks & {"bad", "luck"}:
            raise _Misfit
        if "p" in slots:
            if "moving" in marks:
                raise _Misfit
            things = [thing for thing in things if not class_of(thing).is_landscape]
        if template == "quantity":
            things = [o for o in things if "countable" in marks_of(o) and class_of(o).name != "animal"]
        if "o" in filled:
            things = [thing for thing in things if thing != filled["o"]]
        if suffix and verb == filled["v"]:
            raise _Misfit
        thing = self._focused(things)
        found = {"v" + suffix: verb, "o" + suffix: thing}
        if template == "both_things":
            found["o2"] = self._focused([other for other in things if other != thing])
        if template == "do_with":
            found["i"] = self._choose([tool for tool in tools if tool != thing])
        if template == "because":
            found["a"] = self._choose([a for a in lexicon().reasons.get(verb, ()) if a in fitting(thing)])
        if template == "feel_because":
            found["f"] = self._choose(named("feeling", "bad" if "bad" in marks else "good"))
        return found

    def _verb_and_things(self, template: str, *, later: bool) -> tuple[str, Sequence[str], Sequence[str]]:
        if not later and template != "do_with" and self.rng.random() < _GENERIC_ACTION_SHARE:
            verb = self._choose(named("verb", "everyday"))
            mark = "visible" if "by_sight" in marks_of(verb) else "portable"
            things = [thing for thing in self.topic.things if mark in marks_of(thing)]
            if verb == "describe":
                things = [thing for thing in things if "describe_to" in class_of(thing).told_by]
            return verb, things, ()
        start = min(self.progress + (1 if later else 0), len(self.topic.actions) - 1)
        usable = self.topic.actions[start : start + 4]
        if template == "do_with":
            usable = tuple([action for action in self.topic.actions[self.progress :] if action.tools])[:2]
        if not usable:
            raise _Misfit
        return self._skewed(usable, 1.2)

    def _detail(self, template: str, slot: str, filled: dict[str, str]) -> str:
        if slot in ("o", "o2"):
            things = [thing for thing in self._things_for(template) if thing != filled.get("o")]
            if template in ("compare", "contrast") and slot == "o2":
                things = [thing for thing in things if class_of(thing) == class_of(filled["o"])]
            return self._focused(things)
        if slot in ("a", "a2"):
            return self._property(template, filled[slot.replace("a", "o")], filled)
        if slot == "p":
            return self._place(template)
        if slot == "t":
            return self._time(template)
        if slot == "q":
            return self._skewed(named("number"), 1.5)
        if slot == "f":
            return self._choose(named("feeling"))
        if slot == "w":
            return self._choose(named("weather"))
        return self._giving_or_telling(template, filled)

    def _things_for(self, template: str) -> Sequence[str]:
        if template == "compare":
            return [thing for thing in self.topic.things if fitting(thing, "gradable")]
        mark = _MARK_OF_THINGS.get(template, "visible")
        things = [thing for thing in self.topic.things if mark in marks_of(thing)]
        if "p" in lexicon().templates[template].slots:
            things = [thing for thing in things if not class_of(thing).is_landscape]
        if template == "there_was":
            things = [thing for thing in things if "mass" not in marks_of(thing)]
        return things

    def _property(self, template: str, thing: str, filled: dict[str, str]) -> str:
        adjectives = fitting(thing, _MARK_OF_ADJECTIVES.get(template, ""))
        if template == "contrast":
            adjectives = tuple([a for a in adjectives if a != filled.get("a")])
        known = self.properties.get(thing)
        if known is not None and known in adjectives and self.rng.random() < _SAME_PROPERTY_SHARE:
            return known
        return self._choose(adjectives)

    def _place(self, template: str) -> str:
        if template in ("travel", "weather"):
            return self._choose(named("city"))
        mark = _MARK_OF_PLACES.get(template)
        places = self.places if self.rng.random() < _USUAL_PLACE_SHARE else self.topic.places
        return self._choose([place for place in places if not mark or mark in marks_of(place)], 1.5)

    def _time(self, template: str) -> str:
        if template == "habit":
            return self._choose(named("habit"))
        if template == "will":
            return self._choose(named("future"))
        if template in ("weather", "travel"):
            return self.day
        draw = self.rng.random()
        if draw < 0.35:
            return self.day
        if draw < 0.6 or template == "feel":
            return self._choose(named("hour"), 1.0)
        self.clock = min(self.clock + self.rng.randrange(5), len(named("clock")) - 1)
        return named("clock")[self.clock]

    def _giving_or_telling(self, template: str, filled: dict[str, str]) -> str:
        if template == "give":
            filled["o"] = self._focused([thing for thing in self.topic.things if "portable" in marks_of(thing)])
            return self._choose(named("giving"))
        way = self._choose(named("telling"))
        filled["o"] = self._focused([thing for thing in self.topic.things if way in class_of(thing).told_by])
        return way


@cache
def _frequencies(phase: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    templates = lexicon().templates
    return tuple(templates), tuple(accumulate(template.frequencies[phase] for template in templates.values()))


@cache
def _slots_verbs_first(template: str) -> tuple[str, ...]:
    return tuple(sorted(lexicon().templates[template].slots, key=lambda slot: slot[0] != "v"))
