"""Parallel sentences: loading every format into one memory-mapped data set, and a reader for each format."""

from __future__ import annotations

import hashlib
import heapq
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cache, partial
from glob import escape
from itertools import chain, islice, repeat, zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

import datasets

from st_xlret.data.cache import cached_dataset
from st_xlret.data.documents import Document, documents_of
from st_xlret.data.lines import (
    DAMAGED,
    BadLines,
    DataError,
    Limits,
    PathLike,
    Report,
    open_bytes,
    read_jsonl,
    read_lines,
    required_field,
)
from st_xlret.data.sources import JSONL, Records, Sources, first_record, texts_to_exclude
from st_xlret.data.text import clean_text, normalise_text, two_columns
from st_xlret.languages import check_language, check_languages, languages_in_name, match_language

logger = logging.getLogger(__name__)

FORMATS = """the formats of parallel sentences are:
  .jsonl    records with 'source', 'target', 'source_language' and 'target_language', or documents with 'language',
            'sentences' and 'verses' (sentences of two languages with the same reference are a pair)
  .tmx      translation memories
  .tsv      two columns, or three with a score in the first; the languages are in the name: WikiMatrix.en-fr.tsv
  .txt      the same, or two words with a space between them: en-fr.txt
  Moses     one file for each side, X.en-fr.en beside X.en-fr.fr
each of them plain or gzipped (.gz)"""

VERSES = "verses"
_PIVOT = "en"
_LINES_TO_JUDGE_BY = 20
_XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_XML_BYTES_AT_A_TIME = 1 << 16
# These contain mark-up of the translated document, not text of the sentence.
_XML_MARK_UP = frozenset({"bpt", "ept", "it", "ph", "ut"})
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
            file = recognise(path)
        except ValueError as error:
            if is_named:
                raise DataError(f"{error}\n{FORMATS}") from error
            return False
        if file is None and is_named:
            raise DataError(f"{str(path)!r} contains no parallel sentences; {FORMATS}")
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

    @cache
    def kept_as(*codes: str) -> tuple[str, str] | None:
        source, target = (match_language(code, wanted) for code in codes)
        return None if source is None or target is None else (source, target)

    def read(path: str, bad_lines: BadLines) -> Iterator[Pair]:
        languages = formats[path].languages
        if all(languages) and kept_as(*languages) is None:
            made.other_languages[">".join(languages)] += 1
        else:
            yield from keep(read_pairs(formats[path], bad_lines))

    def read_all() -> Iterator[Pair]:
        shown: dict[str, Any] = {"show_progress_bar": show_progress_bar, "description": "Reading pairs"}
        yield from (pair for _, pair in others.in_files(read, made, **shown))
        records = others.in_collections(made, show_progress_bar=False, description="")
        yield from keep(_parsed(records, pair_of_record, made))
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


def _parsed(
    entries: Iterable[tuple[str, tuple[int, Any]]], pair_of: Callable[[Any], ReadPair], bad_lines: BadLines
) -> Iterator[ReadPair]:
    """The pairs of (file, (line, entry))."""
    for file, (number, entry) in entries:
        try:
            pair = pair_of(entry)
        except ValueError as error:
            bad_lines(str(error), file, number)
        else:
            yield pair.cut(bad_lines, file, number)


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


class PairFile(NamedTuple):
    """A file of parallel sentences, its format, the languages in its name, and the other file of Moses' format."""

    path: str
    format: str
    languages: tuple[str, str] = ("", "")
    other_side: str | None = None


class ReadPair(NamedTuple):
    """A pair as read, with checked language codes; `score` is None for formats that have none."""

    source: str
    target: str
    source_language: str
    target_language: str
    score: float | None = None

    def cut(self, bad_lines: BadLines, file: str, line: int) -> ReadPair:
        """The pair with sides no longer than the limit."""
        if max(len(self.source), len(self.target)) <= bad_lines.limits.sentence_characters:
            return self
        source, target = (bad_lines.cut(text, file, line) for text in (self.source, self.target))
        return self._replace(source=source, target=target)


def recognise(path: Path) -> PairFile | None:
    """Tell the format of a file by its name and first lines, or None for no parallel sentences.

    Raises:
        DataError: If the name has an unknown or ambiguous language, or a file of Moses' format is missing.
    """
    name = path.name.removesuffix(".gz")
    if path.name.endswith(JSONL):
        record = first_record(path)
        if record is None:
            return None
        if "verses" in record and "sentences" in record:
            return PairFile(str(path), VERSES)
        # Files whose lines are all bad give an empty record. They are taken: reading them then reports the lines.
        return PairFile(str(path), "records") if not record or {"source", "target"} <= record.keys() else None
    if name.endswith(".tmx"):
        return PairFile(str(path), "tmx")
    if not name.endswith((".tsv", ".txt")):
        return _recognise_moses(path)
    languages = languages_in_name(path)
    for _, line in islice(read_lines(path, BadLines(skip=True)), _LINES_TO_JUDGE_BY):
        cells = line.split("\t")
        if len(cells) == 3 and _is_number(cells[0]):
            return PairFile(str(path), "scored", languages)
        if len(cells) == 2:
            return PairFile(str(path), "columns", languages)
        if name.endswith(".txt") and len(line.split()) == 2:
            return PairFile(str(path), "words", languages)
    return None


