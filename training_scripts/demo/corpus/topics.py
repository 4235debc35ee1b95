"""Topics of the generated documents, parsed from the tables of the lexicon."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from training_scripts.demo.corpus.concepts import TOY_LANGUAGES, concepts
from training_scripts.demo.corpus.lexicon import topics, topics_work_and_leisure


@dataclass(frozen=True)
class Action:
    """A verb with the things that it is done to and the instruments that it takes in one topic."""

    verb: str
    things: tuple[str, ...]
    tools: tuple[str, ...]


@dataclass(frozen=True)
class Topic:
    """A setting with its people, places and usual course of events.

    Attributes:
        name: Unique name, e.g. ``"kitchen"``.
        titles: Title of its documents, by language.
        people: Roles that occur in it.
        places: Places where it happens, the most usual first.
        actions: What is done, in the usual order.
        things: Everything that is acted on.
    """

    name: str
    titles: dict[str, str]
    people: tuple[str, ...]
    places: tuple[str, ...]
    actions: tuple[Action, ...]
    things: tuple[str, ...]


def _parse(block: str) -> Topic:
    head, people, places, *lines = block.strip().splitlines()
    name, *titles = (cell.strip() for cell in head.removeprefix("#").split(";"))
    actions = []
    for line in lines:
        verb, things, *tools = (part.strip() for part in line.split(":"))
        actions.append(Action(verb, tuple(things.split()), tuple(tools[0].split()) if tools else ()))
    things_of_topic = tuple(dict.fromkeys(thing for action in actions for thing in action.things))
    topic = Topic(
        name,
        dict(zip(TOY_LANGUAGES, titles, strict=True)),
        tuple(people.removeprefix("people:").split()),
        tuple(places.removeprefix("places:").split()),
        tuple(actions),
        things_of_topic,
    )
    verbs = {action.verb for action in actions}
    tools_of_topic = {tool for action in actions for tool in action.tools}
    used = verbs | set(things_of_topic) | tools_of_topic | {*topic.people, *topic.places}
    unknown = used - set(concepts())
    if unknown:
        raise ValueError(f"topic {name!r} uses concepts that no table defines: {sorted(unknown)}")
    return topic


@lru_cache(maxsize=1)
def all_topics() -> tuple[Topic, ...]:
    """All topics, the most frequent first.

    Example:
        >>> len(all_topics()), all_topics()[0].titles["de"]
        (16, 'Ein Tag in der Küche')
    """
    text = topics.TOPICS.strip() + "\n\n" + topics_work_and_leisure.TOPICS.strip()
    return tuple(_parse(block) for block in text.split("\n\n"))
