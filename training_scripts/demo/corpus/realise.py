"""From meanings to sentences: compiled sentence patterns, one set per language."""

from __future__ import annotations

import random
import re
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from training_scripts.demo.corpus.concepts import TOY_LANGUAGES, forms
from training_scripts.demo.corpus.lexicon import templates, templates_of_two_clauses

_GENDER_INDEX = {"m": 0, "ma": 0, "f": 1, "n": 2}
_PIECE = re.compile(r"\{([^}]+)\}|<([^>]+)>")
_FINITE = re.compile(r"^(.*?) \[([^\]]*)\] ?(.*)$")
_FINAL_STOP = {"zh": "。"}
_RESERVED_ONE_IN = 16


class Meaning(NamedTuple):
    """What a sentence says, in no language.

    Attributes:
        template: Name of the sentence pattern.
        concepts: One concept per slot of the template.
        connective: Concept of the word that ties the sentence to the one before, or ``""``.
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


@dataclass(frozen=True)
class _Template:
    plain: tuple[_Pattern, ...]
    after_connective: _Pattern


def _compile(pattern: str, slots: list[str]) -> _Pattern:
    pieces: list[str | _Slot | _Choice] = []
    position = 0
    for match in _PIECE.finditer(pattern):
        if match.start() > position:
            pieces.append(pattern[position : match.start()])
        slot_text, choice_text = match.groups()
        if slot_text:
            name_and_form, *agreement = slot_text.split("@")
            name, _, form = name_and_form.partition(".")
            pieces.append(_Slot(slots.index(name), form or "_", tuple(slots.index(other) for other in agreement)))
        else:
            name, *options = choice_text.split("|")
            pieces.append(_Choice(slots.index(name), tuple(options)))
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


def _blocks() -> list[list[str]]:
    text = templates.TEMPLATES.strip() + "\n\n" + templates_of_two_clauses.TEMPLATES.strip()
    return [block.splitlines() for block in text.split("\n\n")]


@lru_cache(maxsize=1)
def template_slots() -> dict[str, tuple[str, ...]]:
    """Slot names of every template, e.g. ``("s", "v", "o", "p")``."""
    heads = (block[0].lstrip("?").split(":") for block in _blocks())
    return {name: tuple(slots.split()) for name, slots in heads}


@lru_cache(maxsize=1)
def templates_with_connective() -> frozenset[str]:
    """Names of the templates that a connective may open."""
    return frozenset(block[0].split(":")[0] for block in _blocks() if not block[0].startswith("?"))


@lru_cache(maxsize=len(TOY_LANGUAGES))
def _templates(language: str) -> dict[str, _Template]:
    compiled = {}
    for head, *lines in _blocks():
        name, slots = head.lstrip("?").split(":")
        (text,) = (line[3:] for line in lines if line.startswith(language + " "))
        variants = [variant.strip() for variant in text.split("//")]
        compiled[name] = _Template(
            tuple(_compile(_with_finite_verb(variant, first=False), slots.split()) for variant in variants),
            _compile(_with_finite_verb(variants[0], first=True), slots.split()),
        )
    return compiled


def realise(meaning: Meaning, language: str, rng: random.Random | None = None) -> str:
    """Say a meaning in a language.

    Args:
        meaning: What to say.
        language: One of ``TOY_LANGUAGES``.
        rng: Chooses among synonyms and word orders; without it, the first ones are taken.

    Returns:
        One sentence with its final punctuation.

    Raises:
        ValueError: For another language.

    Example:
        >>> cut = Meaning("do_with", ("Anna", "cut", "bread", "knife"))
        >>> for language in TOY_LANGUAGES:
        ...     print(realise(cut, language))
        Anna cut the bread with a knife.
        Anna a coupé le pain avec un couteau.
        Anna hat das Brot mit einem Messer geschnitten.
        Анна порезала хлеб ножом.
        قطعت آنا الخبز بالسكين.
        安娜用刀切了面包。
    """
    table = forms(language)
    draw = rng.random if rng else _zero
    chosen = []
    for concept in meaning.concepts:
        synonyms = table[concept]
        chosen.append(synonyms[0] if len(synonyms) == 1 else synonyms[int(draw() * len(synonyms))])
    template = _templates(language)[meaning.template]
    if meaning.connective:
        openers = table[meaning.connective]
        opener = openers[int(draw() * len(openers))]["_"]
        pattern = template.after_connective
        words = [opener, "" if language == "zh" else " "]
    else:
        pattern = template.plain[int(draw() * len(template.plain))]
        words = []
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
