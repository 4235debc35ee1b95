"""Sentence splitting for running text."""

from __future__ import annotations

import re

UNMARKED_LANGUAGES = frozenset({"lo", "th"})
"""Languages that put spaces between phrases and no mark at the end of a sentence."""

PHRASE_RUN_CHARACTERS = 60
"""Minimum length, in characters, of the phrase runs that replace sentences in unmarked languages."""

_PARAGRAPH_BREAK = re.compile(r"\n\s*\n")


def split_sentences(text: str, language: str) -> list[str]:
    r"""Split running text into sentences.

    This uses the library `sentencex` (Wikimedia), which has rules and lists of abbreviations and downloads no model.
    A language without rules there is split by those of a related language or, failing that, by general rules: the
    sentence-ending marks of all scripts (`. ? ! 。 । ؟ ።` ...) and no abbreviations. No language is refused. In doubt,
    two sentences are left together.

    Thai and Lao have no sentence marks. Their text is cut at spaces into runs of whole phrases of at least 60
    characters (a shorter rest joins the run before), which approximate sentences.

    White space inside a sentence, line breaks included, becomes a single space. A blank line always ends a sentence.

    Args:
        text: Running text, any length.
        language: Language code, with or without region (`"pt-br"` uses the rules of `"pt"`).

    Returns:
        The sentences in order, none empty. An empty text gives an empty list.

    Example:
        >>> split_sentences("Dr. Smith left. Did he?\nYes.", "en")
        ['Dr. Smith left.', 'Did he?', 'Yes.']
        >>> split_sentences("今天天气很好。我们去公园吧！", "zh")
        ['今天天气很好。', '我们去公园吧！']
    """
    import sentencex

    primary = language.lower().replace("_", "-").partition("-")[0]
    sentences: list[str] = []
    for paragraph in _PARAGRAPH_BREAK.split(text):
        for segment in sentencex.segment(primary, paragraph):
            sentence = " ".join(segment.split())
            if not sentence:
                continue
            if primary in UNMARKED_LANGUAGES:
                sentences.extend(_phrase_runs(sentence))
            else:
                sentences.append(sentence)
    return sentences


def _phrase_runs(text: str) -> list[str]:
    runs: list[str] = []
    current = ""
    for phrase in text.split():
        current = f"{current} {phrase}" if current else phrase
        if len(current) >= PHRASE_RUN_CHARACTERS:
            runs.append(current)
            current = ""
    if current and runs:
        runs[-1] = f"{runs[-1]} {current}"
    elif current:
        runs.append(current)
    return runs
