"""Bilingual dictionaries: reading them, turning them round, and noticing that one is the wrong way round."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from st_xlret.data.languages import check_language
from st_xlret.data.reading.jsonl import BadLines, DataError, read_lines
from st_xlret.data.reading.records import clean_text
from st_xlret.data.reading.sources import Sources
from st_xlret.data.words.segmentation import fold, split_words

SUFFIXES = (".txt", ".txt.gz", ".tsv", ".tsv.gz")
_FEWEST_WORDS = 10  # fewer words in the wrong column may be there by chance


@dataclass
class Dictionary:
    """Word pairs of two languages.

    Attributes:
        source_language: Language of the first words.
        target_language: Language of the second words.
        entries: (source word, target word), each pair once, in the order read. Words may be phrases.
        name: Where it comes from, for messages.
        bad_lines: (file, line, reason) of the first 1 000 lines that were skipped.
        bad_line_count: How many lines were skipped.

    Example:
        >>> dictionary = Dictionary("en", "de", [("dog", "Hund")])
        >>> dictionary.swapped().entries
        [('Hund', 'dog')]
    """

    source_language: str
    target_language: str
    entries: list[tuple[str, str]]
    name: str = "<dictionary>"
    bad_lines: list[tuple[str, int, str]] = field(default_factory=list)
    bad_line_count: int = 0

    def __post_init__(self) -> None:
        self.source_language = check_language(self.source_language, where="source_language")
        self.target_language = check_language(self.target_language, where="target_language")

    def __len__(self) -> int:
        return len(self.entries)

    def swapped(self) -> Dictionary:
        """The same dictionary from the target to the source language."""
        entries = [(target, source) for source, target in self.entries]
        return Dictionary(
            self.target_language, self.source_language, entries, self.name, self.bad_lines, self.bad_line_count
        )

    def digest(self) -> str:
        """Hash of languages and entries."""
        parts = [self.source_language, self.target_language, *("\t".join(entry) for entry in self.entries)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def check_direction(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Refuse a dictionary whose columns look swapped, judged by sentences of the two languages.

        It does where more than twice as many of their words stand in the other language's column as in their own.

        Args:
            sources: Sentences in the source language.
            targets: Sentences in the target language.

        Raises:
            DataError: If the columns look swapped.
        """
        columns = [{fold(entry[side]) for entry in self.entries} for side in (0, 1)]
        own = other = 0
        sides = ((sources, self.source_language), (targets, self.target_language))
        for side, (sentences, language) in enumerate(sides):
            words = {fold(text[start:end]) for text in sentences for start, end in split_words(text, language)}
            own += len(words & columns[side])
            other += len(words & columns[1 - side])
        if other >= _FEWEST_WORDS and other > 2 * own:
            one, two = self.source_language, self.target_language
            raise DataError(
                f"{self.name} is said to go from {one!r} to {two!r}, but {other} words of the sentences stand in the "
                f"other language's column and {own} in their own; did you mean to swap its languages? "
                f"Read it from {two!r} to {one!r} (a file is named after its languages: words.{two}-{one}.tsv)"
            )


def read_dictionary(
    paths: Any,
    source_language: str,
    target_language: str,
    *,
    skip_bad_lines: bool = False,
    show_progress: bool = False,
) -> Dictionary:
    r"""Read bilingual dictionaries: two columns with a tab or, as in MUSE's files, a space between them.

    White space becomes single spaces. A line with a tab may hold phrases; one without has exactly two words.
    An entry that stood before is taken once.

    Args:
        paths: One or several ``.txt`` or ``.tsv`` files, which may be gzipped, of one language pair.
        source_language: Language of the first column.
        target_language: Language of the second column.
        skip_bad_lines: Count bad lines and go on, instead of raising.
        show_progress: Show a progress bar.

    Returns:
        The entries of all files together.

    Raises:
        DataError: For a line that is not UTF-8 or has not two columns (file and line are named), a file that does
            not exist, or no entry at all.
        ValueError: For an unknown language code.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "en-de.txt"
        >>> _ = file.write_text("dog Hund\nguinea pig\tMeerschweinchen\n", encoding="utf-8")
        >>> read_dictionary(file, "en", "de").entries
        [('dog', 'Hund'), ('guinea pig', 'Meerschweinchen')]
    """
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    for path in listed:
        if os.path.isdir(path):
            raise DataError(f"{str(path)!r} is a directory; pass the dictionaries of one language pair by name")
    found = Sources.find(listed, lambda record: True, suffixes=SUFFIXES)
    bad_lines = _BadDictionaryLines(skip=skip_bad_lines)
    entries: dict[tuple[str, str], None] = {}
    files = found.opened(read_lines, bad_lines, show_progress=show_progress, description="Reading dictionaries")
    for file, lines in files:
        for number, line in lines:
            try:
                entries[_columns(line)] = None
            except ValueError as error:
                bad_lines(DataError(str(error), file=file, line=number))
    name = ", ".join(found.files)
    if not entries:
        first = f"; {bad_lines.count} bad lines were skipped: {bad_lines.examples[0][2]}" if bad_lines.count else ""
        raise DataError(f"{name} holds no entry{first}")
    return Dictionary(source_language, target_language, list(entries), name, bad_lines.examples, bad_lines.count)


class _BadDictionaryLines(BadLines):
    """Says what to do about a wrong encoding."""

    def __call__(self, error: DataError) -> None:
        if error.reason.startswith("not UTF-8"):
            reason = f"{error.reason}; convert the file from its encoding, such as: iconv -f latin1 -t utf-8"
            error = DataError(reason, file=error.file, line=error.line)
        super().__call__(error)


def _columns(line: str) -> tuple[str, str]:
    columns = line.split("\t") if "\t" in line else line.split()
    if len(columns) != 2:
        raise ValueError(f"expected 2 columns, divided by a tab or (single words) a space, found {len(columns)}")
    source, target = map(clean_text, columns)
    if not source or not target:
        raise ValueError("one of the two columns is empty")
    if "\ufffd" in line:
        raise ValueError(f"{line!r:.60} holds the replacement character: the file was once read in a wrong encoding")
    return source, target
