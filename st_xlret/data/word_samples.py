"""Word-positioned samples: parallel sentences with the token spans of a word and its translation (ML-CTL, 2.1)."""

from __future__ import annotations

import logging
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import datasets
from datasets.fingerprint import generate_fingerprint
from tqdm.auto import tqdm

from st_xlret.data.cache import cache_key, cached_dataset
from st_xlret.data.columns import rows_by_value
from st_xlret.data.dictionaries import Dictionary, Spans, is_unspaced, stop_words, word_splitter
from st_xlret.data.lines import DataError, PathLike, Report
from st_xlret.data.text import clean_text, fold
from st_xlret.languages import match_language

logger = logging.getLogger(__name__)

_TEXTS = ("source", "target", "source_language", "target_language")
_PLACES = ("source_start", "source_end", "target_start", "target_end")
_FEATURES = {
    **dict.fromkeys(_TEXTS, "string"),
    **dict.fromkeys(_PLACES, "int32"),
    **dict.fromkeys(("source_word", "target_word"), "string"),
}
_LONGEST_PHRASE = 5  # in words, of the dictionary phrases that are searched for
_PAIRS_AT_ONCE = 1_000
_PAIRS_TO_JUDGE_BY = 1_000
_IDS_ONLY = {"return_attention_mask": False, "return_token_type_ids": False}

_Row = tuple[Any, ...]
_Span = tuple[int, int]
_Match = tuple[_Span, _Span]  # characters of a word and of its translation


class WordSampleReport(Report):
    """How many pairs gave samples, and why the others gave none, by `"source>target"` language codes.

    It counts `pairs`, the `samples` of those that were `used`, and the others by their reason: a side was `empty`, both
    were `identical`, a `duplicate`, there was `no_dictionary`, `no_word` of it on both sides, only a `stop_word`, words
    `repeated` on a side, whose `tokens` are not their own or occur elsewhere too, or that are `truncated`.
    """

    counted = (
        *("pairs", "used", "samples", "empty", "identical", "duplicate", "no_dictionary", "no_word", "stop_word"),
        *("repeated", "tokens", "truncated"),
    )


