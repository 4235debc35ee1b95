"""Loading parallel sentences of every format into one memory-mapped data set."""

from __future__ import annotations

import hashlib
import heapq
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import datasets

from st_xlret.data.cache import cached_dataset
from st_xlret.data.languages import NoLanguagesError, check_languages, match_language
from st_xlret.data.lines import BadLines, DataError, Limits, PathLike, Report
from st_xlret.data.pair_formats import (
    FORMATS,
    VERSES,
    PairFile,
    ReadPair,
    pair_of_record,
    pairs_of_verses,
    read_pairs,
    recognise,
    require_format,
)
from st_xlret.data.sources import Records, Sources, texts_to_exclude
from st_xlret.data.text import normalise_text

logger = logging.getLogger(__name__)

COLUMNS = ("source", "target", "source_language", "target_language")
Pair: TypeAlias = tuple[str, str, str, str]
"""Source, target, source language, target language."""

_SUFFIXES = (".jsonl", ".tsv", ".txt")  # of files in folders that are mentioned if they contain something else
_SALT = "0"  # for the hashes that samples are drawn by


class PairReport(Report):
    """What [`load_pairs`][st_xlret.load_pairs] kept and what it left out, by `"source>target"` language codes.

    It counts `pairs` that were kept, and those left out: with an `empty` side, `identical` sides, a `duplicate`, a side
    that is `excluded`, a `low_score`, or `over_limit`. `other_languages` counts pairs, files or documents.
    """

    counted = ("pairs", "empty", "identical", "duplicate", "excluded", "low_score", "over_limit")


@dataclass(frozen=True)
class PairOptions:
    """Which pairs [`load_pairs`][st_xlret.load_pairs] keeps, of every format.

    Args:
        languages: Codes to keep; *both* sides of a pair must be among them, so name the pivot language too. `"pt"`
            also takes `"pt-br"`, see [`load_documents`][st_xlret.load_documents]. All by default.
        per_language: Maximum pairs per (source language, target language), chosen by a hash of the pair: a smaller
            sample is the beginning of a larger one. By default all pairs are kept, in the order of the files.
        exclude: Text files, one sentence per line. A pair is left out if one of its sides occurs in them, whatever the
            case, punctuation and white space.
        skip_bad_lines: Skip and count bad lines instead of raising an error.
        min_score: Lowest score to keep, of files with scores. By default that of WikiMatrix's authors (Schwenk et al.,
            2021, section 4.3).
        limits: Longest line and sentence; longer sentences are cut and counted.

    Raises:
        ValueError: For an unknown code in `languages`, or `per_language` below 1.
    """

    languages: Iterable[str] | None = None
    per_language: int | None = None
    exclude: Sequence[PathLike] = ()
    skip_bad_lines: bool = False
    min_score: float = 1.04
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        wanted = check_languages(self.languages)
        object.__setattr__(self, "languages", None if wanted is None else tuple(sorted(wanted)))
        if self.per_language is not None and self.per_language < 1:
            raise ValueError(f"per_language must be at least 1 or None for all, not {self.per_language}")


