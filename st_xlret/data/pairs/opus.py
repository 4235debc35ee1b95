"""Reading parallel sentences as they are published: WikiMatrix's TSV and OPUS's Moses format."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import datasets

from st_xlret.data.languages import check_language, check_languages, match_language
from st_xlret.data.pairs.selection import Pair, PairReport, PairSelection, collect_pairs
from st_xlret.data.reading.jsonl import BadLines, DataError, read_lines
from st_xlret.data.reading.records import clean_text
from st_xlret.data.reading.sources import Sources


def pairs_from_wikimatrix(
    paths: Any,
    *,
    threshold: float = 1.04,
    languages: Iterable[str] | None = None,
    per_language: int | None = None,
    seed: int = 0,
    exclude: Collection[str] | None = None,
    skip_bad_lines: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> tuple[datasets.Dataset, PairReport]:
    r"""Read mined pairs, ``score<TAB>source<TAB>target`` a line, as WikiMatrix and CCMatrix are published.

    Args:
        paths: One or several files whose names hold their languages, such as ``WikiMatrix.en-fr.tsv.gz``.
        threshold: Lowest margin score to keep; 1.04 is what WikiMatrix's authors recommend. Pairs below it
            are counted under ``other_languages`` of the report as ``"en>fr below the threshold"``.
        languages: Codes to keep; both sides must be among them. Default: all.
        per_language: As in :func:`~st_xlret.data.load_pairs`.
        seed: As there.
        exclude: As there.
        skip_bad_lines: As there.
        cache_dir: As there.
        show_progress: As there.

    Returns:
        The same four columns as :func:`~st_xlret.data.load_pairs`, and a report of what was left out.

    Raises:
        DataError: For a line that has not three columns or no score, a name without languages, a file that
            does not exist, or no pair left.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "WikiMatrix.en-fr.tsv")
        >>> _ = file.write_text("1.2\tYes.\tOui.\n1.0\tNo.\tChat.\n", encoding="utf-8")
        >>> pairs, report = pairs_from_wikimatrix(file, cache_dir=file.parent, show_progress=False)
        >>> pairs["target"][:], report.other_languages
        (['Oui.'], {'en>fr below the threshold': 1})
    """
    wanted = check_languages(languages)
    found = Sources.find(paths, lambda record: True, suffixes=(".tsv", ".tsv.gz"))
    codes_of = {file: languages_in_name(file) for file in found.files}

    def read(report: PairReport, bad_lines: BadLines) -> Iterator[Pair]:
        files = found.opened(read_lines, bad_lines, show_progress=show_progress, description="Reading mined pairs")
        for file, lines in files:
            kept = _kept(codes_of[file], wanted, report)
            below = f"{'>'.join(codes_of[file])} below the threshold"
            if not kept:
                continue
            for number, line in lines:
                cells = line.split("\t")
                try:
                    if len(cells) != 3:
                        raise ValueError(f"expected score, source and target with tabs between them: {line[:80]!r}")
                    score, source, target = _score(cells[0]), clean_text(cells[1]), clean_text(cells[2])
                except ValueError as error:
                    bad_lines(DataError(str(error), file=file, line=number))
                    continue
                if score < threshold:
                    report.other_languages[below] = report.other_languages.get(below, 0) + 1
                else:
                    yield source, target, *kept

    options = {"languages": None if wanted is None else sorted(wanted), "threshold": threshold}
    selection = PairSelection(per_language, seed, exclude)
    return collect_pairs(found, "wikimatrix", read, selection, options, skip_bad_lines, cache_dir)


def pairs_from_moses(
    paths: Any,
    *,
    languages: Iterable[str] | None = None,
    per_language: int | None = None,
    seed: int = 0,
    exclude: Collection[str] | None = None,
    skip_bad_lines: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> tuple[datasets.Dataset, PairReport]:
    """Read OPUS's Moses format: two files of one sentence a line, such as ``X.en-fr.en`` and ``X.en-fr.fr``.

    Args:
        paths: One or several of either of two such files (the other is found beside it); ``.gz`` may follow.
        languages: Codes to keep; both sides must be among them. Default: all.
        per_language: As in :func:`~st_xlret.data.load_pairs`.
        seed: As there.
        exclude: As there.
        skip_bad_lines: Count lines that are no text, instead of raising. Files of different length are always
            an error: which lines belong together is then unknown.
        cache_dir: As there.
        show_progress: As there.

    Returns:
        The same four columns as :func:`~st_xlret.data.load_pairs`, and a report of what was left out.

    Raises:
        DataError: For two files of different length (both are named, with their numbers of lines), a file
            without its other side, a name without languages, a bad line, or no pair left.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for language, text in (("en", "Yes."), ("fr", "Oui.")):
        ...     _ = (folder / f"X.en-fr.{language}").write_text(text, encoding="utf-8")
        >>> pairs, _ = pairs_from_moses(folder / "X.en-fr.en", cache_dir=folder, show_progress=False)
        >>> pairs[0]["target"]
        'Oui.'
    """
    wanted = check_languages(languages)
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    # A dictionary: both files of a pair may have been given.
    sides = {first: (second, codes) for first, second, codes in map(moses_files, given)}
    found = Sources([str(file) for first, (second, _) in sides.items() for file in (first, second)], [], [])

    def read(report: PairReport, bad_lines: BadLines) -> Iterator[Pair]:
        files = Sources([str(first) for first in sides], [], []).opened(
            _numbered, bad_lines, show_progress=show_progress, description="Reading Moses files"
        )
        for first, lines in files:
            second, codes = sides[Path(first)]
            kept = _kept(codes, wanted, report)
            if not kept:
                continue
            count = [0, 0]
            for source, target in zip_longest(lines, _numbered(second)):
                if source is None or target is None:
                    # The longer file is read to its end, to say how long it is.
                    count[source is None] += 1
                    continue
                count = [count[0] + 1, count[1] + 1]
                try:
                    yield clean_text(source), clean_text(target), *kept
                except ValueError as error:
                    bad_lines(DataError(str(error), file=first, line=count[0]))
            if count[0] != count[1]:
                raise DataError(
                    f"the two sides are not aligned: {first} has {count[0]:,} lines and {second} has {count[1]:,}; "
                    "fetch both files of one release again"
                )

    options = {"languages": None if wanted is None else sorted(wanted)}
    selection = PairSelection(per_language, seed, exclude)
    return collect_pairs(found, "moses", read, selection, options, skip_bad_lines, cache_dir)


def languages_in_name(path: str | os.PathLike[str]) -> tuple[str, str]:
    """The two languages in a name like ``WikiMatrix.en-fr.tsv.gz`` or ``X.en-zh_tw.tmx``.

    Raises:
        DataError: If the name has none.

    Example:
        >>> languages_in_name("data/WikiMatrix.en-pt_BR.tsv.gz")
        ('en', 'pt-br')
    """
    for part in Path(path).name.split("."):
        source, dash, target = part.partition("-")
        if dash and 2 <= len(source) <= 7 and 2 <= len(target) <= 7:
            try:
                return check_language(source), check_language(target)
            except ValueError:
                continue
    raise DataError(f"{os.fspath(path)!r} does not name its languages, as WikiMatrix.en-fr.tsv.gz does")


def moses_files(path: str | os.PathLike[str]) -> tuple[Path, Path, tuple[str, str]]:
    """Both files of a pair in the order of the languages in the name, and those languages.

    Raises:
        DataError: If a file is missing, or its name does not say its languages.
    """
    file = Path(path).expanduser().resolve()
    packed = ".gz" if file.name.endswith(".gz") else ""
    base, _, _ = file.name.removesuffix(".gz").rpartition(".")
    codes = languages_in_name(base)
    named = next(part for part in base.split(".") if _is_pair(part, codes))
    found = []
    for side in named.split("-", 1):
        options = [file.with_name(f"{base}.{side}{end}") for end in (packed, "", ".gz")]
        there = next((option for option in options if option.is_file()), None)
        if there is None:
            raise DataError(f"{str(options[0])!r} does not exist: Moses format has a file for each side")
        found.append(there)
    return found[0], found[1], codes


def _is_pair(part: str, codes: tuple[str, str]) -> bool:
    try:
        return languages_in_name(part) == codes
    except DataError:
        return False


def _numbered(path: str | os.PathLike[str], **callbacks: Callable[..., Any]) -> Iterator[str]:
    """All lines of a file, blank ones as "": their places count."""
    last = 0
    for number, line in read_lines(path, **callbacks):
        yield from [""] * (number - last - 1)
        yield line
        last = number


def _kept(codes: tuple[str, str], wanted: frozenset[str] | None, report: PairReport) -> tuple[str, str] | None:
    source, target = (match_language(code, wanted) for code in codes)
    if source is None or target is None:
        name = ">".join(codes)
        report.other_languages[name] = report.other_languages.get(name, 0) + 1
        return None
    return source, target


def _score(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected a score in the first column, found {text[:40]!r}") from None
