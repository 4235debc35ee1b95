"""Stories: ordered meanings about a few people, things and places of one topic.

A story goes through its topic's actions in their usual order, stays with its people, comes back to the few things it
is about and to what they are like, so that a sentence predicts its neighbours: by its words, not by its topic alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from training_scripts.demo.corpus.choosing import fitting, kind_of, marks_of, skewed
from training_scripts.demo.corpus.concepts import named
from training_scripts.demo.corpus.lexicon.adjectives import REASONS
from training_scripts.demo.corpus.realise import Meaning, template_slots, templates_with_connective
from training_scripts.demo.corpus.story_rules import (
    EVERYDAY_VERBS,
    LANDSCAPE,
    NO_MISHAPS,
    NO_MOMENTS,
    TELLABLE,
    VERBS_FOR_WHAT_STAYS,
    WEIGHTS,
)
from training_scripts.demo.corpus.topics import Topic, all_topics

_TOPIC_STEEPNESS, _WORD_STEEPNESS = 1.3, 1.4
_GENERIC_ACTION_SHARE, _CONNECTIVE_SHARE, _PRONOUN_SHARE = 0.2, 0.3, 0.4
_THINGS_IN_FOCUS, _FOCUS_SHARE, _SAME_THING_SHARE, _SAME_PROPERTY_SHARE = 4, 0.85, 0.4, 0.7


class _Misfit(Exception):
    """The story has nothing that fits a slot of the template."""


@dataclass(frozen=True)
class Story:
    """A planned document.

    Attributes:
        topic: What it is about.
        hero: Concept of the person whom it follows.
        meanings: Its sentences, in order.
    """

    topic: Topic
    hero: str
    meanings: tuple[Meaning, ...]


class StoryTeller:
    """Plans one story.

    Args:
        rng: Source of all choices.
        allow: Says whether a meaning may be used; where it may not, another is drawn.
    """

    def __init__(self, rng: random.Random, allow: Callable[[Meaning], bool]) -> None:
        self.rng = rng
        self.allow = allow
        self.topic = skewed(rng, all_topics(), _TOPIC_STEEPNESS)
        people = [
            skewed(rng, self.topic.people, _WORD_STEEPNESS),
            skewed(rng, named("name"), _WORD_STEEPNESS),
        ]
        rng.shuffle(people)
        self.cast = list(dict.fromkeys([*people, skewed(rng, self.topic.people + named("name"), 1.0)]))
        self.places = rng.sample(self.topic.places, 2)
        # Neighbours in the topic's list are used together, so they are what one story is about.
        first = _THINGS_IN_FOCUS * rng.randrange(-(-len(self.topic.things) // _THINGS_IN_FOCUS))
        self.focus = set(self.topic.things[first : first + _THINGS_IN_FOCUS])
        self.mentioned: tuple[str, ...] = ()
        self.properties: dict[str, str] = {}
        self.day = skewed(rng, named("day"), _WORD_STEEPNESS)
        self.clock = rng.randrange(24)
        self.progress = 0
        self.last_subject = ""

    def tell(self) -> Story:
        """Plan 6 to 14 sentences."""
        meanings: list[Meaning] = []
        length = self.rng.randint(6, 14)
        for position in range(length):
            phase = 0 if position == 0 else 2 if position == length - 1 else 1
            meanings.append(self._next(phase, meanings))
        return Story(self.topic, self.cast[0], tuple(meanings))

    def _next(self, phase: int, so_far: Sequence[Meaning]) -> Meaning:
        names = list(WEIGHTS)
        weights = _CUMULATIVE[phase]
        while True:
            template = self.rng.choices(names, cum_weights=weights)[0]
            try:
                filled, person = self._fill(template, phase)
            except _Misfit:
                continue
            meaning = Meaning(template, filled, self._connective(template, filled, phase))
            if self.allow(meaning) and all(meaning[:2] != earlier[:2] for earlier in so_far):
                self.last_subject = person
                self._remember(meaning)
                self.progress = min(self.progress + self.rng.randrange(3), len(self.topic.actions) - 1)
                return meaning

    def _remember(self, meaning: Meaning) -> None:
        filled = dict(zip(template_slots()[meaning.template], meaning.concepts, strict=True))
        self.mentioned = tuple(filled[slot] for slot in ("o", "o2") if filled.get(slot) in self.topic.things)
        for thing, property_ in (("o", "a"), ("o2", "a2")):
            if thing in filled and property_ in filled:
                self.properties[filled[thing]] = filled[property_]

    def _connective(self, template: str, filled: tuple[str, ...], phase: int) -> str:
        if phase == 0 or template not in templates_with_connective() or self.day in filled:
            return ""
        if self.rng.random() > _CONNECTIVE_SHARE:
            return ""
        if phase == 2:
            return "finally"
        return skewed(self.rng, named("connective")[:-1], _WORD_STEEPNESS)

    def _fill(self, template: str, phase: int) -> tuple[tuple[str, ...], str]:
        filled: dict[str, str] = {}
        person = self._person()
        verbs_first = sorted(template_slots()[template], key=lambda slot: slot[0] != "v")
        for slot in verbs_first:
            if slot in filled:
                continue
            if slot == "s":
                again = person == self.last_subject and phase > 0
                (gender,) = marks_of(person)
                filled["s"] = f"{gender}_pronoun" if again and self.rng.random() < _PRONOUN_SHARE else person
            elif slot == "r":
                filled["r"] = self._choose([other for other in self.cast if other != person])
            elif slot in ("v", "v2"):
                filled.update(self._action(template, slot, filled))
            else:
                filled[slot] = self._detail(template, slot, filled)
        concepts_in_order = tuple(filled[slot] for slot in template_slots()[template])
        return concepts_in_order, person if "s" in filled else ""

    def _person(self) -> str:
        if self.last_subject and self.rng.random() < 0.45:
            return self.last_subject
        return skewed(self.rng, self.cast, 1.6)

    def _choose(self, options: Sequence[str], steepness: float = _WORD_STEEPNESS) -> str:
        if not options:
            raise _Misfit
        return skewed(self.rng, options, steepness)

    def _focused(self, things: Sequence[str]) -> str:
        again = [thing for thing in things if thing in self.mentioned]
        if again and self.rng.random() < _SAME_THING_SHARE:
            return self._choose(again)
        in_focus = [thing for thing in things if thing in self.focus]
        return self._choose(in_focus if in_focus and self.rng.random() < _FOCUS_SHARE else things)

    def _property(self, thing: str, adjectives: Sequence[str]) -> str:
        known = self.properties.get(thing)
        if known is not None and known in adjectives and self.rng.random() < _SAME_PROPERTY_SHARE:
            return known
        return self._choose(adjectives)

    def _action(self, template: str, slot: str, filled: dict[str, str]) -> dict[str, str]:
        suffix = slot[1:]
        verb, things, tools = self._verb_and_things(template, later=bool(suffix))
        marks = marks_of(verb)
        if (template in NO_MOMENTS and "once" in marks) or (template in NO_MISHAPS and marks & {"bad", "luck"}):
            raise _Misfit
        if "moving" in marks and "p" in template_slots()[template]:
            raise _Misfit
        if "p" in template_slots()[template]:
            things = [thing for thing in things if kind_of(thing) not in LANDSCAPE]
        if template == "quantity":
            things = [o for o in things if "countable" in marks_of(o) and kind_of(o) != "animal"]
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
            found["a"] = self._choose([a for a in REASONS.get(verb, ()) if a in fitting(thing)])
        if template == "feel_because":
            mood = "bad" if "bad" in marks else "good"
            found["f"] = self._choose(named("feeling", mood))
        return found

    def _verb_and_things(self, template: str, *, later: bool) -> tuple[str, Sequence[str], Sequence[str]]:
        if not later and template != "do_with" and self.rng.random() < _GENERIC_ACTION_SHARE:
            verb = self._choose(EVERYDAY_VERBS)
            mark = "visible" if verb in VERBS_FOR_WHAT_STAYS else "portable"
            things = [thing for thing in self.topic.things if mark in marks_of(thing)]
            if verb == "describe":
                things = [thing for thing in things if kind_of(thing) in TELLABLE["describe_to"]]
            return verb, things, ()
        start = min(self.progress + (1 if later else 0), len(self.topic.actions) - 1)
        usable = self.topic.actions[start : start + 4]
        if template == "do_with":
            usable = tuple(action for action in self.topic.actions[self.progress :] if action.tools)[:2]
        if not usable:
            raise _Misfit
        action = skewed(self.rng, usable, 1.2)
        return action.verb, action.things, action.tools

    def _detail(self, template: str, slot: str, filled: dict[str, str]) -> str:
        if slot in ("o", "o2"):
            things = [thing for thing in self._things_for(template) if thing != filled.get("o")]
            if template in ("compare", "contrast") and slot == "o2":
                things = [thing for thing in things if kind_of(thing) == kind_of(filled["o"])]
            return self._focused(things)
        if slot in ("a", "a2"):
            thing = filled[slot.replace("a", "o")]
            return self._property(thing, self._adjectives_for(template, filled, thing))
        if slot == "p":
            return self._place(template)
        if slot == "t":
            return self._time(template)
        if slot == "q":
            return skewed(self.rng, named("number"), 1.5)
        if slot == "f":
            return self._choose(named("feeling"))
        if slot == "w":
            return self._choose(named("weather"))
        return self._giving_or_telling(template, filled)

    def _things_for(self, template: str) -> Sequence[str]:
        mark = {
            "there_were": "countable",
            "there_was_no": "portable",
            "look_find": "portable",
            "where": "portable",
            "located": "portable",
        }.get(template, "visible")
        things = [thing for thing in self.topic.things if mark in marks_of(thing)]
        if "p" in template_slots()[template]:
            things = [thing for thing in things if kind_of(thing) not in LANDSCAPE]
        if template == "there_was":
            return [thing for thing in things if "mass" not in marks_of(thing)]
        if template == "compare":
            return [thing for thing in self.topic.things if fitting(thing, "gradable")]
        return things

    def _adjectives_for(self, template: str, filled: dict[str, str], thing: str) -> Sequence[str]:
        if template == "contrast":
            return [a for a in fitting(thing) if a != filled.get("a")]
        mark = {"attribute": "attributive", "located": "attributive", "there_was": "attributive"}.get(template)
        return fitting(thing, mark or ("gradable" if template == "compare" else ""))

    def _place(self, template: str) -> str:
        if template in ("travel", "weather"):
            return self._choose(named("city"))
        mark = {"go": "go", "stay": "in"}.get(template)
        places = self.places if self.rng.random() < 0.85 else self.topic.places
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
        things = self.topic.things
        if template == "give":
            filled["o"] = self._focused([thing for thing in things if "portable" in marks_of(thing)])
            return self._choose(named("giving"))
        way = self._choose(named("telling"))
        filled["o"] = self._focused([thing for thing in things if kind_of(thing) in TELLABLE[way]])
        return way


def _cumulative(phase: int) -> tuple[int, ...]:
    total, sums = 0, []
    for weights in WEIGHTS.values():
        total += weights[phase]
        sums.append(total)
    return tuple(sums)


_CUMULATIVE = tuple(_cumulative(phase) for phase in range(3))


def stories(seed: str, allow: Callable[[Meaning], bool]) -> Iterator[Story]:
    """Endless stories, the same for the same seed.

    Args:
        seed: Any text.
        allow: Says whether a meaning may be used.
    """
    rng = random.Random(seed)
    while True:
        yield StoryTeller(rng, allow).tell()