def _recognise_moses(path: Path) -> PairFile | None:
    base = path.name.removesuffix(".gz").rpartition(".")[0]

    def side(file: Path) -> str | None:
        try:
            return check_language(file.name[len(base) + 1 :].removesuffix(".gz"))
        except ValueError:
            return None

    try:
        languages = languages_in_name(base)
    except ValueError:
        return None
    if side(path) not in languages:
        return None
    # The given file and others of the same compression come first: there may be X.en-fr.fr and X.en-fr.fr.gz.
    beside = sorted(path.parent.glob(f"{escape(base)}.*"), key=lambda file: (file != path, file.suffix != path.suffix))
    sides = [next((file for file in beside if side(file) == code), None) for code in languages]
    if sides[0] is None or sides[1] is None:
        missing = languages[sides.index(None)]
        raise DataError(f"{str(path)!r} is one of two files in Moses' format, and {base}.{missing} is not beside it")
    return PairFile(str(sides[0]), "moses", languages, str(sides[1]))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_pairs(file: PairFile, bad_lines: BadLines) -> Iterator[ReadPair]:
    """Stream the pairs of a file of any format but "verses", which takes several files at once."""
    if file.format == "tmx":
        for (source_code, source), *others in read_units(file.path, bad_lines):
            yield from (ReadPair(source, text, source_code, code) for code, text in others)
        return
    read, pair_of = _READERS[file.format]
    entries = ((file.path, entry) for entry in read(file, bad_lines))
    yield from _parsed(entries, partial(pair_of, file), bad_lines)


def pair_of_record(record: Mapping[str, Any]) -> ReadPair:
    """The pair in a record with `source`, `target`, `source_language` and `target_language`."""
    source_code, target_code = (
        check_language(required_field(record, f"{side}_language", str)) for side in ("source", "target")
    )
    target = clean_text(required_field(record, "target", str))
    return ReadPair(clean_text(required_field(record, "source", str)), target, source_code, target_code)


def _pair_of_columns(file: PairFile, line: str) -> ReadPair:
    return ReadPair(*two_columns(line, spaces=file.format == "words"), *file.languages)


def _pair_of_scored_columns(file: PairFile, line: str) -> ReadPair:
    score, *texts = line.split("\t")
    if len(texts) != 2:
        raise ValueError(f"expected score, source and target with tabs between them, found {line[:80]!r}")
    if not _is_number(score):
        raise ValueError(f"expected a score in the first column, found {score[:40]!r}")
    return ReadPair(clean_text(texts[0]), clean_text(texts[1]), *file.languages, float(score))


def _moses_lines(file: PairFile, bad_lines: BadLines) -> Iterator[tuple[int, tuple[str, str]]]:
    sides = (_all_lines(file.path, bad_lines), _all_lines(str(file.other_side), bad_lines))
    count = [0, 0]
    for source, target in zip_longest(*sides):
        # The longer file is read to its end, to say how long it is.
        count = [count[0] + (source is not None), count[1] + (target is not None)]
        if source is not None and target is not None:
            yield count[0], (source, target)
    if count[0] != count[1]:
        raise DataError(
            f"the two sides are not aligned: {file.path} has {count[0]:,} lines and {file.other_side} has "
            f"{count[1]:,}; fetch both files of one release again"
        )


def _all_lines(path: str, bad_lines: BadLines) -> Iterator[str]:
    """All lines of a file, with empty strings for blank and bad ones, because their positions count."""
    last = 0
    for number, line in read_lines(path, bad_lines):
        yield from repeat("", number - last - 1)
        yield line
        last = number


_Reader = Callable[[PairFile, BadLines], Iterator[tuple[int, Any]]]
_LINES: _Reader = lambda file, bad_lines: read_lines(file.path, bad_lines)  # noqa: E731
_READERS: dict[str, tuple[_Reader, Callable[[PairFile, Any], ReadPair]]] = {
    "records": (lambda file, bad_lines: read_jsonl(file.path, bad_lines), lambda _, record: pair_of_record(record)),
    "columns": (_LINES, _pair_of_columns),
    "words": (_LINES, _pair_of_columns),
    "scored": (_LINES, _pair_of_scored_columns),
    "moses": (_moses_lines, lambda file, sides: ReadPair(clean_text(sides[0]), clean_text(sides[1]), *file.languages)),
}


