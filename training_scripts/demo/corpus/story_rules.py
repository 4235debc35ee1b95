"""How often stories use each sentence pattern, and which words fit it."""

from __future__ import annotations

#: Template -> how often a story opens with it, goes on with it, ends with it.
WEIGHTS: dict[str, tuple[int, int, int]] = {
    "do_place": (3, 9, 2),
    "do_time": (4, 7, 1),
    "do_place_time": (6, 9, 2),
    "do_with": (0, 12, 2),
    "do_not": (0, 4, 1),
    "want": (4, 4, 0),
    "must": (3, 4, 0),
    "could_not": (0, 4, 0),
    "because": (0, 8, 2),
    "state": (1, 3, 1),
    "attribute": (1, 9, 2),
    "compare": (0, 3, 0),
    "quantity": (1, 8, 1),
    "there_were": (2, 2, 0),
    "there_was": (3, 2, 0),
    "there_was_no": (1, 2, 0),
    "weather": (7, 0, 0),
    "stay": (0, 1, 3),
    "feel": (3, 1, 3),
    "feel_because": (0, 4, 7),
    "go": (6, 2, 3),
    "travel": (1, 0, 2),
    "give": (0, 5, 2),
    "tell": (0, 3, 1),
    "together": (1, 5, 2),
    "said": (0, 4, 0),
    "did": (0, 2, 0),
    "why_not": (0, 2, 1),
    "passive": (0, 5, 1),
    "started": (2, 4, 0),
    "habit": (5, 2, 1),
    "both_things": (0, 5, 1),
    "and_then": (0, 6, 1),
    "two_people": (0, 5, 1),
    "forgot": (0, 3, 2),
    "help": (0, 5, 1),
    "will": (0, 1, 6),
    "wait": (2, 2, 0),
    "meet": (4, 1, 0),
    "look_find": (0, 4, 0),
    "located": (2, 3, 0),
    "contrast": (0, 3, 1),
    "where": (0, 2, 0),
}

#: Verbs of every topic.
EVERYDAY_VERBS = ("bring", "find", "choose", "leave", "notice", "photograph", "describe", "lose", "hide")

#: Those that do not need a portable thing.
VERBS_FOR_WHAT_STAYS = frozenset({"notice", "photograph", "describe"})

#: Verb of telling -> classes of things that one tells in that way.
TELLABLE = {
    "read_to": {"text", "paper", "verse", "book"},
    "explain_to": {"text", "paper", "task", "verse"},
    "describe_to": {
        "picture",
        "art",
        "book",
        "way",
        "rock",
        "hollow",
        "game",
        "animal",
        "vehicle",
        "landmark",
    },
    "present_to": {"picture", "text", "task"},
}

#: Classes of things that are not inside another place.
LANDSCAPE = frozenset({"rock", "way", "hollow", "landmark", "craft"})

#: Templates for which a verb must last.
NO_MOMENTS = frozenset({"started", "habit", "forgot", "must", "together"})

#: Templates for which a verb must be meant.
NO_MISHAPS = frozenset({"want", "must", "help", "will", "forgot", "started", "habit", "could_not", "did", "together"})
