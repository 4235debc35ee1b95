"""Token budgets of XOR-Retrieve: what nltk.word_tokenize makes of passages, cut after so many tokens."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

YES_NO = ("yes", "no")


@dataclass(frozen=True)
class WordTokenizer:
    """A way of cutting passages into tokens.

    Attributes:
        tokenize: A text's tokens.
        description: What it is, for the protocol of a result.
        is_official: Whether it is the benchmark's own.
    """

    tokenize: Callable[[str], list[str]]
    description: str
    is_official: bool


def word_tokenizer() -> WordTokenizer:
    """``nltk.word_tokenize`` where its sentence splitter's data (``punkt_tab``) is installed, else the nearest to it.

    ``word_tokenize`` splits a text into sentences with Punkt's English model, which is a download of its own,
    and each sentence into words by rules that come with NLTK. Without the download, the sentences are split by
    `sentencex` and the words by the same rules of NLTK: tokens differ only where the two see another sentence
    end (there, NLTK separates the full stop), which can move the end of a budget by a few tokens.

    Example:
        >>> word_tokenizer().tokenize('He said "No." It cost $3.88.')[:6]
        ['He', 'said', '``', 'No', '.', "''"]
    """
    import nltk

    try:
        nltk.word_tokenize("Is it there?")
    except LookupError:
        return WordTokenizer(
            _tokenize_without_punkt,
            "nltk's word rules on sentences split by sentencex (punkt_tab is not installed; "
            "python -m nltk.downloader punkt_tab gives nltk.word_tokenize itself)",
            is_official=False,
        )
    return WordTokenizer(nltk.word_tokenize, "nltk.word_tokenize", is_official=True)


def warn_unless_official(tokenizer: WordTokenizer) -> None:
    """Warns that the token counts are not the benchmark's to the last token."""
    if not tokenizer.is_official:
        warnings.warn(
            f"XOR-Retrieve: tokens are counted by {tokenizer.description}: the figures can differ slightly "
            "from the official evaluation.",
            stacklevel=3,
        )


def _tokenize_without_punkt(text: str) -> list[str]:
    import sentencex
    from nltk.tokenize import NLTKWordTokenizer

    words = NLTKWordTokenizer()
    return [token for sentence in sentencex.segment("en", text) for token in words.tokenize(sentence)]


@dataclass(frozen=True)
class TokenizedPassage:
    """The tokens of a passage, joined by spaces (no token holds one), and how many they are."""

    text: str
    tokens: int

    @classmethod
    def of(cls, tokens: Sequence[str]) -> TokenizedPassage:
        """Example: ``TokenizedPassage.of(["a", "b"])`` is ``TokenizedPassage("a b", 2)``."""
        return cls(" ".join(tokens), len(tokens))


def first_tokens(passages: Iterable[TokenizedPassage], budget: int) -> str:
    """The first tokens of ranked passages, joined by spaces.

    Args:
        passages: Best first.
        budget: How many tokens: 2 000 for R@2kt, 5 000 for R@5kt.

    Example:
        >>> first_tokens([TokenizedPassage("a b", 2), TokenizedPassage("c d e", 3)], 4)
        'a b c d'
    """
    parts: list[str] = []
    left = budget
    for passage in passages:
        if left <= 0:
            break
        if passage.tokens:
            parts.append(passage.text if passage.tokens <= left else " ".join(passage.text.split(" ")[:left]))
            left -= passage.tokens
    return " ".join(parts)


def span_answers(answers: Iterable[str]) -> list[str]:
    """The answers that can be looked for in a text: all but "yes", "no" and blank ones.

    Example:
        >>> span_answers(["yes", "12 May 1990", ""])
        ['12 May 1990']
    """
    return [answer for answer in answers if answer not in YES_NO and answer.strip()]
