"""Bilingual dictionaries, the words of a sentence, and word-positioned samples (ML-CTL, section 2.1, Algorithm 1)."""

from __future__ import annotations

import os
import re
import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import datasets
import regex
from datasets.fingerprint import generate_fingerprint
from tqdm.auto import tqdm

from st_xlret.data import reading
from st_xlret.data.reading import (
    BadLines,
    Counts,
    DataError,
    cache_key,
    cached_table,
    clean_text,
)
from st_xlret.data.rows import rows_by_value
from st_xlret.files import PathLike
from st_xlret.languages import check_language, language_in_name, languages_in_name, match_language
from st_xlret.optional import import_optional

UNSPACED_LANGUAGES = frozenset({"ja", "km", "lo", "my", "th", "wuu", "yue", "zh"})
"""Languages written without spaces between words (their primary codes)."""
Span: TypeAlias = tuple[int, int]
"""Half-open, of characters or tokens."""
PairMatch: TypeAlias = tuple[str, tuple[Any, ...], list[tuple[Span, Span]]]
"""The languages of a pair, its texts and languages, and where words and their translations stand in the texts."""

# Marks (Indic vowel signs, accents) belong to the word, and so do the joiners inside it.
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}\u200c\u200d]+")
_ASCII_WORD = re.compile("[A-Za-z0-9]+")  # the same, faster
_STOP_WORD_CODES = {"nb": "no", "nn": "no", "fil": "tl"}
_TEXTS = ("source", "target", "source_language", "target_language")
_COLUMNS = {
    **dict.fromkeys(_TEXTS, "string"),
    **dict.fromkeys(("source_start", "source_end", "target_start", "target_end"), "int32"),
    **dict.fromkeys(("source_word", "target_word"), "string"),
}
_FEWEST_WORDS = 10  # fewer words in the wrong column may be there by chance
_LONGEST_PHRASE = 5  # in words, of the dictionary phrases that are searched for
_PAIRS_AT_ONCE = 1_000


