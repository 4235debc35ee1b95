"""Turns meanings into sentences, by sentence patterns that are compiled once per language."""

from __future__ import annotations

import random
import re
import zlib
from functools import cache
from typing import NamedTuple

from training_scripts.demo.corpus.lexicon import Template, lexicon
from training_scripts.demo.corpus.morphology import forms

_GENDER_INDEX = {"m": 0, "ma": 0, "f": 1, "n": 2}
_PIECE = re.compile(r"\{([^}]+)\}|<([^>]+)>")
_FINITE = re.compile(r"^(.*?) \[([^\]]*)\] ?(.*)$")
_FINAL_STOP = {"zh": "。"}
_RESERVED_ONE_IN = 16


class Meaning(NamedTuple):
    """The content of a sentence, independent of any language.

    Attributes:
        template: Name of the sentence pattern.
        concepts: One concept per slot of the template.
        connective: Concept of the word that links the sentence to the one before, or `""` for none.
    """

    template: str
    concepts: tuple[str, ...]
    connective: str = ""

    @property
    def is_reserved(self) -> bool:
        """Whether the meaning belongs to the test set: one in 16, by a hash that no connective changes."""
        return zlib.crc32(repr((self.template, self.concepts)).encode()) % _RESERVED_ONE_IN == 0


class _Slot(NamedTuple):
    slot: int
    form: str
    agrees_with: tuple[int, ...]


class _Choice(NamedTuple):
    slot: int
    options: tuple[str, ...]


_Pattern = tuple["str | _Slot | _Choice", ...]


class _Compiled(NamedTuple):
    plain: tuple[_Pattern, ...]
    after_connective: _Pattern


@cache
def _patterns(language: str) -> dict[str, _Compiled]:
    return {name: compile_template(template, language) for name, template in lexicon().templates.items()}


def compile_template(template: Template, language: str) -> _Compiled:
    """Parse the variants of a template in one language.

    Raises:
        ValueError: For a slot that the template does not have; the message names the file and the line.
    """
    variants = template.variants[language]
    try:
        return _Compiled(
            tuple(_compile(_with_finite_verb(variant, first=False), template.slots) for variant in variants),
            _compile(_with_finite_verb(variants[0], first=True), template.slots),
        )
    except ValueError as error:
        raise template.row.error(f"column {language!r}: {error}") from error


def _compile(pattern: str, slots: tuple[str, ...]) -> _Pattern:
    def index(name: str) -> int:
        if name not in slots:
            raise ValueError(f"the template has the slots {' '.join(slots)}, but not {name!r}")
        return slots.index(name)

    pieces: list[str | _Slot | _Choice] = []
    position = 0
    for match in _PIECE.finditer(pattern):
        if match.start() > position:
            pieces.append(pattern[position : match.start()])
        slot_text, choice_text = match.groups()
        if slot_text:
            name_and_form, *agreement = slot_text.split("@")
            name, _, form = name_and_form.partition(".")
            pieces.append(_Slot(index(name), form or "_", tuple(map(index, agreement))))
        else:
            name, *options = choice_text.split("|")
            pieces.append(_Choice(index(name), tuple(options)))
        position = match.end()
    if position < len(pattern):
        pieces.append(pattern[position:])
    return tuple(pieces)


def _with_finite_verb(pattern: str, *, first: bool) -> str:
    match = _FINITE.match(pattern)
    if not match:
        return pattern
    before, finite, rest = match.groups()
    return " ".join([finite, before, rest] if first else [before, finite, rest])


def realise(meaning: Meaning, language: str, rng: random.Random | None = None) -> str:
    """Express a meaning in a language.

    Args:
        meaning: What the sentence means.
        language: One of `TOY_LANGUAGES`.
        rng: Source of the choice among synonyms and word orders. By default, the first of each is taken.

    Returns:
        The sentence, with its final punctuation.

    Raises:
        ValueError: For another language, and for a pattern with a form that its words do not have.

    Example:
        >>> cut = Meaning("do_with", ("Anna", "cut", "bread", "knife"))
        >>> realise(cut, "de")
        'Anna hat das Brot mit einem Messer geschnitten.'
    """
    table = forms(language)
    draw = rng.random if rng else _zero
    chosen = []
    for concept in meaning.concepts:
        synonyms = table[concept]
        chosen.append(synonyms[0] if len(synonyms) == 1 else synonyms[int(draw() * len(synonyms))])
    compiled = _patterns(language)[meaning.template]
    if meaning.connective:
        openers = table[meaning.connective]
        opener = openers[int(draw() * len(openers))]["_"]
        pattern = compiled.after_connective
        words = [opener, "" if language == "zh" else " "]
    else:
        pattern = compiled.plain[int(draw() * len(compiled.plain))]
        words = []
    try:
        for piece in pattern:
            if isinstance(piece, str):
                words.append(piece)
            elif isinstance(piece, _Slot):
                form = piece.form
                for other in piece.agrees_with:
                    form += "." + chosen[other]["g"]
                words.append(chosen[piece.slot][form])
            else:
                words.append(piece.options[_GENDER_INDEX[chosen[piece.slot]["g"]]])
    except KeyError as error:
        row = lexicon().templates[meaning.template].row
        raise row.error(f"column {language!r}: {' '.join(meaning.concepts)} have no form {error}") from error
    return _finish("".join(words), language)


def _zero() -> float:
    return 0.0


def _finish(text: str, language: str) -> str:
    text = text.strip()
    if "  " in text:
        text = text.replace("  ", " ")
    if text[-1] not in "?？؟":
        text += _FINAL_STOP.get(language, ".")
    return text[0].upper() + text[1:]