def load_pairs(
    sources: Any,
    options: PairOptions | None = None,
    *,
    report: PairReport | None = None,
    cache_dir: PathLike | None = None,
    show_progress_bar: bool = True,
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

    Sentences of two languages with the same verse reference are a pair, whose source is English or, without English
    documents, the largest language. White space becomes single spaces. Pairs with an empty side or identical sides and
    exact duplicates are left out. A second call with the same unchanged files and options takes the stored result.

    Args:
        sources: One or several of: a file; a folder, searched recursively; a `datasets.Dataset` or another iterable of
            records as in `.jsonl` files. The rows are in the order of the sorted file paths, then those of data sets
            and iterables, then those of documents with references.
        options: Which pairs to keep. By default all of them.
        report: Filled with counts of what was kept and left out.
        cache_dir: Folder for the Arrow files. By default `st_xlret` inside the cache of `datasets`.
        show_progress_bar: Show a progress bar.

    Returns:
        Data set with the string columns `source`, `target`, `source_language` and `target_language`.

    Raises:
        DataError: For a file in none of the formats (they are listed), a file name with unknown or ambiguous languages,
            a bad line (file and line are named), a source that does not exist, or if no pair is left.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "words.en-fr.tsv")
        >>> _ = file.write_text("dog\tchien\n", encoding="utf-8")
        >>> load_pairs(file, cache_dir=file.parent, show_progress_bar=False)["target"][:]
        ['chien']
    """
    options = options or PairOptions()
    formats: dict[str, PairFile] = {}

    def choose(path: Path, is_named: bool) -> bool | None:
        try:
            file = require_format(path) if is_named else recognise(path)
        except NoLanguagesError:
            return False
        if file is None:
            return False if path.name.removesuffix(".gz").endswith(_SUFFIXES) else None
        # The two files of Moses' format are one entry, whichever of them was named.
        formats[str(path)] = formats[file.path] = file
        return True

    found = Sources.find(sources, choose, nothing=f"contains no parallel sentences; {FORMATS}")
    found.files = sorted({formats[path].path for path in found.files})
    judged = [_judge(collection) for collection in found.collections]
    found.collections = [collection for collection, _ in judged]
    verses = Sources(
        [path for path in found.files if formats[path].format == VERSES],
        [collection for collection, has_verses in judged if has_verses],
    )
    others = Sources(
        [path for path in found.files if path not in verses.files],
        [collection for collection, has_verses in judged if not has_verses],
    )
    excluded, wanted = texts_to_exclude(options.exclude), check_languages(options.languages)
    made = PairReport(options.skip_bad_lines, options.limits, skipped_files=found.skipped)

    def keep(pairs: Iterable[ReadPair]) -> Iterator[Pair]:
        """The pairs in wanted languages with high enough scores."""
        for source, target, source_language, target_language, score in pairs:
            codes = kept_as(source_language, target_language)
            if codes is None:
                made.other_languages[f"{source_language}>{target_language}"] += 1
            elif score is not None and not score >= options.min_score:
                made.languages[">".join(codes)]["low_score"] += 1
            else:
                yield source, target, *codes

    known: dict[tuple[str, str], tuple[str, str] | None] = {}

    def kept_as(*codes: str) -> tuple[str, str] | None:
        pair = codes[0], codes[1]
        if pair not in known:
            source, target = (match_language(code, wanted) for code in pair)
            known[pair] = None if source is None or target is None else (source, target)
        return known[pair]

    def read(path: str, bad_lines: BadLines) -> Iterator[Pair]:
        languages = formats[path].languages
        if all(languages) and kept_as(*languages) is None:
            made.other_languages[">".join(languages)] += 1
        else:
            yield from keep(read_pairs(formats[path], bad_lines))

    def read_all() -> Iterator[Pair]:
        shown: dict[str, Any] = {"show_progress_bar": show_progress_bar, "description": "Reading pairs"}
        yield from (pair for _, pair in others.in_files(read, made, **shown))
        yield from keep(_pairs_of_records(others, made))
        if verses.files or verses.collections:
            counter = made.other_languages
            yield from pairs_of_verses(verses, wanted, made, counter, show_progress_bar=show_progress_bar)

    def rows() -> Iterator[Pair]:
        distinct = _distinct(read_all(), excluded, made)
        yield from distinct if options.per_language is None else _sampled(distinct, options.per_language, made)
        if not made.total("pairs"):
            raise DataError(f"no pairs left{found.named()}; a language filter must name both sides of a pair:\n{made}")

    what = [options.languages, options.per_language, sorted(excluded), options.skip_bad_lines, options.min_score]
    other_sides = sorted({file.other_side for file in formats.values() if file.other_side})
    key = found.cache_key([*what, astuple(options.limits), len(verses.collections)], other_files=other_sides)
    features = dict.fromkeys(COLUMNS, "string")
    dataset = cached_dataset("pairs", features, rows(), key=key, report=made, cache_dir=cache_dir)
    made.publish(report, logger)
    return dataset


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


def _pairs_of_records(found: Sources, bad_lines: BadLines) -> Iterator[ReadPair]:
    for name, (number, record) in found.in_collections(bad_lines, show_progress_bar=False, description=""):
        try:
            pair = pair_of_record(record)
        except ValueError as error:
            bad_lines(str(error), name, number)
        else:
            yield pair.cut(bad_lines, name, number)


def _distinct(pairs: Iterable[Pair], excluded: frozenset[str], report: PairReport) -> Iterator[Pair]:
    """The pairs to keep; all are counted."""
    seen: set[bytes] = set()
    for pair in pairs:
        source, target, source_language, target_language = pair
        counts = report.languages[f"{source_language}>{target_language}"]
        if not source or not target:
            counts["empty"] += 1
        elif source == target:
            counts["identical"] += 1
        elif (digest := _digest(pair)) in seen:
            counts["duplicate"] += 1
        elif excluded and not excluded.isdisjoint(map(normalise_text, (source, target))):
            counts["excluded"] += 1
        else:
            seen.add(digest)
            counts["pairs"] += 1
            yield pair


def _sampled(pairs: Iterable[Pair], limit: int, report: PairReport) -> Iterator[Pair]:
    """The pairs with the lowest hashes of each language pair: a max-heap drops the highest."""
    heaps: dict[str, list[tuple[int, Pair]]] = {}
    for pair in pairs:
        entry = (-int.from_bytes(_digest((_SALT, *pair)), "big"), pair)
        name = f"{pair[2]}>{pair[3]}"
        heap = heaps.setdefault(name, [])
        if len(heap) < limit:
            heapq.heappush(heap, entry)
        else:
            heapq.heappushpop(heap, entry)
            report.languages[name].update(over_limit=1, pairs=-1)
    for _, heap in sorted(heaps.items()):
        for _, pair in sorted(heap, reverse=True):
            yield pair


def _digest(texts: Iterable[str]) -> bytes:
    return hashlib.blake2b("\0".join(texts).encode("utf-8"), digest_size=16).digest()
