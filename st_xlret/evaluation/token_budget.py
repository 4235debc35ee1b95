"""The first tokens of ranked passages: XOR-Retrieve counts answers in them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from st_xlret.optional import import_optional


@dataclass(frozen=True)
class WordTokenizer:
    """A way to split passages into tokens.

    Attributes:
        tokenize: Function from a text to its tokens.
        description: Description for the protocol of a result.
        is_official: Whether it is the tokenizer of the benchmark.
    """

    tokenize: Callable[[str], list[str]]
    description: str
    is_official: bool


def word_tokenizer() -> WordTokenizer:
    """`nltk.word_tokenize`, or an approximation of it where the data of its sentence splitter is missing.

    `word_tokenize` splits a text into sentences with Punkt's English model (`punkt_tab`), which is a separate download,
    and each sentence into words by rules that are part of NLTK. Without the download, sentences are split by
    `sentencex`, and words by the same rules. Tokens then differ only where the two disagree about the end of a
    sentence, as NLTK separates the full stop there. This can shift the end of a budget by a few tokens.

    Raises:
        ImportError: If NLTK is not installed.

    Example:
        >>> word_tokenizer().tokenize('He said "No." It cost $3.88.')[:6]
        ['He', 'said', '``', 'No', '.', "''"]
    """
    nltk = import_optional("nltk", extra="eval", needed_for="counting the tokens of XOR-Retrieve")
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
    """Warn that the token counts can differ slightly from those of the official evaluation."""
    if not tokenizer.is_official:
        warnings.warn(
            f"XOR-Retrieve: tokens are counted by {tokenizer.description}. The figures can differ slightly from the "
            "official evaluation.",
            stacklevel=3,
        )


def _tokenize_without_punkt(text: str) -> list[str]:
    import sentencex
    from nltk.tokenize import NLTKWordTokenizer

    words = NLTKWordTokenizer()
    return [token for sentence in sentencex.segment("en", text) for token in words.tokenize(sentence)]


@dataclass(frozen=True)
class TokenizedPassage:
    """The tokens of a passage, joined by spaces (no token contains one), and their number."""

    text: str
    tokens: int

    @classmethod
    def of(cls, tokens: Sequence[str]) -> TokenizedPassage:
        """Join tokens: `TokenizedPassage.of(["a", "b"])` is `TokenizedPassage("a b", 2)`."""
        return cls(" ".join(tokens), len(tokens))


def first_tokens(passages: Iterable[TokenizedPassage], budget: int) -> str:
    """The first tokens of ranked passages, joined by spaces.

    Args:
        passages: Best first.
        budget: Number of tokens: 2 000 for R@2kt, 5 000 for R@5kt.

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