def build_word_samples(
    pairs: datasets.Dataset,
    dictionaries: Iterable[Dictionary],
    tokenizer: Any,
    *,
    max_seq_length: int | None = None,
    samples_per_pair: int | None = None,
    seed: int = 0,
    stop_words_by_language: Mapping[str, Collection[str]] | None = None,
    report: WordSampleReport | None = None,
    cache_dir: PathLike | None = None,
    show_progress_bar: bool = True,
) -> datasets.Dataset:
    """Make word-positioned samples of parallel sentences (ML-CTL, Algorithm 1).

    A sample is a pair with a dictionary word that occurs exactly once in the source sentence, as a word and as tokens,
    and whose translation occurs exactly once in the target sentence. A pair gives as many samples as it has such words.
    The result is memory-mapped; the same pairs, dictionaries, tokenizer and options use it again.

    Args:
        pairs: Parallel sentences as [`load_pairs`][st_xlret.load_pairs] gives them, of any language pairs.
        dictionaries: Dictionaries, each for both directions; one of `"pt"` serves `"pt-br"`.
        tokenizer: The encoder's (fast) tokenizer.
        max_seq_length: Tokens read of a sentence, special tokens included: the encoder's `max_seq_length`. By default
            sentences are not truncated.
        samples_per_pair: Maximum samples of a pair, chosen by a seeded hash. By default all.
        seed: Seed of that choice.
        stop_words_by_language: Language code -> words whose entries are left out. By default those of `stopwordsiso`.
        report: Filled with counts of what became of the pairs.
        cache_dir: Folder for the Arrow files. By default `st_xlret` inside the cache of `datasets`.
        show_progress_bar: Show a progress bar.

    Returns:
        Data set with `source`, `target`, `source_language`, `target_language`; `source_start`, `source_end`,
        `target_start`, `target_end`: half-open token spans, special tokens counted; `source_word`, `target_word`.

    Raises:
        DataError: If the languages of a dictionary look swapped, or no sample is left (the error contains the report).
        ValueError: If the tokenizer gives no offsets, there is no dictionary, or `samples_per_pair` is below 1.
        ImportError: If a language without spaces needs the optional word segmenter.
    """
    if samples_per_pair is not None and samples_per_pair < 1:
        raise ValueError(f"samples_per_pair must be at least 1 or None for all, not {samples_per_pair}")
    dictionaries = list(dictionaries)
    if not dictionaries:
        raise ValueError("no dictionaries: word-positioned samples need at least one")
    given = stop_words_by_language
    stops = None if given is None else {code: sorted(map(fold, words)) for code, words in given.items()}
    finder = _TokenFinder(tokenizer, max_seq_length)
    made = WordSampleReport(True)
    for dictionary in dictionaries:
        made.bad_lines += dictionary.bad_lines.bad_lines
        made.bad_line_count += dictionary.bad_lines.bad_line_count

    def stop_words_of(language: str) -> Collection[str]:
        return stop_words(language) if stops is None else frozenset(stops.get(language, ()))

    def rows() -> Iterator[_Row]:
        matchers = _matchers(pairs, dictionaries, stop_words_of)
        seen: set[int] = set()
        with tqdm(total=len(pairs), desc="Finding words", unit="pair", disable=not show_progress_bar) as bar:
            for batch in pairs.select_columns(list(_TEXTS)).iter(_PAIRS_AT_ONCE):
                matched = list(_matched(zip(*(batch[name] for name in _TEXTS), strict=True), matchers, seen, made))
                for counts, samples in finder.samples(matched):
                    if samples_per_pair is not None and len(samples) > samples_per_pair:
                        by_hash = sorted(samples, key=lambda s: zlib.crc32(repr((seed, *s)).encode("utf-8")))
                        chosen = by_hash[:samples_per_pair]
                        samples = [sample for sample in samples if sample in chosen]
                    counts["samples"] += len(samples)
                    yield from samples
                bar.update(len(batch["source"]))
        if not made.total("samples"):
            raise DataError(f"no word-positioned samples; see why no pair gave one:\n{made}")

    words = [[one.source_language, one.target_language, one.entries] for one in dictionaries]
    libraries = [_version(library) for library in ("icu4py", "stopwordsiso")]
    options = [max_seq_length, samples_per_pair, seed, stops, libraries]
    key = cache_key([generate_fingerprint(pairs), words, tokenizer.backend_tokenizer.to_str(), *options])
    samples = cached_dataset("word-samples", _FEATURES, rows(), key=key, report=made, cache_dir=cache_dir)
    made.publish(report, logger)
    return samples


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _matchers(
    pairs: datasets.Dataset, dictionaries: Sequence[Dictionary], stop_words_of: Callable[[str], Collection[str]]
) -> dict[tuple[str, ...], WordMatcher | None]:
    """A matcher for each language pair that has dictionaries, whose directions are judged by the first pairs."""
    matchers: dict[tuple[str, ...], WordMatcher | None] = {}
    if not len(pairs):
        return matchers
    both = [one for dictionary in dictionaries for one in (dictionary, dictionary.swapped())]
    for rows, codes in zip(*rows_by_value(pairs, ["source_language", "target_language"]), strict=True):
        found = [
            one
            for one in both
            if match_language(codes[0], {one.source_language}) and match_language(codes[1], {one.target_language})
        ]
        if found:
            some = pairs.select(rows[:_PAIRS_TO_JUDGE_BY])
            texts = [[text for text in some[side][:] if text] for side in ("source", "target")]
            for dictionary in found:
                dictionary.check_direction(*texts)
        matchers[codes] = WordMatcher(found, stop_words_of) if found else None
    return matchers


