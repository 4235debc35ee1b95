"""What goes with what, and choices with the skewed frequencies of real text."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from training_scripts.demo.corpus.concepts import concepts
from training_scripts.demo.corpus.lexicon.adjectives import FITTING

T = TypeVar("T")
_NOT_A_CLASS = frozenset({"portable", "visible", "mass", "countable"})


def skewed(rng: random.Random, options: Sequence[T], steepness: float) -> T:
    """Draw an option, the first ones more often: a steepness of 1 is uniform, 2 prefers the first quarter."""
    return options[int(len(options) * rng.random() ** steepness)]


def marks_of(concept: str) -> frozenset[str]:
    """Marks of a concept: the gender of a person, the class of a thing, what limits a verb."""
    return concepts()[concept].marks


@cache
def kind_of(thing: str) -> str:
    """Class of a thing, e.g. ``"fruit"``.

    Example:
        >>> kind_of("apple")
        'fruit'
    """
    (kind,) = marks_of(thing) - _NOT_A_CLASS
    return kind


@cache
def fitting(thing: str, mark: str = "") -> tuple[str, ...]:
    """Adjectives that fit a thing, optionally only the ``"gradable"`` or ``"attributive"`` ones."""
    return tuple(a for a in FITTING[kind_of(thing)] if not mark or mark in marks_of(a))