def read_units(path: PathLike, bad_lines: BadLines | None = None) -> Iterator[list[tuple[str, str]]]:
    """Stream the units of a TMX file, which may have gigabytes, as lists of (language, text) of two languages at least.

    Raises:
        DataError: For no XML and a unit without languages, by its number, unless `bad_lines` skips it or the rest.
    """
    bad_lines, number, waiting = bad_lines or BadLines(), 0, 0
    parser: XMLPullParser[Any] = XMLPullParser(("start", "end"))
    chunk, parents = None, list[Element]()
    with open_bytes(path) as stream:
        try:
            while chunk != b"":
                chunk = stream.read(_XML_BYTES_AT_A_TIME)
                parser.feed(chunk) if chunk else parser.close()
                waiting += len(chunk)
                for event, element in cast("Iterator[tuple[str, Element]]", parser.read_events()):
                    waiting = 0
                    if event == "start":
                        parents.append(element)
                        continue
                    parents.pop()
                    if _tag(element) == "tu":
                        number += 1
                        unit = _unit(element, bad_lines, path, number)
                        if parents:
                            parents[-1].clear()
                        if len(unit) > 1:
                            yield unit
                if waiting > bad_lines.limits.line_bytes:
                    raise ParseError(f"a tag or text is longer than {bad_lines.limits.line_bytes:,} bytes")
        except (ParseError, OSError, *DAMAGED) as error:
            reason = f"the file is truncated or is not XML from here on ({error})"
            bad_lines(reason, path, number + 1, unit="entry")


def _unit(element: Element, bad_lines: BadLines, path: PathLike, number: int) -> list[tuple[str, str]]:
    sides: list[tuple[str, str]] = []
    try:
        for variant in (child for child in element if _tag(child) == "tuv"):
            code = variant.get(_XML_LANGUAGE) or variant.get("lang")
            if code is None:
                raise ValueError("a <tuv> without xml:lang")
            code = check_language(code)
            for segment in (child for child in variant if _tag(child) == "seg"):
                sides.append((code, clean_text("".join(_texts(segment)))))
    except (ValueError, RecursionError) as error:
        bad_lines(str(error), path, number, unit="entry")
        return []
    return [(code, bad_lines.cut(text, path, number)) for code, text in sides]


def _texts(element: Element) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        if _tag(child) not in _XML_MARK_UP:
            yield from _texts(child)
        yield child.tail or ""


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def pairs_of_verses(
    found: Sources,
    wanted: frozenset[str] | None,
    bad_lines: BadLines,
    left_out: Counter[str],
    *,
    show_progress_bar: bool = True,
) -> Iterator[tuple[str, str, str, str]]:
    """Stream the pairs of sentences that have the same reference, from the pivot language to every other one.

    The pivot is English or, without English documents, the language with the most sentences. References are compared
    across all documents. The pivot's sentences are held in memory; the others are streamed.
    """

    def read(languages: frozenset[str] | None) -> Iterator[Document]:
        # A first reading, whose bad lines are counted by the last one.
        return documents_of(found, languages, BadLines(bad_lines.skip, bad_lines.limits), show_progress_bar=False)

    pivot, sentences = _PIVOT, dict[str, str]()
    if wanted is None or pivot in wanted:
        sentences = _by_verse(read(frozenset({pivot})), bad_lines.skip)
    if not sentences:
        sizes: Counter[str] = Counter()
        for document in read(wanted):
            sizes[document.language] += len(document.sentences)
        if not sizes:
            return
        pivot = min(sizes, key=lambda language: (-sizes[language], language))
        sentences = _by_verse((document for document in read(wanted) if document.language == pivot), bad_lines.skip)
    for document in documents_of(found, wanted, bad_lines, left_out, show_progress_bar=show_progress_bar):
        if document.language != pivot:
            for verse, sentence in _verses(document, bad_lines):
                if verse in sentences:
                    yield sentences[verse], sentence, pivot, document.language


def _by_verse(documents: Iterable[Document], skip_bad_lines: bool | None) -> dict[str, str]:
    sentences: dict[str, str] = {}
    bad_lines = BadLines(skip_bad_lines)
    for document in documents:
        for verse, sentence in _verses(document, bad_lines):
            sentences.setdefault(verse, sentence)
    return sentences


def _verses(document: Document, bad_lines: BadLines) -> Iterable[tuple[str, str]]:
    verses = document.record.get("verses")
    if isinstance(verses, list) and len(verses) == len(document.sentences):
        return zip(map(str, verses), document.sentences, strict=True)
    found = f"{len(verses)} verses" if isinstance(verses, list) else "no list 'verses'"
    reason = f"expected a reference for each of the {len(document.sentences)} sentences, found {found}"
    bad_lines(reason, document.file, document.line)
    return ()
