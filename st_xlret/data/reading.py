"""What all readers share: lines and records with their numbers, files of a folder, texts, and tables on the disk."""

import csv
import gzip
import hashlib
import json
import logging
import lzma
import os
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import datasets
import pyarrow as pa
import regex
from datasets.fingerprint import generate_fingerprint
from filelock import FileLock

from st_xlret import __version__
from st_xlret.files import PathLike, atomic_file, write_text
from st_xlret.folders import files_below
from st_xlret.languages import check_languages, normal_form

logger = logging.getLogger(__name__)

Parsed = TypeVar("Parsed")

_ROWS_PER_BATCH = 100_000
_JOINED_WITHOUT_SPACES = ("ja", "zh", "yue")
_WITHOUT_SENTENCE_MARKS = ("lo", "th")
_PHRASES = re.compile(r"\S.{59,}?(?=\s.{60}|$)|\S.*")  # the last one is not shorter either
_NO_LETTERS = regex.compile(r"[^\p{L}\p{M}\p{N}]+")
_BREAKS = re.compile(
    "\n\\s*\n|(?<=[\u0f0d\u0f0e\u17d4])(?!\\s*[\u0f0d\u0f0e])"
)  # marks of Tibetan and Khmer
_COLUMN_NAME = re.compile(
    "source|target|src|tgt|trg|text|sent(ence)?|segment|word|phrase|query|translation|lang"
)
_NOT_READ = (".bz2", ".zst", ".zip", ".7z")

csv.field_size_limit(1 << 30)  # a cell may be a document


class DataError(ValueError):
    """Something is wrong with data; the message begins with the file and the line."""

    def __init__(self, reason: str, file: PathLike = "", line: int = 0) -> None:
        place = ", line ".join(filter(None, (os.fspath(file), str(line or ""))))
        super().__init__(f"{place}: {reason}" if place else reason)


def _object_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(record := dict(pairs)) < len(pairs):  # a value would be lost
        raise ValueError(f"a name stands twice among {', '.join(name for name, _ in pairs)}")
    return record


@dataclass
class BadLines:
    """What to do about a bad line: a `DataError` or, with `skip`, its file, line and reason are kept in `skipped`."""

    skip: bool = False
    skipped: list[str] = field(default_factory=list)

    def __call__(self, reason: str, file: PathLike, line: int) -> None:
        """Raise the error, or count the line."""
        error = DataError(reason, file, line)
        if not self.skip:
            raise error
        self.skipped.append(str(error))

    def warn(self) -> None:
        """Log how many lines were skipped, and the first of them."""
        if self.skipped:
            logger.warning(
                "bad lines skipped: %d, the first: %s",
                len(self.skipped),
                "\n".join(self.skipped[:3]),
            )


class Counts(Counter[tuple[str, str]]):
    """What a loader kept and left out: counts by (language, pair or source; what was counted). Its text is a table."""

    def __str__(self) -> str:
        from tabulate import tabulate

        names = list(dict.fromkeys(name for _, name in self))
        rows = [
            [code, *(self[code, name] for name in names)]
            for code in sorted({code for code, _ in self})
        ]
        return tabulate(rows, ["", *names], tablefmt="plain")


def raw_lines(path: PathLike, bad_lines: BadLines) -> Iterator[tuple[int, bytes]]:
    """Stream (number, bytes) of all lines of a file that is plain or compressed (`.gz`, `.xz`)."""
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
    number = 0
    with openers.get(Path(path).suffix, open)(path, "rb") as stream:
        try:
            for number, line in enumerate(stream, start=1):
                if number == 1 and b"\r" in line.rstrip() and not line.endswith(b"\n"):
                    bad_lines(
                        "its lines end as on old Macs, by \\r alone: write \\n in its place",
                        path,
                        number,
                    )
                    return
                yield number, line
        except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
            bad_lines(
                f"the compressed file is truncated or damaged from here on ({error})",
                path,
                number + 1,
            )


