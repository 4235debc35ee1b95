"""Word-positioned samples of parallel sentences (ML-CTL, section 2.1, Algorithm 1)."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import datasets
from datasets.fingerprint import generate_fingerprint
from tqdm.auto import tqdm

from st_xlret.data.dictionaries import Dictionary
from st_xlret.data.kept import Counts, cache_key, cached_table
from st_xlret.data.rows import rows_by_value
from st_xlret.data.texts import clean_text
from st_xlret.data.word_matching import Match, WordMatcher
from st_xlret.data.words import Span, fold_text, stop_words
from st_xlret.files import PathLike
from st_xlret.languages import match_language

_Sample: TypeAlias = tuple[Any, ...]
"""The values of `_COLUMNS`."""

_TEXTS = ("source", "target", "source_language", "target_language")
_COLUMNS = {
    **dict.fromkeys(_TEXTS, "string"),
    **dict.fromkeys(("source_start", "source_end", "target_start", "target_end"), "int32"),
    **dict.fromkeys(("source_word", "target_word"), "string"),
}
_PAIRS_AT_ONCE = 1_000


class _Sentences(NamedTuple):
    """The values of `_TEXTS`, cleaned."""

    source: str
    target: str
    source_language: str
    target_language: str

    @property
    def languages(self) -> str:
        """The pair of languages as it is counted."""
        return f"{self.source_language}>{self.target_language}"


class _MatchedPair(NamedTuple):
    """A pair with the words of dictionaries in it."""

    sentences: _Sentences
    matches: list[Match]


def build_word_samples(
    pairs: datasets.Dataset,
    dictionaries: Iterable[Dictionary],
    tokenizer: Any,
    *,
    max_seq_length: int | None = None,
    samples_per_pair: int | None = None,
    seed: int = 0,
    stop_words_by_language: Mapping[str, Collection[str]] | None = None,
    counts: Counts | None = None,
    cache_dir: PathLike | None = None,
) -> datasets.Dataset:
    """Make word-positioned samples of parallel sentences (ML-CTL, Algorithm 1).

    A sample is a pair with a dictionary word that occurs exactly once in the source sentence, as a
    word and as tokens, and whose translation occurs exactly once in the target sentence. A pair
    gives as many samples as it has such words. The table has the columns of `pairs`;
    `source_start`, `source_end`, `target_start`, `target_end`: half-open token spans, special
    tokens counted; `source_word`, `target_word`. It is kept, and used again for equal arguments.

    Args:
        pairs: Parallel sentences as [`load_pairs`][st_xlret.load_pairs] gives them.
        dictionaries: Dictionaries, each for both directions; one of `"pt"` serves `"pt-br"`.
        tokenizer: The encoder's (fast) tokenizer.
        max_seq_length: Tokens read of a sentence, special tokens included; the encoder's. By
            default all.
        samples_per_pair: Maximum samples of a pair, chosen by a hash with the `seed`. By default
            all.
        seed: Seed of that choice.
        stop_words_by_language: Language code -> words whose entries are left out. By default those
            of `stopwordsiso`.
        counts: Filled by `"source>target"` languages: the `pairs`, the `samples` of those that were
            `used`, and the others by their reason.
        cache_dir: Folder of the table. By default `st_xlret` inside the cache of `datasets`.
    """
    listed = list(dictionaries)
    counts = Counts() if counts is None else counts
    stops = _folded_stop_words(stop_words_by_language)
    finder = _TokenFinder(tokenizer, max_seq_length, counts)
    words = [[one.source_language, one.target_language, one.entries] for one in listed]
    listed_stops = {code: sorted(of_code) for code, of_code in (stops or {}).items()}
    options = [max_seq_length, samples_per_pair, seed, stops is None, listed_stops]
    state = tokenizer.backend_tokenizer.to_str()
    key = cache_key([generate_fingerprint(pairs), words, state, *options])

    def samples() -> Iterator[_Sample]:
        matchers = _Matchers(_matchers_by_pair(pairs, listed, stops), counts)
        for languages, found in _samples_of_pairs(pairs, matchers, finder):
            chosen = _chosen(found, samples_per_pair, seed)
            counts[languages, "samples"] += len(chosen)
            yield from chosen

    return cached_table(
        f"word-samples-{key}",
        _COLUMNS,
        samples(),
        counts=counts,
        cache_dir=cache_dir,
        needed="word-positioned samples",
    )


def _folded_stop_words(
    by_language: Mapping[str, Collection[str]] | None,
) -> dict[str, frozenset[str]] | None:
    if by_language is None:
        return None
    return {code: frozenset(map(fold_text, words)) for code, words in by_language.items()}


def _samples_of_pairs(
    pairs: datasets.Dataset, matchers: _Matchers, finder: _TokenFinder
) -> Iterator[tuple[str, list[_Sample]]]:
    """The languages and the samples of each pair that has any."""
    batches = pairs.select_columns(list(_TEXTS)).iter(_PAIRS_AT_ONCE)
    for batch in tqdm(batches, desc="Finding words", unit=" thousand pairs", disable=None):
        columns = [batch[name] for name in _TEXTS]
        matched = []
        for source, target, *languages in zip(*columns, strict=True):
            sentences = _Sentences(clean_text(source or ""), clean_text(target or ""), *languages)
            matches = matchers.matches_or_none(sentences)
            if matches is not None:
                matched.append(_MatchedPair(sentences, matches))
        yield from finder.find_samples(matched)


def _chosen(samples: list[_Sample], most: int | None, seed: int) -> list[_Sample]:
    """Of more samples than wanted those with the lowest hashes, in their order."""
    if most is None:
        return samples
    by_hash = sorted(samples, key=lambda sample: zlib.crc32(repr((seed, *sample)).encode()))
    return [sample for sample in samples if sample in by_hash[: max(0, most)]]


class _Matchers:
    """Finds the words of dictionaries in pairs, each once, and counts the pairs without any."""

    def __init__(self, by_pair: Mapping[str, WordMatcher], counts: Counts) -> None:
        self.by_pair = by_pair
        self.counts = counts
        self.seen: set[int] = set()

    def matches_or_none(self, sentences: _Sentences) -> list[Match] | None:
        """The matches of a pair; None, and the reason is counted, where it is not looked at.

        A pair is looked at once: it is called for each pair, in the order of the table.
        """
        matches = self._matches_or_reason(sentences)
        self.counts[sentences.languages, "pairs"] += 1
        if isinstance(matches, str):
            self.counts[sentences.languages, matches] += 1
            return None
        return matches

    def _matches_or_reason(self, sentences: _Sentences) -> list[Match] | str:
        """The matches of a pair that is new, or why it is not looked at."""
        if not sentences.source or not sentences.target:
            return "empty"
        if sentences.source == sentences.target:
            return "identical"
        digest = hash(sentences)
        if digest in self.seen:
            return "duplicate"
        matcher = self.by_pair.get(sentences.languages)
        if matcher is None:
            return "no_dictionary"
        self.seen.add(digest)
        return matcher.find_matches(sentences.source, sentences.target)


def _matchers_by_pair(
    pairs: datasets.Dataset,
    dictionaries: Sequence[Dictionary],
    stops: Mapping[str, frozenset[str]] | None,
) -> dict[str, WordMatcher]:
    """A matcher for each language pair that has dictionaries.

    Their directions are judged by the first pairs.
    """
    stop_words_of = stop_words if stops is None else lambda code: stops.get(code, frozenset())
    matchers = {}
    for rows, (source, target) in rows_by_value(pairs, ["source_language", "target_language"]):
        some = pairs.select(rows[:_PAIRS_AT_ONCE])
        sources = list(filter(None, some["source"][:]))
        targets = list(filter(None, some["target"][:]))
        fitting = []
        for dictionary in dictionaries:
            if _serves(dictionary, source, target):
                dictionary.check_direction(sources, targets)
                fitting.append(dictionary)
            if _serves(dictionary, target, source):
                dictionary.check_direction(targets, sources)
                fitting.append(dictionary.swap_languages())
        if fitting:
            matchers[f"{source}>{target}"] = WordMatcher(fitting, stop_words_of)
    return matchers


def _serves(dictionary: Dictionary, source: str, target: str) -> bool:
    fits_source = match_language(source, {dictionary.source_language})
    fits_target = match_language(target, {dictionary.target_language})
    return bool(fits_source and fits_target)


class _Encoded(NamedTuple):
    """A text, its token ids as the encoder reads them, and their characters."""

    text: str
    ids: list[int]
    offsets: list[Span]


@dataclass
class _TokenFinder:
    """Finds a word's tokens in a tokenised sentence: in place and alone, they occur once."""

    tokenizer: Any
    max_length: int | None
    counts: Counts

    def find_samples(self, matched: Sequence[_MatchedPair]) -> Iterator[tuple[str, list[_Sample]]]:
        """The languages and the samples of each pair that has any; all are counted.

        A sample is a row of the table, in the order of `_COLUMNS`.
        """
        if not matched:
            return
        alone = self._tokens_alone(matched)
        sources = self._encode([pair.sentences.source for pair in matched])
        targets = self._encode([pair.sentences.target for pair in matched])
        for pair, source, target in zip(matched, sources, targets, strict=True):
            samples = []
            reasons = set()
            for match in pair.matches:
                spans = self._spans_or_reason(source, target, match, alone)
                if isinstance(spans, str):
                    reasons.add(spans)
                else:
                    words = (source.text[slice(*match.source)], target.text[slice(*match.target)])
                    samples.append((*pair.sentences, *spans, *words))
            outcome = "truncated" if "truncated" in reasons else "tokens"
            languages = pair.sentences.languages
            self.counts[languages, "used" if samples else outcome] += 1
            if samples:
                yield languages, samples

    def _tokens_alone(self, matched: Sequence[_MatchedPair]) -> dict[str, list[int]]:
        """The tokens of each word without a sentence around it."""
        words: dict[str, None] = {}  # each once
        for pair in matched:
            for match in pair.matches:
                words[pair.sentences.source[slice(*match.source)]] = None
                words[pair.sentences.target[slice(*match.target)]] = None
        ids = self.tokenizer(list(words), add_special_tokens=False)["input_ids"]
        return dict(zip(words, ids, strict=True))

    def _encode(self, texts: list[str]) -> Iterator[_Encoded]:
        """The tokens of texts, cut at the longest length, and the characters of each token."""
        encoded = self.tokenizer(
            texts,
            return_offsets_mapping=True,
            verbose=False,
            truncation=bool(self.max_length),
            max_length=self.max_length or None,
        )
        ids = encoded["input_ids"]
        return map(_Encoded, texts, ids, encoded["offset_mapping"])

    def _spans_or_reason(
        self, source: _Encoded, target: _Encoded, match: Match, alone: Mapping[str, list[int]]
    ) -> tuple[int, int, int, int] | str:
        """The token spans of a word and its translation, or why one has none."""
        first = self._span_or_reason(source, match.source, alone)
        if isinstance(first, str):
            return first
        second = self._span_or_reason(target, match.target, alone)
        if isinstance(second, str):
            return second
        return *first, *second

    def _span_or_reason(
        self, encoded: _Encoded, word: Span, alone: Mapping[str, list[int]]
    ) -> Span | str:
        """The half-open span of a word's tokens.

        Else it is "truncated", or "tokens": none, unknown, shared or repeated ones.
        """
        start, end = word
        text, ids, offsets = encoded
        covering = _covering_tokens(offsets, word)
        for number in covering:
            before = text[offsets[number][0] : start]
            after = text[end : offsets[number][1]]
            if before.strip() or after.strip():
                return "tokens"  # that cover other characters, too
        if self.max_length and len(ids) == self.max_length:
            read = max(last for _, last in offsets)
            if read < end:
                return "truncated"
        if not covering:
            return "tokens"
        span = (covering[0], covering[-1] + 1)
        tokens = ids[slice(*span)]
        if self.tokenizer.unk_token_id in tokens or len(_starts_of(ids, tokens)) > 1:
            return "tokens"
        return _span_with_mark_or_reason(ids, span, alone[text[start:end]])


def _covering_tokens(offsets: list[Span], word: Span) -> list[int]:
    """The tokens that cover characters of a word; special ones cover none."""
    start, end = word
    covering = []
    for number, (first, last) in enumerate(offsets):
        if first < last and first < end and last > start:
            covering.append(number)
    return covering


def _span_with_mark_or_reason(ids: list[int], span: Span, alone: list[int]) -> Span | str:
    """The span of tokens, with the mark of a space before the word, which may be a token.

    Else it is "tokens": the word alone has tokens that stand elsewhere, too.
    """
    first, last = span
    if not alone or alone == ids[first:last]:
        return span
    places = _starts_of(ids, alone)
    for place in places:
        is_inside = place <= first and place + len(alone) == last
        if not is_inside:
            return "tokens"  # it occurs elsewhere, too
        first = min(first, place)
    return first, last


def _starts_of(ids: list[int], tokens: list[int]) -> list[int]:
    """Where a run of tokens begins in a text, each time that it stands there."""
    starts = []
    for number, token in enumerate(ids):
        if token == tokens[0] and ids[number : number + len(tokens)] == tokens:
            starts.append(number)
    return starts
