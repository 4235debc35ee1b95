"""What the readers of retrieval data yield: a question, a passage that answers it, and passages that do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from st_xlret.data.documents.splitting import split_sentences
from st_xlret.data.reading.text import clean_text


class Example(NamedTuple):
    """One training example; texts are clean and may be empty. The language is that of the query, if it is known."""

    query: str
    positive: str
    negatives: tuple[str, ...] = ()
    answer_found: bool = True
    language: str | None = None


def passage_text(title: Any, text: Any) -> str:
    """Join the title of a passage, if it has one, and its text with a space: that is what is encoded."""
    return clean_text(f"{title} {text}" if title else text)


def answer_sentence(text: str, answers: Sequence[str], language: str = "en", *, start: int | None = None) -> str | None:
    """Find the sentence of a passage that contains the answer.

    Args:
        text: The passage.
        answers: Accepted answers; the first that occurs counts.
        language: Language of the passage.
        start: Character position of the first answer, if it is known.

    Returns:
        The sentence, or None if no sentence contains an answer.

    Example:
        >>> answer_sentence("It rained. The sun came out at 7.", ["the moon", "at 7"])
        'The sun came out at 7.'
    """
    return _answer_sentence(split_sentences(text, language), text, answers, start)


def _answer_sentence(sentences: Sequence[str], text: str, answers: Sequence[str], start: int | None) -> str | None:
    if start is not None and answers:
        # Splitting changes white space, so characters are counted without it.
        position = len("".join(text[:start].split()))
        for sentence in sentences:
            length = len("".join(sentence.split()))
            if position < length:
                return sentence if " ".join(answers[0].split()) in sentence else None
            position -= length
    for answer in answers:
        wanted = " ".join(answer.split())
        for sentence in sentences:
            if wanted and wanted in sentence:
                return sentence
    return None


def _contains(sentence: str, answers: Sequence[str]) -> bool:
    wanted = (" ".join(answer.split()) for answer in answers)
    return any(answer and answer in sentence for answer in wanted)


def texts_in(value: Any, name: str) -> list[str]:
    """A field that must be a list of strings.

    Raises:
        ValueError: If it is none.
    """
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"field {name!r} must be a list of strings, found {str(value)[:40]!r}")
    return value


def make_example(
    query: Any,
    title: Any,
    text: Any,
    negatives: Sequence[tuple[Any, Any]] = (),
    *,
    answers: Sequence[str] | None = None,
    start: int | None = None,
    language: str = "en",
    question_language: str | None = None,
) -> Example:
    """Make an example of raw fields.

    Args:
        query: The question.
        title: Title of the passage that answers it, or None.
        text: Text of that passage.
        negatives: (title, text) of passages that do not answer it.
        answers: The accepted answers, to take the sentence with the answer instead of the whole passage. The other
            sentences of the passage that contain no answer are negatives then, after those that are given.
        start: Character position of the first answer in the passage, if it is known.
        language: Language of the passage.
        question_language: Language of the question, if it is known.

    Raises:
        ValueError: If a field is not a string.
    """
    found = True
    others = tuple(passage_text(*negative) for negative in negatives)
    if answers is not None:
        text = clean_text(text) if start is None else text
        sentences = split_sentences(text, language)
        sentence = _answer_sentence(sentences, text, answers, start)
        found = sentence is not None
        if sentence is not None:
            others += tuple(passage_text(title, other) for other in sentences if not _contains(other, answers))
            text = sentence
    return Example(clean_text(query), passage_text(title, text), others, found, question_language)