def read_lines(path: PathLike, bad_lines: BadLines | None = None) -> Iterator[tuple[int, str]]:
    """Stream (number, line) of the non-blank lines of a UTF-8 file, plain or compressed; others are bad lines."""
    bad_lines = bad_lines or BadLines()
    for number, raw in raw_lines(path, bad_lines):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            bad_lines(f"not UTF-8 text ({error.reason} at byte {error.start})", path, number)
            continue
        if line and not line.isspace():
            yield number, line


def read_jsonl(
    path: PathLike, bad_lines: BadLines | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Stream (line number, object) of a file of JSON lines, as `read_lines` does."""
    bad_lines = bad_lines or BadLines()
    decode = json.JSONDecoder(
        object_pairs_hook=_object_of_pairs
    ).decode  # twice as fast as `json.loads` with a hook
    for number, line in read_lines(path, bad_lines):
        try:
            record = decode(line)
            problem = type(record).__name__
        except (ValueError, RecursionError) as error:
            record, problem = None, str(error)
        if isinstance(record, dict):
            yield number, record
        else:
            bad_lines(f"not a JSON object ({problem})", path, number)


def parse_or_report(
    entries: Iterable[tuple[int, Any]],
    parse: Callable[[Any], Parsed],
    file: PathLike,
    bad_lines: BadLines,
) -> Iterator[Parsed]:
    """What `parse` makes of entries with their lines; those that it refuses are bad lines."""
    for line, entry in entries:
        try:
            result = parse(entry)
        except (KeyError, TypeError, ValueError) as error:
            bad_lines(
                f"no field {error}" if isinstance(error, KeyError) else str(error), file, line
            )
        else:
            yield result


def read_table(
    path: PathLike, bad_lines: BadLines | None = None, **dialect: Any
) -> Iterator[tuple[int, list[str]]]:
    """Stream (number of its last line, cells) of the rows of a table; `dialect` are options of `csv.reader`."""
    bad_lines, number = bad_lines or BadLines(), 0

    def lines() -> Iterator[str]:
        nonlocal number
        for number, line in read_lines(path, bad_lines):  # noqa: B007
            yield f"{line}\n"  # a quoted cell may have several lines

    try:
        for cells in csv.reader(lines(), **{"strict": True, **dialect}):
            yield number, cells
    except csv.Error as error:
        bad_lines(f"no row of a table from here on ({error})", path, number)


def is_header(cells: Sequence[str], languages: tuple[str, str], file: PathLike) -> bool:
    """Whether the first line has the names of two columns, as `en` or `Text (English)`; a DataError if swapped."""
    from transformers.models.whisper.tokenization_whisper import (
        TO_LANGUAGE_CODE,
    )  # English name -> code

    words = [set(re.findall("[a-z]+", cell.casefold())) for cell in cells]
    others = [[word for word in each if not _COLUMN_NAME.fullmatch(word)] for each in words]
    codes = [{TO_LANGUAGE_CODE.get(word) or normal_form(word) for word in each} for each in others]
    primary = [code.partition("-")[0] for code in languages]
    whole = [
        (normal_form(cell) or "").partition("-")[0] for cell in cells
    ]  # such as en_US and fra_Latn
    codes = [{code} if code in primary else each for code, each in zip(whole, codes, strict=True)]
    if (
        not all(words)
        or not set().union(*codes) <= set(primary)
        or cells[0].casefold() == cells[1].casefold()
    ):
        return False
    if {primary[1]} == codes[0] or {primary[0]} == codes[1]:
        raise DataError(
            f"its name says {' and '.join(languages)}, and its first line {' and '.join(cells)}",
            file,
            1,
        )
    return True


def first_record(path: PathLike) -> Mapping[str, Any]:
    """The first record of a file of JSON lines; an empty one if there is none."""
    return next((record for _, record in read_jsonl(path, BadLines(skip=True))), {})


def split_sources(sources: Any) -> tuple[list[PathLike], list[Iterable[Any]]]:
    """The paths of a `sources` argument, and its data sets and other collections of records."""
    is_list = isinstance(sources, list | tuple) and not all(
        isinstance(one, Mapping) for one in sources
    )
    listed = list(sources) if is_list else [sources]
    paths = [one for one in listed if isinstance(one, str | os.PathLike)]
    if not all(os.fspath(path).strip() for path in paths):  # which would be the working folder
        raise DataError(f"a source has no name: {paths}")
    return paths, [one for one in listed if not isinstance(one, str | os.PathLike)]


def records_identity(records: Iterable[Any]) -> str:
    """What tells a collection of records from others; what can be read only once is never the same again."""
    if isinstance(records, datasets.Dataset):
        return str(generate_fingerprint(records))
    return repr(records) if isinstance(records, list | tuple) else uuid4().hex


def source_files(
    paths: Iterable[PathLike],
    is_wanted: Callable[[Path], bool],
    what: str,
    *,
    alone: Callable[[Path], bool] = lambda file: False,
) -> list[Path]:
    """The files that are named, and those of folders that are wanted, each once and in sorted order.

    A folder without any that is wanted is read whole if `alone` is true of all its files.
    """
    files: set[Path] = set()
    for source in paths:
        path = Path(source).expanduser().resolve()
        if path.is_file():
            files.add(path)
            continue
        every, inside, log = files_below(path)
        files |= (
            taken := set(filter(is_wanted, inside))
            or (inside if all(map(alone, inside)) else set())
        )
        problem = (
            f"{log} says which files of a table count: give a copy of its rows" if log else None
        )
        if problem or not taken:
            lacking = f"the folder holds no {what}" if path.is_dir() else "there is no such file"
            raise DataError(problem or lacking, source)
        kinds = {file.suffix for file in taken}
        others = [
            file
            for file in every
            if file.is_dir() or file.suffix in (_NOT_READ if file in inside else kinds)
        ]
        if others := sorted(others, key=lambda file: (file not in inside, file)):
            names = ", ".join(str(file.relative_to(path)) for file in others[:3])
            logger.warning("%s: not read: %d files, such as %s", source, len(others), names)
    if copies := {
        file for file in files if file.suffix in (".gz", ".xz") and file.with_suffix("") in files
    }:
        logger.warning("not read: %d compressed copies, such as %s", len(copies), min(copies))
    return sorted(files - copies)


def find_file(folder: PathLike, *patterns: str) -> Path:
    """The file of a folder, plain or gzipped, that matches the first of the patterns that any file matches."""
    for pattern in patterns:
        if files := sorted({*Path(folder).glob(pattern), *Path(folder).glob(f"{pattern}.gz")}):
            return files[0]
    place = Path(folder, patterns[0])
    there = sorted(path.name for path in place.parent.glob("*"))[:12]
    raise FileNotFoundError(f"expected {place} (or .gz); the folder holds {there}")


def cache_key(options: Any, files: Iterable[PathLike] = ()) -> str:
    """A name for what options (as JSON can hold them) and files as they are now give."""
    state = [
        (os.path.abspath(file), os.stat(file).st_size, os.stat(file).st_mtime_ns) for file in files
    ]
    return hashlib.sha256(
        json.dumps([__version__, options, state], sort_keys=True).encode()
    ).hexdigest()[:32]


def cached_table(
    name: str,
    columns: Mapping[str, str],
    rows: Iterable[tuple[Any, ...]],
    *,
    counts: Counts | None = None,
    cache_dir: PathLike | None = None,
    needed: str = "",
) -> datasets.Dataset:
    """The memory-mapped table of a name, written from rows if there is none; two processes write it once.

    Rows that fail leave nothing behind. `counts` is filled by them, or from what is kept beside the table, and logged.
    There must be rows if `needed` says what they are.
    """
    folder = Path(cache_dir or Path(datasets.config.HF_DATASETS_CACHE, "st_xlret")).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    # Dataset.from_generator takes three times as long.
    schema = datasets.Features(
        {column: datasets.Value(kind) for column, kind in columns.items()}
    ).arrow_schema
    file, beside, remaining = folder / f"{name}.arrow", folder / f"{name}.json", iter(rows)
    counts = Counts() if counts is None else counts
    with FileLock(f"{file}.lock"):
        if file.is_file():
            counts.update(
                {(code, what): count for code, what, count in json.loads(beside.read_text("utf-8"))}
            )
        else:
            with (
                atomic_file(file) as part,
                pa.OSFile(str(part), "wb") as sink,
                pa.ipc.new_stream(sink, schema) as out,
            ):
                while batch := list(islice(remaining, _ROWS_PER_BATCH)):
                    out.write_batch(
                        pa.record_batch(
                            [list(column) for column in zip(*batch, strict=True)], schema
                        )
                    )
                    needed = ""
                if needed:
                    raise DataError(f"no {needed} are left to train on:\n{counts}")
                write_text(beside, json.dumps([(*key, count) for key, count in counts.items()]))
    if counts:
        logger.info("%s", counts)
    return datasets.Dataset.from_file(str(file))


class Loader:
    """What the loaders share: which languages, texts and lines are left out, and the counts of that."""

    def __init__(
        self,
        languages: Iterable[str] | None,
        exclude: Iterable[PathLike],
        skip_bad_lines: bool,
        counts: Counts | None,
    ) -> None:
        self.languages, self.bad_lines = check_languages(languages), BadLines(skip_bad_lines)
        self.counts = Counts() if counts is None else counts
        self._excluded = frozenset(
            normalise_text(line) for file in exclude for _, line in read_lines(file)
        )

    def excludes(self, *texts: str) -> bool:
        """Whether one of these texts is to be left out."""
        return bool(self._excluded) and not self._excluded.isdisjoint(map(normalise_text, texts))

    def cached_table(
        self,
        what: str,
        columns: Mapping[str, str],
        rows: Iterable[Any],
        options: Any,
        files: Any,
        cache_dir: Any,
    ) -> datasets.Dataset:
        """The kept table of rows, which must not be none, by the options of the loader and its files."""

        def rows_then_warning() -> Iterator[Any]:
            yield from rows
            self.bad_lines.warn()

        key = cache_key(
            [sorted(self.languages or []), sorted(self._excluded), self.bad_lines.skip, options],
            files,
        )
        name = f"{what}-{key}"
        return cached_table(
            name, columns, rows_then_warning(), counts=self.counts, cache_dir=cache_dir, needed=what
        )


def clean_text(text: Any) -> str:
    """Replace every run of white space by a single space; a ValueError for no string or half of a surrogate pair."""
    if not isinstance(text, str):
        raise ValueError(f"a text must be a string, found {type(text).__name__} {text!r:.40}")
    text.encode()  # Arrow would refuse half of a surrogate pair without naming a line
    return " ".join(text.split())


def normalise_text(text: str) -> str:
    """Reduce a text to its letters, marks and digits in lower case (NFKC), to find texts that are nearly equal."""
    return _NO_LETTERS.sub("", unicodedata.normalize("NFKC", text).lower())


def split_sentences(text: str, language: str) -> list[str]:
    r"""Split running text into sentences by `sentencex`, none empty; a blank line always ends one.

    Thai and Lao, without sentence marks, are cut at spaces into runs of whole phrases of at least 60 characters.

    Example:
        >>> split_sentences("Dr. Smith left. Did he?\nYes.", "en")
        ['Dr. Smith left.', 'Did he?', 'Yes.']
    """
    import sentencex

    primary = _primary_code(language)
    segments = (
        segment for part in _BREAKS.split(text) for segment in sentencex.segment(primary, part)
    )
    sentences = [sentence for segment in segments if (sentence := " ".join(segment.split()))]
    if primary in _WITHOUT_SENTENCE_MARKS:
        return [run for sentence in sentences for run in _PHRASES.findall(sentence)]
    return sentences


def join_sentences(sentences: Sequence[str], language: str) -> str:
    """Join consecutive sentences into running text, with a space where the language writes one."""
    return ("" if _primary_code(language) in _JOINED_WITHOUT_SPACES else " ").join(sentences)


def _primary_code(language: str) -> str:
    return language.lower().replace("_", "-").partition("-")[0]