def _matched(
    rows: Iterable[tuple[str, ...]],
    matchers: Mapping[tuple[str, ...], WordMatcher | None],
    seen: set[int],
    report: WordSampleReport,
) -> Iterator[tuple[_Row, Counter[str], list[_Match]]]:
    """The pairs with dictionary words, their counts and the places of the words; all pairs are counted."""
    for *texts, source_language, target_language in rows:
        counts = report.languages[f"{source_language}>{target_language}"]
        counts["pairs"] += 1
        source, target = (clean_text(text or "") for text in texts)
        row = (source, target, source_language, target_language)
        matcher = matchers[source_language, target_language]
        if not source or not target:
            counts["empty"] += 1
        elif source == target:
            counts["identical"] += 1
        elif hash(row) in seen:
            counts["duplicate"] += 1
        elif matcher is None:
            counts["no_dictionary"] += 1
        else:
            seen.add(hash(row))
            found = matcher.match(source, target)
            if isinstance(found, str):
                counts[found] += 1
            else:
                yield row, counts, found


class WordMatcher:
    """Finds the dictionary words and phrases of one language pair in sentences, compared after `fold`.

    Entries with a (folded) stop word of `stop_words(language)` on either side are left out.
    """

    def __init__(self, dictionaries: Sequence[Dictionary], stop_words: Callable[[str], Collection[str]]) -> None:
        languages = (dictionaries[0].source_language, dictionaries[0].target_language)
        self.splitters = tuple(map(word_splitter, languages))
        source_stops, target_stops = map(stop_words, languages)
        self.kept: dict[str, dict[str, None]] = defaultdict(dict)
        self.stopped: dict[str, dict[str, None]] = defaultdict(dict)
        for dictionary in dictionaries:
            for source, target in dictionary.entries:
                source, target = fold(source), fold(target)
                chosen = self.stopped if source in source_stops or target in target_stops else self.kept
                chosen[source][target] = None
        targets = {target for found in (*self.kept.values(), *self.stopped.values()) for target in found}
        self.vocabularies = ({*self.kept, *self.stopped}, targets)
        self.phrases = tuple(map(_phrases, self.vocabularies, languages))

    def match(self, source: str, target: str) -> list[_Match] | str:
        """The words that occur exactly once on both sides, in the source's order; or the reason, as it is counted."""
        found = self._occurrences(source, 0)
        others = self._occurrences(target, 1) if found else {}
        matches, repeated = [], False
        for word, places in found.items():
            for there in (others[other] for other in self.kept.get(word, ()) if other in others):
                if len(places) == len(there) == 1:
                    matches.append((places[0], there[0]))
                else:
                    repeated = True
        if matches or repeated:
            return matches or "repeated"
        is_stopped = any(not others.keys().isdisjoint(self.stopped.get(word, ())) for word in found)
        return "stop_word" if is_stopped else "no_word"

    def _occurrences(self, text: str, side: int) -> dict[str, Spans]:
        spans = self.splitters[side](text)
        vocabulary, phrases = self.vocabularies[side], self.phrases[side]
        folded = fold(text)
        # Folding may shift positions ("ß" becomes "ss"); then each word is folded on its own.
        in_place = len(folded) == len(text) and text.casefold() == folded
        found: dict[str, Spans] = {}
        for i, (start, end) in enumerate(spans):
            word = folded[start:end] if in_place else fold(text[start:end])
            if word in vocabulary:
                found.setdefault(word, []).append((start, end))
            for _, last in spans[i + 1 : i + phrases[word]] if word in phrases else ():
                phrase = folded[start:last] if in_place else fold(text[start:last])
                if phrase in vocabulary:
                    found.setdefault(phrase, []).append((start, last))
        return found


def _phrases(vocabulary: Iterable[str], language: str) -> dict[str, int]:
    """Map the first word of phrases to the length, in words, of the longest of them."""
    longest: dict[str, int] = {}
    splitter, unspaced = word_splitter(language), is_unspaced(language)
    for entry in vocabulary:
        words = splitter(entry) if unspaced or not entry.isalnum() else ()
        if len(words) > 1:
            first = entry[words[0][0] : words[0][1]]
            longest[first] = max(longest.get(first, 0), min(len(words), _LONGEST_PHRASE))
    return longest


