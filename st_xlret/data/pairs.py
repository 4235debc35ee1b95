"""Parallel sentences: the table of pairs that training reads."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from tqdm.auto import tqdm

from st_xlret.data.kept import Counts, Loader
from st_xlret.data.pair_files import (
    FORMATS,
    Pair,
    holds_pairs,
    moses_files,
    pair_of_record,
    pairs_of_file,
)
from st_xlret.data.reading import DataError, parse_entries
from st_xlret.data.rows import rows_by_value
from st_xlret.data.sources import records_identity, source_files, split_sources
from st_xlret.files import PathLike
from st_xlret.languages import is_same_language, match_language

COLUMNS = dict.fromkeys(("source", "target", "source_language", "target_language"), "string")

_MIN_SCORE = 1.04
_logger = logging.getLogger(__name__)

Row = tuple[str, str, str, str]
"""The values of `COLUMNS`."""


def load_pairs(
    sources: Any,
    *,
    languages: Iterable[str] | None = None,
    per_language: int | None = None,
    exclude: Sequence[PathLike] = (),
    min_score: float | None = None,
    skip_bad_lines: bool = False,
    counts: Counts | None = None,
    cache_dir: PathLike | None = None,
) -> datasets.Dataset:
    """Read parallel sentences into one memory-mapped data set.

    Empty, identical and repeated pairs are left out. Its string columns are `source`, `target`,
    `source_language` and `target_language`. The table is kept, and the other arguments are, as in
    [`load_documents`][st_xlret.load_documents].

    Args:
        sources: One or several of: a file or a folder of them, as `FORMATS` says; a
            `datasets.Dataset`, a data frame or another iterable of records as in `.jsonl` files.
        languages: Codes to keep; *both* sides of a pair must be among them, so name the pivot
            language too.
        per_language: Maximum pairs per (source language, target language), chosen by a hash of the
            pair: a smaller sample is the beginning of a larger one. By default all pairs, in the
            order of the files.
        exclude: Text files, one sentence per line. A pair with a side in them is left out.
        min_score: Lowest score to keep, of pairs that have one; 1.04 by default, as for WikiMatrix
            (Schwenk et al. 2021, 4.3), with a warning. A `DataError` if no pair has a score.
        skip_bad_lines: Skip and count bad lines.
        counts: Filled by `"source>target"` languages: the `pairs`, and those left out by their
            reason.
        cache_dir: Folder of the table.
    """
    paths, collections = split_sources(sources)
    files = _first_sides(source_files(paths, holds_pairs, f"parallel sentences: {FORMATS}"))
    loader = Loader(languages, exclude, skip_bad_lines, counts)
    streams = [pairs_of_file(file, loader.bad_lines) for file in files]
    options: list[Any] = [min_score]
    for number, records in enumerate(collections, start=1):
        options.append(records_identity(records))
        entries = enumerate(records, start=1)
        pairs = parse_entries(entries, pair_of_record, f"<source {number}>", loader.bad_lines)
        streams.append(pairs)
    rows = _Rows(loader, min_score)
    table = loader.cached_table(
        "pairs", COLUMNS, rows.of_streams(streams), options, _all_sides(files), cache_dir
    )
    return table if per_language is None else _sample_pairs(table, per_language)


def _first_sides(files: Iterable[Path]) -> list[Path]:
    """The files, of two in Moses' format the first one."""
    first = set()
    for file in files:
        sides = moses_files(file)
        first.add(sides[0] if sides else file)
    return sorted(first)


def _all_sides(files: Iterable[Path]) -> list[Path]:
    """The files, of two in Moses' format both."""
    every: list[Path] = []
    for file in files:
        every += moses_files(file) or (file,)
    return every


class _Rows:
    """The rows of pairs that are kept; all are counted."""

    def __init__(self, loader: Loader, min_score: float | None) -> None:
        self.loader = loader
        self.min_score = min_score
        self.have_scores = False
        self.low_scores = 0
        self.seen: set[bytes] = set()

    def of_streams(self, streams: Iterable[Iterable[Pair]]) -> Iterator[Row]:
        """The rows that are kept; every pair is counted, and scores are checked at the end."""
        for pairs in tqdm(streams, desc="Reading", unit=" files", disable=None):
            for pair in pairs:
                self.have_scores |= pair.score is not None
                row = self.row_of(pair)
                outcome = self.judge_once(pair, row)
                _, _, source_language, target_language = row or pair[:4]
                self.loader.counts[f"{source_language}>{target_language}", outcome] += 1
                self.low_scores += outcome == "low_score"
                if outcome == "pairs" and row:
                    yield row
        self._check_scores()

    def _check_scores(self) -> None:
        """Say how many pairs the default leaves out; refuse a limit that no score has to reach."""
        if self.min_score is not None and not self.have_scores:
            raise DataError(f"min_score={self.min_score:g}, and no pair has a score")
        if self.min_score is None and self.low_scores:
            _logger.warning(
                "pairs left out, as their score is not %g at least: %d (min_score sets the limit)",
                _MIN_SCORE,
                self.low_scores,
            )

    def row_of(self, pair: Pair) -> Row | None:
        """The pair under the languages that are kept; None if one of its own is not."""
        source_language = match_language(pair.source_language, self.loader.languages)
        target_language = match_language(pair.target_language, self.loader.languages)
        if source_language is None or target_language is None:
            return None
        return pair.source, pair.target, source_language, target_language

    def judge_once(self, pair: Pair, row: Row | None) -> str:
        """`pairs` if the row is kept, else why it is not.

        A row is looked at once: the second time, it is a repeated one.
        """
        if row is None:
            return "other_languages"
        if pair.score is not None and not self._is_high(pair.score):
            return "low_score"
        if is_same_language(row[2], row[3]):
            return "same_language"
        if not pair.source or not pair.target:
            return "empty"
        if pair.source == pair.target:
            return "identical"
        digest = _digest(row)
        if digest in self.seen:
            return "duplicate"
        if self.loader.excludes(pair.source, pair.target):
            return "excluded"
        self.seen.add(digest)
        return "pairs"

    def _is_high(self, score: float) -> bool:
        lowest = _MIN_SCORE if self.min_score is None else self.min_score
        return score >= lowest


def _digest(texts: Iterable[str]) -> bytes:
    return blake2b("\0".join(texts).encode(), digest_size=16).digest()


def _sample_pairs(pairs: datasets.Dataset, limit: int) -> datasets.Dataset:
    """The pairs whose hashes are lowest, `limit` of each language pair, by language pair."""
    groups = rows_by_value(pairs, ["source_language", "target_language"])
    chosen = []
    for group in sorted(groups, key=lambda group: ">".join(group.values)):
        part = pairs.select(group.rows)
        columns = [part[column][:] for column in COLUMNS]
        hashes = [_digest(("0", *row)) for row in zip(*columns, strict=True)]
        chosen.append(group.rows[np.argsort(hashes)[: max(0, limit)]])
    return pairs.select(np.concatenate(chosen))
