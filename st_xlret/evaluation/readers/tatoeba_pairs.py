"""Reading pairs of Tatoeba sentences in two languages other than English."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from st_xlret.data.reading.jsonl import DataError, read_lines
from st_xlret.evaluation.tatoeba import SentencePairs, load_tatoeba_directory, tatoeba_language

CCP_PAIRS = (
    "de-el",
    "de-it",
    "ru-nl",
    "fr-de",
    "it-ru",
    "ar-ru",
    "zh-es",
    "zh-ja",
    "ja-fr",
    "es-pt",
    "it-ro",
    "sv-da",
    "da-no",
    "nl-de",
    "ur-ru",
)
"""The pairs of Table 2 of the CCP paper, as it names them."""

JOINED = "English-centric test sets joined on English"
DRAWN = "drawn from the linked sentences of Tatoeba's export"

_SAME_LANGUAGE = {"no": "nb"}  # Tatoeba's Norwegian is Bokmål.
_LARGEST_ID = 1 << 30  # A byte of memory is kept for each id.


def split_pair(pair: str) -> tuple[str, str]:
    """The two languages of a pair.

    Raises:
        ValueError: If it is no pair of two languages.

    Example:
        >>> split_pair("de-el")
        ('de', 'el')
    """
    sides = pair.split("-")
    if len(sides) != 2 or not all(sides) or sides[0] == sides[1]:
        raise ValueError(f"{pair!r} is no pair of two languages: give it as de-fr.")
    return sides[0], sides[1]


def load_pairs_of_export(
    path: str | os.PathLike[str], pairs: Sequence[str], *, sentences_per_pair: int = 1_000, seed: int = 0
) -> SentencePairs:
    """Draw linked sentences from Tatoeba's own export: `sentences.csv` and `links.csv`, tab-separated, plain or gzip.

    A sentence that is linked to several is taken once. The files are read in a stream, the first one twice; what is
    kept in memory is the language of each sentence, the links between the wanted languages, and the drawn sentences.

    Args:
        path: The folder of the two files.
        pairs: Such as `["de-el"]`.
        sentences_per_pair: How many are drawn from each pair, or all where there are fewer.
        seed: Seed of the draw.

    Returns:
        Pair to (sentences in the first language, their translations in the second), row-aligned.

    Raises:
        FileNotFoundError: If a file is missing.
        DataError: If a line is malformed. The message names file and line.
        ValueError: If a pair has no linked sentences.
    """
    sentences, links = (_file(Path(path), name) for name in ("sentences.csv", "links.csv"))
    codes = [_canonical(code) for pair in pairs for code in split_pair(pair)]
    number_of = {code: number for number, code in enumerate(dict.fromkeys(codes), start=1)}
    language_of = bytearray()
    for identifier, code, _ in _sentences(sentences):
        # An unknown language is \\N there.
        if number := number_of.get(_canonical(tatoeba_language(code) if code.isalpha() else code), 0):
            language_of.extend(bytes(max(0, identifier + 1 - len(language_of))))
            language_of[identifier] = number
    numbers_of = {pair: tuple(number_of[_canonical(code)] for code in split_pair(pair)) for pair in pairs}
    found: dict[tuple[int, ...], list[tuple[int, int]]] = {numbers: [] for numbers in numbers_of.values()}
    for first, second in _links(links):
        if max(first, second) < len(language_of):
            of_pair = found.get((language_of[first], language_of[second]))
            if of_pair is not None:
                of_pair.append((first, second))
    drawn = {pair: _draw(found[numbers], sentences_per_pair, seed) for pair, numbers in numbers_of.items()}
    empty = [pair for pair, chosen in drawn.items() if not chosen]
    if empty:
        raise ValueError(f"{links} links no sentences of {', '.join(empty)}.")
    ids = {identifier for chosen in drawn.values() for pair in chosen for identifier in pair}
    text_of = {identifier: text for identifier, _, text in _sentences(sentences) if identifier in ids}
    return {
        pair: ([text_of[first] for first, _ in chosen], [text_of[second] for _, second in chosen])
        for pair, chosen in drawn.items()
    }


def join_on_english(sentences: SentencePairs, pairs: Sequence[str]) -> SentencePairs:
    """Join two languages of the English-centric test set where they have the same English sentence.

    Each English sentence, and each sentence of both languages, is taken once, at its first place.

    Args:
        sentences: Language to (sentences, their English translations), as `load_tatoeba_directory` reads them.
        pairs: Such as `["de-fr"]`.

    Returns:
        Pair to (sentences in the first language, sentences in the second), row-aligned.

    Raises:
        ValueError: If two languages share no English sentence.

    Example:
        >>> join_on_english({"fr": (["un", "deux"], ["one", "two"]), "de": (["zwei"], ["two"])}, ["fr-de"])
        {'fr-de': (['deux'], ['zwei'])}
    """
    joined: SentencePairs = {}
    for pair in pairs:
        first, second = (sentences[_canonical(code)] for code in split_pair(pair))
        translation_of: dict[str, str] = {}
        for text, english in zip(*second, strict=True):
            translation_of.setdefault(english, text)
        taken: tuple[dict[str, None], dict[str, None]] = ({}, {})
        for text, english in zip(*first, strict=True):
            other = translation_of.pop(english, None)
            if other is not None and text not in taken[0] and other not in taken[1]:
                taken[0][text] = taken[1][other] = None
        if not taken[0]:
            raise ValueError(
                f"{pair}: the two languages share no English sentence in the English-centric test set. "
                "Give a folder with sentences.csv and links.csv of Tatoeba's own export instead."
            )
        joined[pair] = (list(taken[0]), list(taken[1]))
    return joined


def load_tatoeba_pairs(path: str | os.PathLike[str], pairs: Sequence[str]) -> tuple[SentencePairs, str]:
    """Read pairs from Tatoeba's export where the folder has one, else by joining LASER's files on English.

    Returns:
        The pairs, and where they are from, in words.
    """
    if any((Path(path) / f"sentences.csv{ending}").is_file() for ending in ("", ".gz")):
        return load_pairs_of_export(path, pairs), DRAWN
    codes = dict.fromkeys(_canonical(code) for pair in pairs for code in split_pair(pair))
    return join_on_english(load_tatoeba_directory(path, list(codes)), pairs), JOINED


def _canonical(code: str) -> str:
    return _SAME_LANGUAGE.get(code, code)


def _draw(links: list[tuple[int, int]], count: int, seed: int) -> list[tuple[int, int]]:
    """Links between distinct sentences, drawn at random."""
    order = sorted(set(links))
    random.Random(seed).shuffle(order)
    seen: tuple[set[int], set[int]] = (set(), set())
    chosen = []
    for first, second in order:
        if first not in seen[0] and second not in seen[1]:
            seen[0].add(first)
            seen[1].add(second)
            chosen.append((first, second))
            if len(chosen) == count:
                break
    return chosen


def _file(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{folder / name} is missing (or {name}.gz): sentences.csv and links.csv belong together.")


def _sentences(file: Path) -> Iterator[tuple[int, str, str]]:
    for number, line in read_lines(file):
        fields = line.split("\t")
        if len(fields) < 3 or not fields[0].isdecimal() or int(fields[0]) > _LARGEST_ID:
            reason = f"expected an id, a language and a sentence with tabs between them, got {line[:60]!r}"
            raise DataError(reason, file=str(file), line=number)
        yield int(fields[0]), fields[1], fields[2]


def _links(file: Path) -> Iterator[tuple[int, int]]:
    for number, line in read_lines(file):
        fields = line.split("\t")
        if len(fields) != 2 or not all(field.isdecimal() for field in fields):
            raise DataError(f"expected two ids with a tab between them, got {line[:60]!r}", file=str(file), line=number)
        yield int(fields[0]), int(fields[1])