@dataclass
class Dictionary:
    """Word pairs of two languages, each once; words may be phrases. `name` is for messages."""

    source_language: str
    target_language: str
    entries: list[tuple[str, str]]
    name: str = "<dictionary>"

    def __post_init__(self) -> None:
        self.source_language = check_language(self.source_language, where="source_language")
        self.target_language = check_language(self.target_language, where="target_language")

    def __len__(self) -> int:
        return len(self.entries)

    def swap_languages(self) -> Dictionary:
        """The same dictionary from the target to the source language."""
        entries = [(target, source) for source, target in self.entries]
        return Dictionary(self.target_language, self.source_language, entries, self.name)

    def check_direction(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Refuse a dictionary of which over twice as many words of sentences are in the other column as in theirs."""
        columns = [{fold_text(entry[side]) for entry in self.entries} for side in (0, 1)]
        straight = crossed = 0
        for side, (texts, code) in enumerate(
            ((sources, self.source_language), (targets, self.target_language))
        ):
            split = word_splitter(code)
            words = {fold_text(text[start:end]) for text in texts for start, end in split(text)}
            straight += len(words & columns[side])
            crossed += len(words & columns[1 - side])
        if crossed >= _FEWEST_WORDS and crossed > 2 * straight:
            name = f"words.{self.target_language}-{self.source_language}.tsv"
            reason = f"{crossed} words of sentences are in the column of the other language, {straight} in their own"
            raise DataError(
                f"its languages look swapped: {reason}; rename the file, such as {name}", self.name
            )


def fold_text(text: str) -> str:
    """Make texts comparable that differ only in case or in how their accents are encoded."""
    return unicodedata.normalize("NFC", text).casefold()


def read_dictionary(
    paths: PathLike | Iterable[PathLike], *, skip_bad_lines: bool = False
) -> Dictionary:
    """Read a bilingual dictionary: two columns with a tab or, as in MUSE's files of words, a space between them.

    The files are of one language pair, which is in their names: `WORDS.en-fr.tsv.gz`.
    """
    files = sorted(
        str(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)
    )
    languages = {languages_in_name(file) for file in files}
    bad_lines, entries = BadLines(skip_bad_lines), dict[tuple[str, str], None]()
    for file in files:
        for number, line in reading.read_lines(file, bad_lines):
            words = [
                clean_text(cell) for cell in (line.split("\t") if "\t" in line else line.split())
            ]
            if number == 1 and reading.is_header(words[-2:], languages_in_name(file), file):
                continue
            if len(words) != 2 or not all(words):
                bad_lines(
                    f"expected two columns with a tab (words: a space) between them: {line[:80]!r}",
                    file,
                    number,
                )
            elif "\ufffd" in line:
                bad_lines(
                    f"a replacement character: once read in a wrong encoding: {line[:80]!r}",
                    file,
                    number,
                )
            else:
                entries[words[0], words[1]] = None
    bad_lines.warn()
    if len(languages) != 1 or not entries:
        reason = f"a dictionary has entries of one language pair, found {len(entries)} of {sorted(languages)}"
        raise DataError(reason, ", ".join(files))
    return Dictionary(*languages.pop(), list(entries), ", ".join(files))


@lru_cache(maxsize=1024)
def stop_words(language: str) -> frozenset[str]:
    """The stop words of a language, after `fold_text`, from the library `stopwordsiso`; none if it has no list."""
    stopwordsiso = import_optional("stopwordsiso", extra="words", needed_for="lists of stop words")
    primary = language.partition("-")[0]
    return frozenset(map(fold_text, stopwordsiso.stopwords(_STOP_WORD_CODES.get(primary, primary))))


def read_stop_words(path: PathLike) -> tuple[str, frozenset[str]]:
    """Read stop words, one per line, of a text file that is named after its language: `en.txt`, `mine.pt-br.txt`."""
    return language_in_name(path), frozenset(
        fold_text(clean_text(line)) for _, line in reading.read_lines(path)
    )


@lru_cache(maxsize=1024)
def word_splitter(language: str) -> Callable[[str], list[Span]]:
    """The function from a sentence of a language to the half-open character spans of its words, in order.

    Words are runs of letters, marks and digits; in `UNSPACED_LANGUAGES`, those of ICU's dictionaries (`icu4py`).
    """
    if language.partition("-")[0] not in UNSPACED_LANGUAGES:
        return lambda text: [
            word.span() for word in (_ASCII_WORD if text.isascii() else _WORD).finditer(text)
        ]
    purpose = f"finding words in {language!r}, which puts no spaces between them (needs Python 3.11; or leave it out)"
    WordBreaker = import_optional("icu4py.breakers", extra="words", needed_for=purpose).WordBreaker  # noqa: N806

    def icu_word_spans(text: str) -> list[Span]:
        spans, end = [], 0
        # Not its segments(): those count UTF-16 units.
        for piece in WordBreaker(text, language):
            start, end = end, end + len(piece)
            if _WORD.search(piece):
                spans.append((start, end))
        return spans

    return icu_word_spans


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

    A sample is a pair with a dictionary word that occurs exactly once in the source sentence, as a word and as tokens,
    and whose translation occurs exactly once in the target sentence. A pair gives as many samples as it has such words.
    The table has the columns of `pairs`; `source_start`, `source_end`, `target_start`, `target_end`: half-open token
    spans, special tokens counted; `source_word`, `target_word`. It is kept, and used again for equal arguments.

    Args:
        pairs: Parallel sentences as [`load_pairs`][st_xlret.load_pairs] gives them.
        dictionaries: Dictionaries, each for both directions; one of `"pt"` serves `"pt-br"`.
        tokenizer: The encoder's (fast) tokenizer.
        max_seq_length: Tokens read of a sentence, special tokens included; the encoder's. By default all.
        samples_per_pair: Maximum samples of a pair, chosen by a hash with the `seed`. By default all.
        seed: Seed of that choice.
        stop_words_by_language: Language code -> words whose entries are left out. By default those of `stopwordsiso`.
        counts: Filled with counts by `"source>target"` languages: of `pairs`, the `samples` of those that were `used`,
            and the others by their reason.
        cache_dir: Folder of the table. By default `st_xlret` inside the cache of `datasets`.
    """
    dictionaries, counts = list(dictionaries), Counts() if counts is None else counts
    folded = {
        code: sorted(map(fold_text, words))
        for code, words in (stop_words_by_language or {}).items()
    }
    finder = _TokenFinder(tokenizer, max_seq_length)

    def stop_words_of(code: str) -> Collection[str]:
        return (
            stop_words(code) if stop_words_by_language is None else frozenset(folded.get(code, ()))
        )

    def table_rows() -> Iterator[tuple[Any, ...]]:
        matchers, seen = _matchers_by_pair(pairs, dictionaries, stop_words_of), set[int]()
        batches = pairs.select_columns(list(_TEXTS)).iter(_PAIRS_AT_ONCE)
        for batch in tqdm(batches, desc="Finding words", unit=" thousand pairs", disable=None):
            matched: list[PairMatch] = []
            for source, target, *codes in zip(*(batch[name] for name in _TEXTS), strict=True):
                row, pair = (
                    (clean_text(source or ""), clean_text(target or ""), *codes),
                    ">".join(codes),
                )
                matches: list[tuple[Span, Span]] | str
                if not row[0] or not row[1]:
                    matches = "empty"
                elif row[0] == row[1]:
                    matches = "identical"
                elif hash(row) in seen:
                    matches = "duplicate"
                elif pair not in matchers:
                    matches = "no_dictionary"
                else:
                    seen.add(hash(row))
                    matches = matchers[pair].find_matches(*row[:2])
                counts[pair, "pairs"] += 1
                if isinstance(matches, str):
                    counts[pair, matches] += 1
                else:
                    matched.append((pair, row, matches))
            for pair, samples in finder.find_samples(matched, counts):
                if samples_per_pair is not None:
                    by_hash = sorted(
                        samples, key=lambda sample: zlib.crc32(repr((seed, *sample)).encode())
                    )
                    samples = [
                        sample
                        for sample in samples
                        if sample in by_hash[: max(0, samples_per_pair)]
                    ]
                counts[pair, "samples"] += len(samples)
                yield from samples

    words = [[one.source_language, one.target_language, one.entries] for one in dictionaries]
    options = [max_seq_length, samples_per_pair, seed, stop_words_by_language is None, folded]
    key = cache_key(
        [generate_fingerprint(pairs), words, tokenizer.backend_tokenizer.to_str(), *options]
    )
    name, needed = f"word-samples-{key}", "word-positioned samples"
    return cached_table(
        name, _COLUMNS, table_rows(), counts=counts, cache_dir=cache_dir, needed=needed
    )


def _matchers_by_pair(
    pairs: datasets.Dataset,
    dictionaries: Sequence[Dictionary],
    stop_words_of: Callable[[str], Collection[str]],
) -> dict[str, WordMatcher]:
    """A matcher for each language pair that has dictionaries, whose directions are judged by the first pairs."""
    matchers: dict[str, WordMatcher] = {}
    both = [one for dictionary in dictionaries for one in (dictionary, dictionary.swap_languages())]
    for rows, (source, target) in zip(*rows_by_value(pairs, list(_TEXTS[2:])), strict=True):
        fitting = [one for one in both if match_language(source, {one.source_language})]
        fitting = [one for one in fitting if match_language(target, {one.target_language})]
        some = pairs.select(rows[:_PAIRS_AT_ONCE])
        for dictionary in fitting:
            dictionary.check_direction(
                *([text for text in some[side][:] if text] for side in _TEXTS[:2])
            )
        if fitting:
            matchers[f"{source}>{target}"] = WordMatcher(fitting, stop_words_of)
    return matchers


class WordMatcher:
    """Finds words and phrases of a language pair in sentences, after `fold_text`; those with a stop word are none."""

    def __init__(
        self, dictionaries: Sequence[Dictionary], stop_words_of: Callable[[str], Collection[str]]
    ) -> None:
        languages = (dictionaries[0].source_language, dictionaries[0].target_language)
        self.splitters = tuple(map(word_splitter, languages))
        source_stops, target_stops = map(stop_words_of, languages)
        self.is_stopped: dict[str, dict[str, bool]] = defaultdict(
            dict
        )  # by word and its translation
        for source, target in (
            map(fold_text, entry) for dictionary in dictionaries for entry in dictionary.entries
        ):
            self.is_stopped[source][target] = source in source_stops or target in target_stops
        self.vocabularies = (set(self.is_stopped), set().union(*self.is_stopped.values()))
        self.phrase_lengths = tuple(map(_phrase_lengths, self.vocabularies, languages))

    def find_matches(self, source: str, target: str) -> list[tuple[Span, Span]] | str:
        """The words that occur exactly once on both sides, in the source's order; or the reason, as it is counted."""
        sources = self._occurrences(source, 0)
        targets = self._occurrences(target, 1) if sources else {}
        matches, reasons = list[tuple[Span, Span]](), set[str]()
        for word, places in sources.items():
            for translation, is_stopped in self.is_stopped[word].items():
                others = targets.get(translation, [])
                if others and not is_stopped and len(places) == len(others) == 1:
                    matches.append((places[0], others[0]))
                elif others:
                    reasons.add("stop_word" if is_stopped else "repeated")
        return matches or next(
            (why for why in ("repeated", "stop_word") if why in reasons), "no_word"
        )

    def _occurrences(self, text: str, side: int) -> dict[str, list[Span]]:
        spans, longest = self.splitters[side](text), self.phrase_lengths[side]
        occurrences: dict[str, list[Span]] = {}
        for i, (start, end) in enumerate(spans):
            # Folding may shift positions ("ß" becomes "ss"): each word is folded on its own.
            for _, last in spans[i : i + longest.get(fold_text(text[start:end]), 1)]:
                if (phrase := fold_text(text[start:last])) in self.vocabularies[side]:
                    occurrences.setdefault(phrase, []).append((start, last))
        return occurrences


def _phrase_lengths(vocabulary: Iterable[str], language: str) -> dict[str, int]:
    longest, splitter = dict[str, int](), word_splitter(language)
    for entry in vocabulary:
        if len(words := splitter(entry)) > 1:
            first = entry[words[0][0] : words[0][1]]
            longest[first] = max(longest.get(first, 0), min(len(words), _LONGEST_PHRASE))
    return longest


@dataclass
class _TokenFinder:
    """Finds a word's tokens in a tokenised sentence: in place and alone, they occur once (Algorithm 1)."""

    tokenizer: Any
    max_length: int | None

    def find_samples(
        self, matched: Sequence[PairMatch], counts: Counts
    ) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
        """The samples of each pair that has any; all are counted."""
        if not matched:
            return
        places = (
            row[side][slice(*match[side])]
            for _, row, matches in matched
            for match in matches
            for side in (0, 1)
        )
        words = list(dict.fromkeys(places))
        alone = dict(
            zip(words, self.tokenizer(words, add_special_tokens=False)["input_ids"], strict=True)
        )
        sources, targets = (
            self._tokens_and_offsets([row[side] for _, row, _ in matched]) for side in (0, 1)
        )
        for (pair, row, matches), source, target in zip(matched, sources, targets, strict=True):
            samples, reasons = list[tuple[Any, ...]](), set[str]()
            for match in matches:
                word, translation = (row[side][slice(*match[side])] for side in (0, 1))
                span = self._token_span(*source, *match[0], alone[word])
                other = (
                    span
                    if isinstance(span, str)
                    else self._token_span(*target, *match[1], alone[translation])
                )
                if isinstance(other, str):
                    reasons.add(other)
                else:
                    samples.append((*row, *span, *other, word, translation))
            counts[
                pair, "used" if samples else "truncated" if "truncated" in reasons else "tokens"
            ] += 1
            if samples:
                yield pair, samples

    def _tokens_and_offsets(self, texts: list[str]) -> Iterator[tuple[str, list[int], list[Span]]]:
        """Each text, its token ids as the encoder reads them, and their characters: an iterator for one pass."""
        truncation = {"truncation": True, "max_length": self.max_length} if self.max_length else {}
        encoded = self.tokenizer(texts, return_offsets_mapping=True, verbose=False, **truncation)
        return zip(texts, encoded["input_ids"], encoded["offset_mapping"], strict=True)

    def _token_span(
        self, text: str, ids: list[int], offsets: list[Span], start: int, end: int, alone: list[int]
    ) -> Span | str:
        """The half-open span of a word's tokens; "truncated", or "tokens": none, unknown, shared or repeated ones."""
        # Special tokens cover no characters.
        covering = [i for i, (a, b) in enumerate(offsets) if a < b and a < end and b > start]
        if any(
            text[offsets[i][0] : start].strip() or text[end : offsets[i][1]].strip()
            for i in covering
        ):
            return "tokens"  # that cover other characters, too
        if self.max_length and len(ids) == self.max_length and max(b for _, b in offsets) < end:
            return "truncated"
        if not covering:
            return "tokens"
        first, last = covering[0], covering[-1] + 1
        tokens = ids[first:last]
        if self.tokenizer.unk_token_id in tokens or len(_starts_of(ids, tokens)) > 1:
            return "tokens"
        if alone and alone != tokens:
            places = _starts_of(ids, alone)
            inside = [place for place in places if place <= first and place + len(alone) == last]
            if len(places) > len(inside):
                return "tokens"
            # The mark of the space before the word may be a token of its own.
            first = min([first, *inside])
        return first, last


def _starts_of(ids: list[int], tokens: list[int]) -> list[int]:
    return [
        i
        for i, token in enumerate(ids)
        if token == tokens[0] and ids[i : i + len(tokens)] == tokens
    ]
