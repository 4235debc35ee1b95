"""Loading parallel sentences of every format into one memory-mapped data set."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import datasets

from st_xlret.data.languages import NoLanguagesError, check_languages, match_language
from st_xlret.data.pairs.formats import FORMATS, PairFile, recognise, require_format
from st_xlret.data.pairs.readers import ReadPair, pair_of_record, read_pairs
from st_xlret.data.pairs.selection import PAIR_FEATURES, Pair, PairReport, PairSelection
from st_xlret.data.pairs.verses import pairs_of_verses
from st_xlret.data.reading.arrow_cache import ArrowCache
from st_xlret.data.reading.jsonl import BadLines, DataError, Limits
from st_xlret.data.reading.sources import Records, Sources, texts_to_exclude

logger = logging.getLogger(__name__)

_SUFFIXES = (".jsonl", ".tsv", ".txt")  # of files in folders that are mentioned if they contain something else


@dataclass(frozen=True)
class PairOptions:
    """Which pairs [`load_pairs`][st_xlret.load_pairs] keeps, of every format.

    Args:
        languages: Codes to keep; *both* sides of a pair must be among them, so name the pivot language too. `"pt"`
            also takes `"pt-br"`, see [`load_documents`][st_xlret.load_documents]. All by default.
        per_language: Maximum pairs per (source language, target language), chosen by a hash of the pair. Samples are
            nested: a 500-pair sample consists of the first rows of the 5,000-pair one, whatever the order of the files
            and whatever else they contain. By default all pairs are kept, in the order of the files.
        exclude: Text files, one sentence per line, such as a test set. A pair is left out if one of its sides occurs
            in them; case, punctuation and white space make no difference.
        skip_bad_lines: Skip and count bad lines instead of raising an error.
        min_score: Lowest score to keep, for files with scores. The default, 1.04, is the margin score that WikiMatrix's
            authors recommend (Schwenk et al., 2021, section 4.3).
        limits: Longest line and sentence; longer sentences are cut and counted.

    Raises:
        ValueError: For an unknown code in `languages`, or `per_language` below 1.
    """

    languages: Iterable[str] | None = None
    per_language: int | None = None
    exclude: Sequence[str | os.PathLike[str]] = ()
    skip_bad_lines: bool = False
    min_score: float = 1.04
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        wanted = check_languages(self.languages)
        object.__setattr__(self, "languages", None if wanted is None else tuple(sorted(wanted)))
        PairSelection(self.per_language)


def load_pairs(
    sources: Any,
    options: PairOptions | None = None,
    *,
    report: PairReport | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> datasets.Dataset:
    r"""Load parallel sentences of every format into one memory-mapped data set.

    The format of a file is recognised by its name and its first lines. Every file may be gzipped (`.gz`):

    | file | format |
    | --- | --- |
    | `*.jsonl` | records with `source`, `target`, `source_language` and `target_language` |
    | `*.jsonl` | documents with `language`, `sentences` and `verses` (a reference for each sentence) |
    | `*.tmx` | translation memories; the first language of a unit is the source |
    | `X.en-fr.en` beside `X.en-fr.fr` | Moses: line by line; naming one of the two files is enough |
    | `WikiMatrix.en-fr.tsv` | mined pairs: score, source, target |
    | `X.en-fr.tsv`, `X.en-fr.txt` | two columns, such as dictionaries |
    | `en-fr.txt` | MUSE dictionaries: two words with a space between them |

    In documents with references, such as Bible texts, sentences of two languages with the same reference are a pair.
    One language is the source of all such pairs: English or, without English documents, the largest one.

    White space becomes single spaces. Pairs with an empty side, pairs with identical sides, and exact duplicates are
    left out and counted. A second call with the same unchanged files (path, size, modification time) and options
    reuses the stored result.

    Args:
        sources: One or several of: a file; a folder, searched recursively for files of all formats; a
            `datasets.Dataset` or another iterable of records as in `.jsonl` files. The rows are in the order of the
            sorted file paths, then those of data sets and iterables, then those of documents with references.
        options: Which pairs to keep. By default all of them.
        report: Filled with counts of what was kept and left out. They are logged as well, at the level INFO.
        cache_dir: Folder for the Arrow files. By default `st_xlret` inside the cache of `datasets`.
        show_progress: Show a progress bar.

    Returns:
        Data set with the string columns `source`, `target`, `source_language` and `target_language`.

    Raises:
        DataError: For a file in none of the formats (they are listed), a file name with unknown or ambiguous
            languages, a bad line (file and line are named), a source that does not exist, or if no pair is left.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "words.en-fr.tsv").write_text("dog\tchien\n", encoding="utf-8")
        >>> record = {"source_language": "en", "target_language": "fr", "source": "Yes.", "target": "Oui."}
        >>> pairs = load_pairs([folder, [record]], cache_dir=folder / "cache", show_progress=False)
        >>> pairs["target"][:], pairs["target_language"][:]
        (['chien', 'Oui.'], ['fr', 'fr'])
    """
    options = options or PairOptions()
    found = _PairSources.find(sources)
    selection = PairSelection(options.per_language, texts_to_exclude(options.exclude))
    key = found.everything.cache_key(
        {
            "languages": options.languages,
            "per_language": options.per_language,
            "exclude": selection.digest(),
            "skip_bad_lines": options.skip_bad_lines,
            "min_score": options.min_score,
            "limits": astuple(options.limits),
            "verses": len(found.verses.collections),
        },
        other_files=[file.other_side for file in found.files.values() if file.other_side],
    )
    made = PairReport(skipped_files=found.everything.skipped)
    bad_lines = BadLines(options.skip_bad_lines, options.limits)

    def check() -> None:
        made.take_bad_lines(bad_lines)
        if not made.pairs:
            raise DataError(
                f"no pairs left{found.everything.named()}; a language filter must name both sides of a pair:\n{made}"
            )

    rows = selection.apply(_read(found, options, made, bad_lines, show_progress), made)
    dataset, made = ArrowCache("pairs", PAIR_FEATURES, cache_dir).take_or_make(key, rows, made, check)
    made.publish(report, logger)
    return dataset


@dataclass
class _PairSources:
    """Sources sorted by how they are read.

    Attributes:
        everything: All files and collections.
        files: Files but those with verses, by path.
        records: Collections of pairs.
        verses: Files and collections of documents with verse references.
    """

    everything: Sources
    files: dict[str, PairFile]
    records: list[Records]
    verses: Sources

    @classmethod
    def find(cls, sources: Any) -> _PairSources:
        known: dict[str, PairFile] = {}

        def choose(path: Path, is_named: bool) -> bool | None:
            try:
                file = require_format(path) if is_named else recognise(path)
            except NoLanguagesError:
                return False
            if file is None:
                return False if path.name.removesuffix(".gz").endswith(_SUFFIXES) else None
            known[str(path)] = file
            return True

        everything = Sources.find(sources, choose, nothing=f"contains no parallel sentences; {FORMATS}")
        # The two files of Moses' format are one entry, whichever of them was named.
        files = {file.path: file for file in (known[path] for path in everything.files)}
        everything.files = sorted(files)
        judged = [_judge(collection) for collection in everything.collections]
        everything.collections = [collection for collection, _ in judged]
        verses = Sources(
            [path for path in everything.files if files[path].format == "verses"],
            [collection for collection, has_verses in judged if has_verses],
        )
        others = {path: files[path] for path in everything.files if files[path].format != "verses"}
        return cls(everything, others, [collection for collection, has_verses in judged if not has_verses], verses)


def _judge(collection: Records) -> tuple[Records, bool]:
    """The collection, still whole, and whether it consists of documents with verse references."""
    first = list(islice(collection, 1))
    has_verses = bool(first) and isinstance(first[0], Mapping) and {"verses", "sentences"} <= first[0].keys()
    if isinstance(collection, Iterator):
        collection = chain(first, collection)
        if has_verses:
            # Documents with references are read twice, which an iterator does not allow.
            collection = list(collection)
    return collection, has_verses


def _read(
    found: _PairSources, options: PairOptions, report: PairReport, bad_lines: BadLines, show_progress: bool
) -> Iterator[Pair]:
    """Stream the pairs of all sources in wanted languages, with high enough scores."""
    wanted = check_languages(options.languages)
    known: dict[tuple[str, str], tuple[str, str] | None] = {}

    def kept_as(source_language: str, target_language: str) -> tuple[str, str] | None:
        codes = (source_language, target_language)
        if codes not in known:
            source, target = (match_language(code, wanted) for code in codes)
            known[codes] = None if source is None or target is None else (source, target)
        return known[codes]

    def keep(pairs: Iterable[ReadPair]) -> Iterator[Pair]:
        for source, target, source_language, target_language, score in pairs:
            codes = kept_as(source_language, target_language)
            if codes is None:
                report.leave_out(f"{source_language}>{target_language}")
            elif score is not None and not score >= options.min_score:
                report.counts(">".join(codes)).low_score += 1
            else:
                yield source, target, *codes

    def read(path: str, **callbacks: Any) -> Iterator[ReadPair]:
        return read_pairs(found.files[path], **callbacks)

    files = Sources(list(found.files))
    for path, pairs in files.opened(read, bad_lines, show_progress=show_progress, description="Reading pairs"):
        languages = found.files[path].languages
        if languages is not None and kept_as(*languages) is None:
            report.leave_out(">".join(languages))
        else:
            yield from keep(pairs)
    yield from keep(_pairs_of_records(Sources([], found.records), bad_lines))
    if found.verses.files or found.verses.collections:
        yield from pairs_of_verses(found.verses, wanted, report, bad_lines, show_progress=show_progress)


def _pairs_of_records(found: Sources, bad_lines: BadLines) -> Iterator[ReadPair]:
    for name, (_, number, _), record in found.records(bad_lines, show_progress=False, description=""):
        try:
            pair = pair_of_record(record)
        except ValueError as error:
            bad_lines(DataError(str(error), file=name, line=number))
        else:
            yield pair.cut(bad_lines, name, number)
