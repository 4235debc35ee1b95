"""Which of the pairs that were read are kept, and the report on them."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import datasets

from st_xlret.data.reading.report import Report
from st_xlret.data.reading.text import normalise_text

PAIR_FEATURES = datasets.Features(
    {name: datasets.Value("string") for name in ("source", "target", "source_language", "target_language")}
)
Pair = tuple[str, str, str, str]
"""Source, target, source language, target language."""

_SALT = "0"  # for the hashes that samples are drawn by


@dataclass
class PairCounts:
    """What was found for one (source language, target language).

    Attributes:
        pairs: Pairs kept.
        empty: Pairs left out because a side has no text.
        identical: Pairs left out because both sides are the same.
        duplicate: Pairs left out because the same pair occurred before.
        excluded: Pairs left out because a side is in the `exclude` files.
        low_score: Pairs left out because their score is below `min_score`.
        over_limit: Pairs left out because of `per_language`.
    """

    pairs: int = 0
    empty: int = 0
    identical: int = 0
    duplicate: int = 0
    excluded: int = 0
    low_score: int = 0
    over_limit: int = 0


@dataclass
class PairReport(Report[PairCounts]):
    """What [`load_pairs`][st_xlret.load_pairs] kept and what it left out; `str(report)` is a small table.

    Attributes:
        languages: Counts by `"source>target"` language codes.
        other_languages: What the language filter left out, likewise: pairs or, of files that are named after their
            languages and documents with verse references, whole files and documents.
        bad_lines: (file, line, reason) of the first 1,000 lines that were skipped.
        bad_line_count: Number of lines that were skipped.
        skipped_files: Files found in folders that hold other kinds of records.
        reused: Whether an earlier result for the same unchanged files was taken.
    """

    counts_class = PairCounts
    header = ("languages", "pairs", "empty", "identical", "duplicate", "excluded", "low score", "over limit")

    @property
    def pairs(self) -> int:
        """Pairs kept, over all languages."""
        return self.total("pairs")


class PairSelection:
    """Which pairs to keep of those that were read.

    Args:
        per_language: Maximum pairs of a language pair; None for all.
        exclude: Normalised texts; pairs with a side among them are left out.

    Raises:
        ValueError: If `per_language` is below 1.
    """

    def __init__(self, per_language: int | None, exclude: Collection[str] = ()) -> None:
        if per_language is not None and per_language < 1:
            raise ValueError(f"per_language must be at least 1 or None for all, not {per_language}")
        self.per_language = per_language
        self.exclude = frozenset(exclude)

    def digest(self) -> str:
        """Hash of what is excluded."""
        return hashlib.sha256("\n".join(sorted(self.exclude)).encode("utf-8", "surrogatepass")).hexdigest()

    def apply(self, pairs: Iterable[Pair], report: PairReport) -> Iterator[Pair]:
        """Stream the pairs to keep, and count all pairs in `report`."""
        if self.per_language is None:
            return self._distinct(pairs, report)
        return self._sampled(pairs, report, self.per_language)

    def _distinct(self, pairs: Iterable[Pair], report: PairReport) -> Iterator[Pair]:
        seen: set[bytes] = set()
        for pair in pairs:
            source, target, source_language, target_language = pair
            counts = report.counts(f"{source_language}>{target_language}")
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
        # The pairs with the lowest hashes are kept: a max-heap for each language pair drops the highest.
        heaps: dict[str, list[tuple[int, Pair]]] = {}
        for pair in self._distinct(pairs, report):
            entry = (-int.from_bytes(_digest((_SALT, *pair)), "big"), pair)
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
