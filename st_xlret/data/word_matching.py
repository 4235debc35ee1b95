"""Words of dictionaries in the sentences of a pair (ML-CTL, section 2.1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from st_xlret.data.dictionaries import Dictionary
from st_xlret.data.words import Span, fold_text, word_splitter

_LONGEST_PHRASE = 5  # in words, of the dictionary phrases that are searched for


class Match(NamedTuple):
    """Where a word and its translation stand, in characters."""

    source: Span
    target: Span


class WordMatcher:
    """Finds words and phrases of a language pair in sentences, after `fold_text`.

    Those with a stop word are none.
    """

    def __init__(
        self, dictionaries: Sequence[Dictionary], stop_words_of: Callable[[str], Collection[str]]
    ) -> None:
        source_language = dictionaries[0].source_language
        target_language = dictionaries[0].target_language
        source_stops = stop_words_of(source_language)
        target_stops = stop_words_of(target_language)
        self.is_stopped: dict[str, dict[str, bool]] = {}  # by word and its translation
        translations = set()
        for dictionary in dictionaries:
            for entry in dictionary.entries:
                source, target = map(fold_text, entry)
                is_stopped = source in source_stops or target in target_stops
                self.is_stopped.setdefault(source, {})[target] = is_stopped
                translations.add(target)
        self.sources = _Vocabulary(self.is_stopped, source_language)
        self.targets = _Vocabulary(translations, target_language)

    def find_matches(self, source: str, target: str) -> list[Match] | str:
        """The words that occur exactly once on both sides, in the source's order.

        Without any, it is the reason, as it is counted.
        """
        sources = self.sources.places_in(source)
        targets = self.targets.places_in(target) if sources else {}
        matches = []
        reasons = set()
        for word, places in sources.items():
            for translation, is_stopped in self.is_stopped[word].items():
                others = targets.get(translation)
                if not others:
                    continue
                if is_stopped:
                    reasons.add("stop_word")
                elif len(places) == len(others) == 1:
                    matches.append(Match(places[0], others[0]))
                else:
                    reasons.add("repeated")
        if matches:
            return matches
        for reason in ("repeated", "stop_word"):
            if reason in reasons:
                return reason
        return "no_word"


class _Vocabulary:
    """The words and phrases of one side."""

    def __init__(self, entries: Collection[str], language: str) -> None:
        self.entries = frozenset(entries)
        self.split = word_splitter(language)
        self.phrase_lengths = _phrase_lengths(self.entries, self.split)

    def places_in(self, text: str) -> dict[str, list[Span]]:
        """Where each of them stands in a text, if it does."""
        places: dict[str, list[Span]] = {}
        spans = self.split(text)
        for number, (start, end) in enumerate(spans):
            # Folding may shift positions ("ß" becomes "ss"): each word is folded on its own.
            longest = self.phrase_lengths.get(fold_text(text[start:end]), 1)
            for _, last in spans[number : number + longest]:
                phrase = fold_text(text[start:last])
                if phrase in self.entries:
                    places.setdefault(phrase, []).append((start, last))
        return places


def _phrase_lengths(
    entries: Iterable[str], split: Callable[[str], list[Span]]
) -> Mapping[str, int]:
    """The number of words of the longest phrase that begins with a word."""
    longest: dict[str, int] = {}
    for entry in entries:
        words = split(entry)
        if len(words) > 1:
            start, end = words[0]
            length = min(len(words), _LONGEST_PHRASE)
            first = entry[start:end]
            longest[first] = max(longest.get(first, 0), length)
    return longest
