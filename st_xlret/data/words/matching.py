"""Algorithm 1 of ML-CTL on one pair: which dictionary words occur exactly once in both of its sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from st_xlret.data.words.dictionaries import Dictionary
from st_xlret.data.words.segmentation import Spans, fold, is_unspaced, word_splitter

LONGEST_PHRASE = 5
"""Maximum length, in words, of the dictionary phrases that are searched for."""

Translations = dict[str, tuple[str, ...]]
_KEPT_OWN_TOKENS = 500_000


class WordMatch(NamedTuple):
    """Character spans of a dictionary word and its translation in a pair."""

    source: tuple[int, int]
    target: tuple[int, int]


class WordMatcher:
    """Finds the dictionary words of one language pair in sentences, by lookup of each word.

    Words are compared without regard to case and to how accents are encoded. Phrases of up to `LONGEST_PHRASE` words
    are found too.

    Args:
        dictionaries: Dictionaries from the source to the target language.
        stop_words: Function from a language to its folded stop words; entries with one on either side are left out.
    """

    def __init__(self, dictionaries: Sequence[Dictionary], stop_words: Callable[[str], Collection[str]]) -> None:
        first = dictionaries[0]
        self.languages = (first.source_language, first.target_language)
        self.splitters = tuple(map(word_splitter, self.languages))
        source_stops, target_stops = map(stop_words, self.languages)
        kept: dict[str, dict[str, None]] = defaultdict(dict)
        stopped: dict[str, dict[str, None]] = defaultdict(dict)
        for dictionary in dictionaries:
            for source, target in dictionary.entries:
                source, target = fold(source), fold(target)
                chosen = stopped if source in source_stops or target in target_stops else kept
                chosen[source][target] = None
        self.kept: Translations = {word: tuple(found) for word, found in kept.items()}
        self.stopped: Translations = {word: tuple(found) for word, found in stopped.items()}
        sources = {*kept, *stopped}
        targets = {target for found in (*kept.values(), *stopped.values()) for target in found}
        self.vocabularies = (sources, targets)
        self.phrases = tuple(map(_phrases, self.vocabularies, self.languages))

    def match(self, source: str, target: str) -> list[WordMatch] | str:
        """Find the dictionary words that occur exactly once, as words, on both sides.

        Returns:
            The matches in the order of the source sentence or, if there are none, the reason: "no dictionary word",
            "stop word" or "more than once".
        """
        found = self._occurrences(source, 0)
        others = self._occurrences(target, 1) if found else {}
        matches, repeated = [], False
        for word, places in found.items():
            for translation in self.kept.get(word, ()):
                if there := others.get(translation):
                    if len(places) == len(there) == 1:
                        matches.append(WordMatch(places[0], there[0]))
                    else:
                        repeated = True
        if matches:
            return matches
        if repeated:
            return "more than once"
        is_stopped = any(word in self.stopped and not others.keys().isdisjoint(self.stopped[word]) for word in found)
        return "stop word" if is_stopped else "no dictionary word"

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
        if entry.isalnum() and not unspaced:
            continue
        words = splitter(entry)
        if len(words) > 1:
            first = entry[words[0][0] : words[0][1]]
            longest[first] = max(longest.get(first, 0), min(len(words), LONGEST_PHRASE))
    return longest


class TokenCounter:
    """Finds the tokens of a word in a tokenised sentence, and checks that they occur there exactly once.

    Algorithm 1 requires `TK(A).count(TK(a)) == 1`. A BERT tokenizer gives a word the same tokens everywhere. A
    SentencePiece tokenizer marks the space before a word, but not after a bracket or in text without spaces. So neither
    the tokens of the word in its place nor those of the word alone may occur anywhere else.

    Args:
        tokenizer: A fast tokenizer.
        max_length: Tokens read of a sentence, special tokens included; None for all.

    Raises:
        ValueError: If the tokenizer gives no offsets.
    """

    def __init__(self, tokenizer: Any, max_length: int | None) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                f"{type(tokenizer).__name__} is not a fast tokenizer: it does not tell which characters a token "
                "covers, so words cannot be found among its tokens; use a checkpoint that has a tokenizer.json"
            )
        self.tokenizer, self.max_length = tokenizer, max_length
        self.unknown = tokenizer.unk_token_id
        self._own_tokens: dict[str, list[int]] = {}

    def tokenise(self, texts: list[str]) -> Iterator[TokenisedSentence]:
        """Tokenise sentences as the encoder does."""
        truncation = {"truncation": True, "max_length": self.max_length} if self.max_length else {}
        encoded = self.tokenizer(
            texts,
            return_offsets_mapping=True,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
            **truncation,
        )
        for text, ids, offsets in zip(texts, encoded["input_ids"], encoded["offset_mapping"], strict=True):
            yield TokenisedSentence(text, ids, offsets, bool(self.max_length) and len(ids) == self.max_length)

    def learn_own_tokens(self, words: Iterable[str]) -> None:
        """Tokenise words on their own, for later calls of `token_span`."""
        if len(self._own_tokens) > _KEPT_OWN_TOKENS:
            self._own_tokens.clear()
        new = list({word: None for word in words if word not in self._own_tokens})
        if new:
            options = {"add_special_tokens": False, "return_attention_mask": False, "return_token_type_ids": False}
            self._own_tokens.update(zip(new, self.tokenizer(new, **options)["input_ids"], strict=True))

    def token_span(self, sentence: TokenisedSentence, start: int, end: int) -> tuple[int, int] | str:
        """Find the tokens of the word at some characters.

        Args:
            sentence: A sentence that `tokenise` gave.
            start: First character of the word, which `learn_own_tokens` has seen.
            end: Character after its last.

        Returns:
            The half-open span of tokens, with special tokens counted or, if there is none, the reason: "truncated", or
            "tokens" if the word has no tokens of its own, unknown tokens, or tokens that occur elsewhere too.
        """
        span = sentence.tokens_between(start, end)
        if isinstance(span, str):
            return span
        first, last = span
        ids = sentence.ids
        tokens = ids[first:last]
        if self.unknown in tokens or (ids.count(tokens[0]) > 1 and len(_places(ids, tokens)) > 1):
            return "tokens"
        own = self._own_tokens[sentence.text[start:end]]
        if own and own != tokens:
            places = [place for place in _places(ids, own) if place <= first and place + len(own) == last]
            if len(_places(ids, own)) > len(places):
                return "tokens"
            # The mark of the space before the word may be a token of its own.
            first = min([first, *places])
        return first, last


class TokenisedSentence(NamedTuple):
    """A sentence with its token ids, the characters that each token covers, and whether it was truncated."""

    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]
    is_cut: bool

    def tokens_between(self, start: int, end: int) -> tuple[int, int] | str:
        """Find the tokens that cover these characters and no others but spaces, or the reason why there are none."""
        first = last = reached = -1
        for i, (a, b) in enumerate(self.offsets):
            if b > reached:
                reached = b
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
