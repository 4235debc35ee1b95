"""Parallel sentences: a reader of each format, and the table of pairs that training reads."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from glob import escape
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

import datasets
import numpy as np
from tqdm.auto import tqdm

from st_xlret.data import reading
from st_xlret.data.reading import BadLines, Counts, DataError, clean_text, parse_or_report
from st_xlret.data.rows import rows_by_value
from st_xlret.files import PathLike
from st_xlret.languages import (
    check_language,
    is_same_language,
    language_of,
    languages_in_name,
    match_language,
)

COLUMNS = dict.fromkeys(("source", "target", "source_language", "target_language"), "string")
FORMATS = (
    "JSON lines with source, target, source_language and target_language (.jsonl); two columns, or three with a score "
    "in the first, in files named after their languages (WikiMatrix.en-fr.tsv, en-fr.txt); and a file for each side, "
    "line by line (X.en-fr.en beside X.en-fr.fr, tatoeba.fra-eng.fra beside tatoeba.fra-eng.eng); all may be gzipped"
)
_LIKE_TWO_LANGUAGES = re.compile(r"(^|\.)[a-z]{2,3}-[a-z]{2,3}([-_]\w+)*\.", re.IGNORECASE)

Pair: TypeAlias = tuple[str, str, str, str, float | None]
"""Source, target, their languages, and the score; None in formats without any."""


def load_pairs(
    sources: Any,
    *,
    languages: Iterable[str] | None = None,
    per_language: int | None = None,
    exclude: Sequence[PathLike] = (),
    min_score: float = 1.04,
    skip_bad_lines: bool = False,
    counts: Counts | None = None,
    cache_dir: PathLike | None = None,
) -> datasets.Dataset:
    """Read parallel sentences into one memory-mapped data set, without empty, identical and repeated pairs.

    Its string columns are `source`, `target`, `source_language` and `target_language`. The table is kept, and the other
    arguments are, as in [`load_documents`][st_xlret.load_documents].

    Args:
        sources: One or several of: a file or a folder of them, as `FORMATS` says; a `datasets.Dataset` or another
            iterable of records as in `.jsonl` files.
        languages: Codes to keep; *both* sides of a pair must be among them, so name the pivot language too.
        per_language: Maximum pairs per (source language, target language), chosen by a hash of the pair: a smaller
            sample is the beginning of a larger one. By default all pairs, in the order of the files.
        exclude: Text files, one sentence per line. A pair with a side in them is left out.
        min_score: Lowest score to keep, of files with scores; WikiMatrix's by default (Schwenk et al. 2021, 4.3).
        skip_bad_lines: Skip and count bad lines.
        counts: Filled with counts by `"source>target"` languages: of `pairs`, and of those left out by their reason.
        cache_dir: Folder of the table.
    """
    paths, collections = reading.split_sources(sources)
    files = reading.source_files(paths, holds_pairs, f"parallel sentences: {FORMATS}")
    files = sorted({(moses_files(file) or (file,))[0] for file in files})
    loader = reading.Loader(languages, exclude, skip_bad_lines, counts)

    def table_rows() -> Iterator[tuple[str, ...]]:
        seen: set[bytes] = set()
        streams = [_pairs_of_file(file, loader.bad_lines) for file in files]
        for i, records in enumerate(collections, start=1):
            streams.append(
                parse_or_report(
                    enumerate(records, 1), _pair_of_record, f"<source {i}>", loader.bad_lines
                )
            )
        for pairs in tqdm(streams, desc="Reading", unit=" files", disable=None):
            for *texts, source_language, target_language, score in pairs:
                codes = [
                    match_language(code, loader.languages)
                    for code in (source_language, target_language)
                ]
                outcome = "pairs"
                if None in codes:
                    codes, outcome = [source_language, target_language], "other_languages"
                elif score is not None and not score >= min_score:
                    outcome = "low_score"
                elif is_same_language(*map(str, codes)):
                    outcome = "same_language"
                elif not all(texts):
                    outcome = "empty"
                elif texts[0] == texts[1]:
                    outcome = "identical"
                elif (digest := _digest(row := (*texts, *codes))) in seen:
                    outcome = "duplicate"
                elif loader.excludes(*texts):
                    outcome = "excluded"
                else:
                    seen.add(digest)
                    yield row
                loader.counts[">".join(map(str, codes)), outcome] += 1

    options = [min_score, *map(reading.records_identity, collections)]
    sides = [side for file in files for side in moses_files(file) or (file,)]
    table = loader.cached_table("pairs", COLUMNS, table_rows(), options, sides, cache_dir)
    return table if per_language is None else _sample_pairs(table, per_language)


def holds_pairs(file: Path) -> bool:
    """Whether a file of a folder holds parallel sentences, or is to be refused when it is read as such."""
    name = file.name.removesuffix(".gz")
    if name.endswith(".jsonl"):
        return {"source", "target"} <= (reading.first_record(file) or COLUMNS).keys()
    if name.endswith((".tsv", ".txt")):
        return has_languages_in_name(file) or bool(_LIKE_TWO_LANGUAGES.search(name))
    return moses_files(file) is not None


def has_languages_in_name(file: PathLike) -> bool:
    """Whether a file is named after two languages, as tables of pairs and dictionaries are."""
    with suppress(ValueError):
        return bool(languages_in_name(file))
    return False


def _pairs_of_file(file: Path, bad_lines: BadLines) -> Iterator[Pair]:
    name, sides = file.name.removesuffix(".gz"), moses_files(file)
    if not sides and name.endswith(".jsonl"):
        return parse_or_report(
            reading.read_jsonl(file, bad_lines), _pair_of_record, file, bad_lines
        )
    if not sides and not name.endswith((".tsv", ".txt")):
        raise DataError(f"in no format of parallel sentences, which are {FORMATS}", file)
    languages = languages_in_name(name.rpartition(".")[0] if sides else file)

    def pair_of_cells(cells: Sequence[str]) -> Pair:
        if len(cells) not in (2, 3):
            line = "\t".join(cells)[:80]
            raise ValueError(
                f"expected two columns with a tab between them, or a score before them, found {line!r}"
            )
        source, target = map(clean_text, cells[-2:])
        return source, target, *languages, float(cells[0]) if len(cells) == 3 else None

    def numbered_cells() -> Iterator[tuple[int, list[str]]]:
        for number, line in reading.read_lines(file, bad_lines):
            cells = line.split() if name.endswith(".txt") and "\t" not in line else line.split("\t")
            if number > 1 or not reading.is_header(cells[-2:], languages, file):
                yield number, cells

    if sides:
        lines = _aligned_lines(*sides, bad_lines)
        return parse_or_report(
            lines,
            lambda both: pair_of_cells([line.decode("utf-8-sig") for line in both]),
            file,
            bad_lines,
        )
    return parse_or_report(numbered_cells(), pair_of_cells, file, bad_lines)


def _aligned_lines(
    source: Path, target: Path, bad_lines: BadLines
) -> Iterator[tuple[int, tuple[bytes, bytes]]]:
    # Line belongs to line: bad and blank ones keep their place.
    for one, other in zip_longest(
        reading.raw_lines(source, bad_lines), reading.raw_lines(target, bad_lines)
    ):
        if one is None or other is None:
            raise DataError(
                f"it and {target.name} have different numbers of lines: fetch both again", source
            )
        yield one[0], (one[1], other[1])


def _pair_of_record(record: Mapping[str, Any]) -> Pair:
    source, target = (clean_text(record[side]) for side in ("source", "target"))
    fields = ("source_language", "target_language")
    one, other = (check_language(language_of(record, field) or "", where=field) for field in fields)
    return source, target, one, other, None


def moses_files(file: Path) -> tuple[Path, Path] | None:
    """Source and target file, of which this is one in Moses' format, or None; a DataError if one is missing."""
    base = file.name.removesuffix(".gz").rpartition(".")[0]

    def code_of(path: Path) -> str | None:
        with suppress(ValueError):
            return check_language(path.name.removesuffix(".gz").rpartition(".")[2])
        return None

    if not has_languages_in_name(base) or code_of(file) not in (
        languages := languages_in_name(base)
    ):
        return None
    # Files of the same compression come first: there may be X.en-fr.fr and X.en-fr.fr.gz.
    beside = sorted(
        file.parent.glob(f"{escape(base)}.*"),
        key=lambda path: (path != file, path.suffix != file.suffix),
    )
    source, target = (
        next((path for path in beside if code_of(path) == code), None) for code in languages
    )
    if source is None or target is None:
        missing = f"{base}.{languages[source is not None]}"
        raise DataError(f"the other file of parallel sentences, {missing}, is missing", file)
    return source, target


def _digest(texts: Iterable[str]) -> bytes:
    return blake2b("\0".join(texts).encode(), digest_size=16).digest()


def _sample_pairs(pairs: datasets.Dataset, limit: int) -> datasets.Dataset:
    groups, names = rows_by_value(pairs, ["source_language", "target_language"])
    chosen = []
    for _, rows in sorted(zip(names, groups, strict=True), key=lambda group: ">".join(group[0])):
        part = pairs.select(rows)
        hashes = [
            _digest(("0", *row))
            for row in zip(*(part[column][:] for column in COLUMNS), strict=True)
        ]
        chosen.append(rows[np.argsort(hashes)[: max(0, limit)]])
    return pairs.select(np.concatenate(chosen))
