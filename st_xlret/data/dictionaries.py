"""Bilingual dictionaries."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from st_xlret.data.pair_files import rows_below_header
from st_xlret.data.reading import BadLines, DataError
from st_xlret.data.texts import clean_text
from st_xlret.data.words import fold_text, word_splitter
from st_xlret.files import PathLike
from st_xlret.languages import check_language, languages_in_name

_FEWEST_WORDS = 10  # fewer words in the wrong column may be there by chance


@dataclass
class Dictionary:
    """Word pairs of two languages, each once; words may be phrases.

    `name` is that of the file, for messages.
    """

    source_language: str
    target_language: str
    entries: list[tuple[str, str]]
    name: str = "<dictionary>"

    def __post_init__(self) -> None:
        self.source_language = check_language(self.source_language, where="source_language")
        self.target_language = check_language(self.target_language, where="target_language")

    def __len__(self) -> int:
        return len(self.entries)

    def swap_languages(self) -> Dictionary:
        """The same dictionary from the target to the source language."""
        entries = [(target, source) for source, target in self.entries]
        return Dictionary(self.target_language, self.source_language, entries, self.name)

    def check_direction(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Refuse a dictionary, as it was read, whose columns look swapped.

        Over twice as many words of the sentences are in the other column as in theirs. The error
        names the file that the other direction would have.
        """
        source_column = {fold_text(source) for source, _ in self.entries}
        target_column = {fold_text(target) for _, target in self.entries}
        of_sources = _folded_words(sources, self.source_language)
        of_targets = _folded_words(targets, self.target_language)
        straight = len(of_sources & source_column)
        straight += len(of_targets & target_column)
        crossed = len(of_sources & target_column)
        crossed += len(of_targets & source_column)
        if crossed >= _FEWEST_WORDS and crossed > 2 * straight:
            name = f"words.{self.target_language}-{self.source_language}.tsv"
            raise DataError(
                f"its languages look swapped: {crossed} words of sentences are in the column of the"
                f" other language, {straight} in their own; rename the file, such as {name}",
                self.name,
            )


def _folded_words(texts: Iterable[str], language: str) -> set[str]:
    """All words of texts, folded, to look entries up in."""
    split = word_splitter(language)
    words = set()
    for text in texts:
        for start, end in split(text):
            words.add(fold_text(text[start:end]))
    return words


def read_dictionary(
    paths: PathLike | Iterable[PathLike], *, skip_bad_lines: bool = False
) -> Dictionary:
    """Read a bilingual dictionary of two columns with a tab between them.

    In MUSE's files of words, it is a space. The files are of one language pair, which is in their
    names: `WORDS.en-fr.tsv.gz`.
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else paths
    files = sorted(map(str, listed))
    languages = {languages_in_name(file) for file in files}
    bad_lines = BadLines(skip_bad_lines)
    entries: dict[tuple[str, str], None] = {}  # each once, in order
    for file in files:
        entries |= _entries_of_file(file, bad_lines)
    bad_lines.warn()
    names = ", ".join(files)
    if len(languages) != 1 or not entries:
        found = f"found {len(entries)} of {sorted(languages)}"
        raise DataError(f"a dictionary has entries of one language pair, {found}", names)
    return Dictionary(*languages.pop(), list(entries), names)


def _entries_of_file(file: str, bad_lines: BadLines) -> dict[tuple[str, str], None]:
    """The pairs of words of a file, each once, in its order; the values say nothing."""
    entries: dict[tuple[str, str], None] = {}
    for number, cells in rows_below_header(Path(file), languages_in_name(file), bad_lines):
        words = list(map(clean_text, cells if len(cells) > 1 else cells[0].split()))
        problem = _problem_of(words)
        if problem:
            line = "\t".join(cells)
            bad_lines(f"{problem}: {line[:80]!r}", file, number)
        else:
            source, target = words
            entries[source, target] = None
    return entries


def _problem_of(words: list[str]) -> str | None:
    """Why cells are no entry, in words; None if they are one."""
    if len(words) != 2 or not all(words):
        return "expected two columns with a tab (words: a space) between them"
    if any("\ufffd" in word for word in words):
        return "a replacement character: once read in a wrong encoding"
    return None
