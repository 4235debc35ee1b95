"""Making word-positioned samples batch by batch, and counting what became of each pair."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import datasets
from tqdm.auto import tqdm

from st_xlret.data.languages import match_language
from st_xlret.data.reading.report import Report
from st_xlret.data.reading.text import clean_text, fold
from st_xlret.data.words.dictionaries import Dictionary
from st_xlret.data.words.matching import TokenCounter, TokenisedSentence, WordMatch, WordMatcher
from st_xlret.data.words.segmentation import stop_words

_TEXTS = ("source", "target", "source_language", "target_language")
_PLACES = ("source_start", "source_end", "target_start", "target_end")
WORD_SAMPLE_FEATURES = datasets.Features(
    {
        **{name: datasets.Value("string") for name in _TEXTS},
        **{name: datasets.Value("int32") for name in _PLACES},
        **{name: datasets.Value("string") for name in ("source_word", "target_word")},
    }
)
_FORMAT_VERSION = 1
_PAIRS_AT_ONCE = 1_000

Row = tuple[Any, ...]


@dataclass
class WordSampleCounts:
    """What became of the pairs of one (source language, target language).

    Every pair is counted once: either it gave samples, or the reason is that of its word that passed the most checks.

    Attributes:
        pairs: Pairs read.
        used: Pairs that gave samples.
        samples: Samples that they gave.
        empty: Pairs with a side without text.
        identical: Pairs whose sides are the same.
        duplicate: Pairs that occurred before.
        no_dictionary: Pairs of two languages without a dictionary.
        no_word: Pairs without a dictionary entry that occurs on both sides.
        stop_word: Pairs in which only entries with a stop word do.
        repeated: Pairs in which only entries do that have a word which occurs more than once on a side.
        tokens: Pairs whose words have no tokens of their own, or tokens that occur elsewhere too.
        truncated: Pairs whose words come after the last token that is read.
    """

    pairs: int = 0
    used: int = 0
    samples: int = 0
    empty: int = 0
    identical: int = 0
    duplicate: int = 0
    no_dictionary: int = 0
    no_word: int = 0
    stop_word: int = 0
    repeated: int = 0
    tokens: int = 0
    truncated: int = 0


@dataclass
class WordSampleReport(Report[WordSampleCounts]):
    """How many pairs gave samples, and why the others gave none; `str(report)` is a small table.

    Attributes:
        languages: Counts by `"source>target"` language codes.
        bad_lines: (file, line, reason) of the first 1,000 lines of the dictionaries that were skipped.
        bad_line_count: Number of lines that were skipped.
        reused: Whether an earlier result for the same pairs, dictionaries and tokenizer was taken.
    """

    counts_class = WordSampleCounts
    header = (
        *("languages", "pairs", "used", "samples", "empty", "identical", "duplicate", "no dictionary", "no word"),
        *("stop word", "more than once", "tokens", "truncated"),
    )

    @property
    def samples(self) -> int:
        """Samples, over all languages."""
        return self.total("samples")


_REASONS = {"no dictionary word": "no_word", "stop word": "stop_word", "more than once": "repeated"}


class WordSampleMaker:
    """Makes the samples of pairs, batch by batch, and counts what became of each pair in `report`."""

    def __init__(
        self,
        dictionaries: Sequence[Dictionary],
        counter: TokenCounter,
        stop_words_by_language: Mapping[str, Collection[str]] | None,
        samples_per_pair: int | None,
        seed: int,
    ) -> None:
        self.dictionaries, self.counter = dictionaries, counter
        self.samples_per_pair, self.seed = samples_per_pair, seed
        self.given_stop_words: dict[str, list[str]] | None = None
        if stop_words_by_language is not None:
            self.given_stop_words = {k: sorted(map(fold, words)) for k, words in stop_words_by_language.items()}
        skipped = [line for dictionary in dictionaries for line in dictionary.bad_lines]
        self.report = WordSampleReport(
            bad_lines=skipped, bad_line_count=sum(dictionary.bad_line_count for dictionary in dictionaries)
        )
        self._matchers: dict[tuple[str, str], WordMatcher | None] = {}

    def rows(self, pairs: datasets.Dataset, *, show_progress: bool) -> Iterator[Row]:
        """Stream the samples of all pairs."""
        seen: set[int] = set()
        columns = pairs.select_columns(list(_TEXTS))
        with tqdm(total=len(pairs), desc="Finding words", unit="pair", disable=not show_progress) as bar:
            for batch in columns.iter(_PAIRS_AT_ONCE):
                rows = list(zip(*(batch[name] for name in _TEXTS), strict=True))
                yield from self._samples(rows, seen)
                bar.update(len(rows))

    def dictionaries_for(self, source_language: str, target_language: str) -> list[Dictionary]:
        """The dictionaries that serve a language pair, swapped where needed."""
        found = []
        for dictionary in self.dictionaries:
            own = (dictionary.source_language, dictionary.target_language)
            if _serves(own, (source_language, target_language)):
                found.append(dictionary)
            elif _serves(own, (target_language, source_language)):
                found.append(dictionary.swapped())
        return found

    def cache_key(self, pairs: datasets.Dataset) -> str:
        """Name for what these pairs, dictionaries, tokenizer and options give."""
        tokenizer = self.counter.tokenizer
        parts = [
            _FORMAT_VERSION,
            pairs._fingerprint,
            [dictionary.digest() for dictionary in self.dictionaries],
            tokenizer.backend_tokenizer.to_str(),
            [self.counter.max_length, self.samples_per_pair, self.seed, self.given_stop_words],
            [_version(library) for library in ("datasets", "icu4py", "stopwordsiso")],
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]

    def _samples(self, rows: list[tuple[str, str, str, str]], seen: set[int]) -> Iterator[Row]:
        matched: list[tuple[tuple[str, str, str, str], WordSampleCounts, list[WordMatch]]] = []
        for row in rows:
            _, _, source_language, target_language = row
            counts = self.report.counts(f"{source_language}>{target_language}")
            counts.pairs += 1
            source, target = clean_text(row[0] or ""), clean_text(row[1] or "")
            identity = hash((source, target, source_language, target_language))
            matcher = self._matcher(source_language, target_language)
            if not source or not target:
                counts.empty += 1
            elif source == target:
                counts.identical += 1
            elif identity in seen:
                counts.duplicate += 1
            elif matcher is None:
                counts.no_dictionary += 1
            else:
                seen.add(identity)
                found = matcher.match(source, target)
                if isinstance(found, str):
                    name = _REASONS[found]
                    setattr(counts, name, getattr(counts, name) + 1)
                else:
                    matched.append(((source, target, source_language, target_language), counts, found))
        if matched:
            yield from self._with_tokens(matched)

    def _with_tokens(
        self, matched: list[tuple[tuple[str, str, str, str], WordSampleCounts, list[WordMatch]]]
    ) -> Iterator[Row]:
        words = (row[side][slice(*match[side])] for row, _, matches in matched for match in matches for side in (0, 1))
        self.counter.learn_own_tokens(words)
        sources, targets = (self.counter.tokenise([row[side] for row, _, _ in matched]) for side in (0, 1))
        for (row, counts, matches), source, target in zip(matched, sources, targets, strict=True):
            samples: list[Row] = []
            reasons: set[str] = set()
            for match in matches:
                sample = self._sample(row, source, target, match)
                if isinstance(sample, str):
                    reasons.add(sample)
                else:
                    samples.append(sample)
            if samples:
                samples = self._chosen(samples)
                counts.used += 1
                counts.samples += len(samples)
                yield from samples
            elif "truncated" in reasons:
                counts.truncated += 1
            else:
                counts.tokens += 1

    def _sample(self, row: Row, source: TokenisedSentence, target: TokenisedSentence, match: WordMatch) -> Row | str:
        here = self.counter.token_span(source, *match.source)
        if isinstance(here, str):
            return here
        there = self.counter.token_span(target, *match.target)
        if isinstance(there, str):
            return there
        return (*row, *here, *there, source.text[slice(*match.source)], target.text[slice(*match.target)])

    def _chosen(self, samples: list[Row]) -> list[Row]:
        if self.samples_per_pair is None or len(samples) <= self.samples_per_pair:
            return samples

        def rank(sample: Row) -> int:
            return zlib.crc32(repr((self.seed, *sample)).encode("utf-8"))

        kept = sorted(samples, key=rank)[: self.samples_per_pair]
        return [sample for sample in samples if sample in kept]

    def _matcher(self, source_language: str, target_language: str) -> WordMatcher | None:
        languages = (source_language, target_language)
        if languages not in self._matchers:
            found = self.dictionaries_for(*languages)
            self._matchers[languages] = WordMatcher(found, self._stop_words()) if found else None
        return self._matchers[languages]

    def _stop_words(self) -> Callable[[str], Collection[str]]:
        given = self.given_stop_words
        if given is None:
            return stop_words
        return lambda language: frozenset(given.get(language, ()))


def _serves(own: tuple[str, str], wanted: tuple[str, str]) -> bool:
    return all(match_language(code, {mine}) for code, mine in zip(wanted, own, strict=True))


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None
