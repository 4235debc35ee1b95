"""Which of the pairs that were read are kept, and the report of it."""

from __future__ import annotations

import hashlib
import heapq
import os
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import datasets

from st_xlret.data.reading.arrow_cache import ArrowCache
from st_xlret.data.reading.jsonl import BadLines, DataError
from st_xlret.data.reading.records import format_report
from st_xlret.data.reading.sources import Sources

PAIR_FEATURES = datasets.Features(
    {name: datasets.Value("string") for name in ("source", "target", "source_language", "target_language")}
)
Pair = tuple[str, str, str, str]
"""Source, target, source language, target language."""


@dataclass
class PairCounts:
    """What was found for one (source language, target language).

    Attributes:
        pairs: Pairs kept.
        empty: Left out: a side without text.
        identical: Left out: both sides are the same.
        duplicate: Left out: the same pair stood before.
        excluded: Left out: a side is in ``exclude``.
        over_limit: Left out by ``per_language``.
    """

    pairs: int = 0
    empty: int = 0
    identical: int = 0
    duplicate: int = 0
    excluded: int = 0
    over_limit: int = 0


@dataclass
class PairReport:
    """What a reader of pairs kept and what it left out; ``str(report)`` is a small table.

    Attributes:
        languages: Counts by ``"source>target"`` language codes.
        other_languages: Pairs (or, from documents, documents) left out by the language filter, likewise.
        bad_lines: (file, line, reason) of the first 1 000 lines that were skipped.
        bad_line_count: How many lines were skipped.
        skipped_files: Files found in directories that hold other kinds of records.
        reused: Whether an earlier result for the same unchanged files was taken.
    """

    languages: dict[str, PairCounts] = field(default_factory=dict)
    other_languages: dict[str, int] = field(default_factory=dict)
    bad_lines: list[tuple[str, int, str]] = field(default_factory=list)
    bad_line_count: int = 0
    skipped_files: list[str] = field(default_factory=list)
    reused: bool = False

    @property
    def pairs(self) -> int:
        """Pairs kept, over all languages."""
        return sum(counts.pairs for counts in self.languages.values())

    def __str__(self) -> str:
        header = ["languages", "pairs", "empty", "identical", "duplicate", "excluded", "over limit"]
        return format_report(header, self)


def normalise_text(text: str) -> str:
    """Reduce a text to its letters, marks and digits in lower case, to find texts that are nearly equal.

    Compatibility forms are unified (NFKC); punctuation, symbols, white space and invisible characters go.

    Example:
        >>> normalise_text("He said: “No, thanks!”") == normalise_text("he said no thanks")
        True
    """
    return unicodedata.normalize("NFKC", text).lower().translate(_LETTERS_ONLY)


def lines_to_exclude(files: Iterable[str | os.PathLike[str]]) -> set[str]:
    """Lines of text files, normalised, as the ``exclude`` of the functions that read pairs takes them."""
    return {normalise_text(line) for file in files for line in Path(file).read_text(encoding="utf-8").splitlines()}


class _LettersOnly(dict[int, "int | None"]):
    """Translation table, filled as characters come up, that keeps letters, marks and digits."""

    def __missing__(self, character: int) -> int | None:
        kept = character if unicodedata.category(chr(character))[0] in "LMN" else None
        self[character] = kept
        return kept


_LETTERS_ONLY = _LettersOnly()


class PairSelection:
    """Which pairs to keep of those that were read."""

    def __init__(self, per_language: int | None, seed: int, exclude: Collection[str] | None) -> None:
        if per_language is not None and per_language < 1:
            raise ValueError(f"per_language must be at least 1 or None for all, not {per_language}")
        self.per_language = per_language
        self.seed = seed
        self.exclude = frozenset(exclude or ())

    def options(self) -> dict[str, Any]:
        """What a cached result depends on."""
        excluded = "\n".join(sorted(self.exclude)).encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(excluded).hexdigest()
        return {"per_language": self.per_language, "seed": self.seed, "exclude": digest}

    def apply(self, pairs: Iterable[Pair], report: PairReport) -> Iterator[Pair]:
        """Stream the pairs to keep, counting all in ``report``."""
        if self.per_language is None:
            return self._distinct(pairs, report)
        return self._sampled(pairs, report, self.per_language)

    def _distinct(self, pairs: Iterable[Pair], report: PairReport) -> Iterator[Pair]:
        seen: set[bytes] = set()
        for pair in pairs:
            source, target, source_language, target_language = pair
            counts = report.languages.setdefault(f"{source_language}>{target_language}", PairCounts())
            if not source or not target:
                counts.empty += 1
            elif source == target:
                counts.identical += 1
            elif (digest := _digest(pair)) in seen:
                counts.duplicate += 1
            elif self.exclude and not self.exclude.isdisjoint(map(normalise_text, (source, target))):
                counts.excluded += 1
            else:
                seen.add(digest)
                counts.pairs += 1
                yield pair

    def _sampled(self, pairs: Iterable[Pair], report: PairReport, limit: int) -> Iterator[Pair]:
        # The pairs with the lowest hashes: a max-heap of `limit` a language drops the highest.
        salt = f"{self.seed}"
        heaps: dict[str, list[tuple[int, Pair]]] = {}
        for pair in self._distinct(pairs, report):
            entry = (-int.from_bytes(_digest((salt, *pair)), "big"), pair)
            name = f"{pair[2]}>{pair[3]}"
            heap = heaps.setdefault(name, [])
            if len(heap) < limit:
                heapq.heappush(heap, entry)
            else:
                heapq.heappushpop(heap, entry)
                report.languages[name].over_limit += 1
                report.languages[name].pairs -= 1
        for _, heap in sorted(heaps.items()):
            for _, pair in sorted(heap, reverse=True):
                yield pair


def _digest(texts: Iterable[str]) -> bytes:
    return hashlib.blake2b("\0".join(texts).encode("utf-8"), digest_size=16).digest()


def collect_pairs(
    found: Sources,
    kind: str,
    read: Callable[[PairReport, BadLines], Iterator[Pair]],
    selection: PairSelection,
    options: Mapping[str, Any],
    skip_bad_lines: bool,
    cache_dir: str | os.PathLike[str] | None,
) -> tuple[datasets.Dataset, PairReport]:
    """Write the selected ones of the pairs that ``read`` streams to a cached dataset, or take that."""
    cache = ArrowCache(kind, PAIR_FEATURES, cache_dir)
    key = found.cache_key({**options, **selection.options(), "skip_bad_lines": skip_bad_lines})
    with cache.lock(key):
        stored = cache.load(key)
        if stored is not None:
            return stored[0], _report_from_json(stored[1])
        report = PairReport(skipped_files=found.skipped)
        bad_lines = BadLines(skip=skip_bad_lines)

        def finish() -> dict[str, Any]:
            report.bad_lines, report.bad_line_count = bad_lines.examples, bad_lines.count
            if not report.pairs:
                raise DataError(f"no pairs left; a language filter must name both sides of a pair:\n{report}")
            return asdict(report)

        return cache.store(key, selection.apply(read(report, bad_lines), report), finish), report


def _report_from_json(stored: dict[str, Any]) -> PairReport:
    languages = {name: PairCounts(**counts) for name, counts in stored.pop("languages").items()}
    bad_lines = [(file, line, reason) for file, line, reason in stored.pop("bad_lines")]
    return PairReport(languages=languages, bad_lines=bad_lines, **{**stored, "reused": True})
