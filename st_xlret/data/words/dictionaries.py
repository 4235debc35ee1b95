"""Bilingual dictionaries: reading them, swapping their languages, and noticing when the languages are swapped."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from st_xlret.data.languages import check_language, check_languages, languages_in_name, match_language
from st_xlret.data.reading.jsonl import BadLines, DataError, Limits, read_lines
from st_xlret.data.reading.sources import existing_path
from st_xlret.data.reading.text import fold, two_columns
from st_xlret.data.words.segmentation import split_words

SUFFIXES = (".txt", ".txt.gz", ".tsv", ".tsv.gz")
_FEWEST_WORDS = 10  # fewer words in the wrong column may be there by chance


@dataclass
class Dictionary:
    """Word pairs of two languages.

    Attributes:
        source_language: Language of the first words.
        target_language: Language of the second words.
        entries: (source word, target word), each pair once, in the order read. Words may be phrases.
        name: Its files, for messages.
        bad_lines: (file, line, reason) of the first 1,000 lines that were skipped.
        bad_line_count: Number of lines that were skipped.

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
        """Return the same dictionary from the target to the source language."""
        entries = [(target, source) for source, target in self.entries]
        return Dictionary(
            self.target_language, self.source_language, entries, self.name, self.bad_lines, self.bad_line_count
        )

    def digest(self) -> str:
        """Compute a hash of languages and entries."""
        parts = [self.source_language, self.target_language, *("\t".join(entry) for entry in self.entries)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def check_direction(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Refuse a dictionary whose columns look swapped, judged by sentences of the two languages.

        They look swapped if more than twice as many words of the sentences are in the column of the other language as
        in the column of their own.

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
                f"{self.name} is read from {one!r} to {two!r}, but {other} words of the sentences are in the column "
                f"of the other language and {own} in their own; did you mean to swap its languages? "
                f"Read it from {two!r} to {one!r} (a file is named after its languages: words.{two}-{one}.tsv)"
            )


def read_dictionary(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    source_language: str | None = None,
    target_language: str | None = None,
    *,
    skip_bad_lines: bool = False,
    limits: Limits | None = None,
) -> Dictionary:
    r"""Read a bilingual dictionary: two columns with a tab or, as in MUSE's files, a space between them.

    White space becomes single spaces. A line with a tab may contain phrases; a line without one has exactly two words.
    An entry that occurs again is taken once.

    Args:
        paths: One or several `.txt` or `.tsv` files of one language pair, plain or gzipped (`.gz`).
        source_language: Language of the first column. By default both languages are read off the name of each file,
            such as `WORDS.en-fr.tsv.gz` or `en-fr.txt`.
        target_language: Language of the second column.
        skip_bad_lines: Skip and count bad lines instead of raising an error.
        limits: Longest line of a file. By default that of `Limits`.

    Returns:
        The entries of all files together.

    Raises:
        DataError: For a line that is not UTF-8 or does not have two columns (file and line are named), a file that does
            not exist, a name without languages or files of several language pairs, or if there is no entry.
        ValueError: For an unknown language code, or one language without the other.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "en-de.txt"
        >>> _ = file.write_text("dog Hund\nguinea pig\tMeerschweinchen\n", encoding="utf-8")
        >>> dictionary = read_dictionary(file)
        >>> dictionary.target_language, dictionary.entries
        ('de', [('dog', 'Hund'), ('guinea pig', 'Meerschweinchen')])
    """
    files = sorted({_checked_path(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)})
    if (source_language is None) != (target_language is None):
        raise ValueError(f"give both languages or none, got {source_language!r} and {target_language!r}")
    if source_language is None or target_language is None:
        named = {languages_in_name(file): file for file in files}
        if len(named) != 1:
            raise DataError(f"a dictionary is of one language pair, got {len(named)}: {list(map(str, named.values()))}")
        source_language, target_language = next(iter(named))
    bad_lines = _BadDictionaryLines(skip_bad_lines, limits or Limits())
    entries: dict[tuple[str, str], None] = {}
    for file in files:
        for number, line in read_lines(file, on_bad_line=bad_lines):
            try:
                entries[_entry(line)] = None
            except ValueError as error:
                bad_lines(DataError(str(error), file=str(file), line=number))
    name = ", ".join(map(str, files))
    if not entries:
        first = f"; {bad_lines.count} bad lines were skipped: {bad_lines.examples[0][2]}" if bad_lines.count else ""
        raise DataError(f"{name} contains no entry{first}")
    return Dictionary(source_language, target_language, list(entries), name, bad_lines.examples, bad_lines.count)


def load_dictionaries(
    paths: Iterable[str | os.PathLike[str]],
    *,
    languages: Iterable[str] | None = None,
    skip_bad_lines: bool = False,
    limits: Limits | None = None,
) -> list[Dictionary]:
    """Read the dictionaries between wanted languages, each file as one dictionary.

    Args:
        paths: Files that are named after their languages, such as `WORDS.en-fr.tsv.gz`.
        languages: Codes to keep; both languages of a file must be among them, and other files are not read. All by
            default.
        skip_bad_lines: As for [`read_dictionary`][st_xlret.read_dictionary].
        limits: Longest line of a file. By default that of `Limits`.

    Raises:
        DataError: For a bad file, as `read_dictionary`, or if no dictionary is left.
    """
    wanted, listed = check_languages(languages), list(paths)
    kept = [path for path in listed if all(match_language(code, wanted) for code in languages_in_name(path))]
    if not kept:
        named = f" is between two of {', '.join(sorted(wanted))}: {[os.fspath(p) for p in listed]}" if wanted else ""
        raise DataError(f"none of the {len(listed)} dictionaries{named}" if listed else "no dictionaries given")
    return [read_dictionary(path, skip_bad_lines=skip_bad_lines, limits=limits) for path in kept]


class _BadDictionaryLines(BadLines):
    """Says what to do about a wrong encoding."""

    def __call__(self, error: DataError) -> None:
        if error.reason.startswith("not UTF-8"):
            reason = f"{error.reason}; convert the file from its encoding, such as: iconv -f latin1 -t utf-8"
            error = DataError(reason, file=error.file, line=error.line)
        super().__call__(error)


def _checked_path(path: str | os.PathLike[str]) -> Path:
    file = existing_path(path)
    if file.is_dir():
        raise DataError(f"{os.fspath(path)!r} is a directory; pass the dictionaries of one language pair by name")
    if not file.name.endswith(SUFFIXES):
        raise DataError(f"{os.fspath(path)!r} does not end in {' or '.join(SUFFIXES)}")
    return file


def _entry(line: str) -> tuple[str, str]:
    source, target = two_columns(line, spaces=True)
    if not source or not target:
        raise ValueError("one of the two columns is empty")
    if "\ufffd" in line:
        raise ValueError(f"{line!r:.60} contains the replacement character: the file was once read in a wrong encoding")
    return source, target