class _TokenFinder:
    """Finds the tokens of a word in a tokenised sentence, and checks that they occur there exactly once.

    Algorithm 1 requires `TK(A).count(TK(a)) == 1`. A BERT tokenizer gives a word the same tokens everywhere. A
    SentencePiece tokenizer marks the space before a word, but not after a bracket or in text without spaces. So neither
    the tokens of the word in its place nor those of the word alone may occur anywhere else.
    """

    def __init__(self, tokenizer: Any, max_length: int | None) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                f"{type(tokenizer).__name__} is not a fast tokenizer: it does not tell which characters a token "
                "covers, so words cannot be found among its tokens; use a checkpoint that has a tokenizer.json"
            )
        self.tokenizer, self.max_length = tokenizer, max_length

    def samples(
        self, matched: Sequence[tuple[_Row, Counter[str], list[_Match]]]
    ) -> Iterator[tuple[Counter[str], list[_Row]]]:
        """The samples of each pair that has any, and its counts."""
        if not matched:
            return
        found = (row[side][slice(*match[side])] for row, _, matches in matched for match in matches for side in (0, 1))
        words = list(dict.fromkeys(found))
        own = dict(zip(words, self.tokenizer(words, add_special_tokens=False, **_IDS_ONLY)["input_ids"], strict=True))
        sources, targets = (self._tokenise([row[side] for row, _, _ in matched]) for side in (0, 1))
        for (row, counts, matches), source, target in zip(matched, sources, targets, strict=True):
            samples: list[_Row] = []
            reasons: set[str] = set()
            for match in matches:
                one, other = (row[side][slice(*match[side])] for side in (0, 1))
                here = self._token_span(source, *match[0], own[one])
                there = here if isinstance(here, str) else self._token_span(target, *match[1], own[other])
                if isinstance(there, str):
                    reasons.add(there)
                else:
                    samples.append((*row, *here, *there, one, other))
            if samples:
                counts["used"] += 1
                yield counts, samples
            else:
                counts["truncated" if "truncated" in reasons else "tokens"] += 1

    def _tokenise(self, texts: list[str]) -> Iterator[_TokenisedSentence]:
        truncation = {"truncation": True, "max_length": self.max_length} if self.max_length else {}
        encoded = self.tokenizer(texts, return_offsets_mapping=True, verbose=False, **_IDS_ONLY, **truncation)
        for text, ids, offsets in zip(texts, encoded["input_ids"], encoded["offset_mapping"], strict=True):
            yield _TokenisedSentence(text, ids, offsets, bool(self.max_length) and len(ids) == self.max_length)

    def _token_span(self, sentence: _TokenisedSentence, start: int, end: int, own: list[int]) -> _Span | str:
        """The half-open span of a word's tokens, or the reason why there is none; `own` are those of the word alone."""
        span = sentence.tokens_between(start, end)
        if isinstance(span, str):
            return span
        first, last = span
        ids = sentence.ids
        tokens = ids[first:last]
        if self.tokenizer.unk_token_id in tokens or (ids.count(tokens[0]) > 1 and len(_places(ids, tokens)) > 1):
            return "tokens"
        if own and own != tokens:
            places = [place for place in _places(ids, own) if place <= first and place + len(own) == last]
            if len(_places(ids, own)) > len(places):
                return "tokens"
            # The mark of the space before the word may be a token of its own.
            first = min([first, *places])
        return first, last


class _TokenisedSentence(NamedTuple):
    """A sentence with its token ids, the characters that each token covers, and whether it was truncated."""

    text: str
    ids: list[int]
    offsets: list[_Span]
    is_cut: bool

    def tokens_between(self, start: int, end: int) -> _Span | str:
        """Find the tokens that cover these characters and no others but spaces, or the reason why there are none."""
        first = last = reached = -1
        for i, (a, b) in enumerate(self.offsets):
            reached = max(reached, b)
            if a == b or b <= start:  # special tokens cover no characters
                continue
            if a >= end:
                break
            if (a < start and not self.text[a:start].isspace()) or (b > end and not self.text[end:b].isspace()):
                return "tokens"
            first, last = (i if first < 0 else first), i
        if self.is_cut and reached < end:
            return "truncated"
        return "tokens" if first < 0 else (first, last + 1)


def _places(ids: list[int], tokens: list[int]) -> list[int]:
    """Find where a sequence of tokens starts."""
    size = len(tokens)
    return [i for i, token in enumerate(ids) if token == tokens[0] and ids[i : i + size] == tokens]
