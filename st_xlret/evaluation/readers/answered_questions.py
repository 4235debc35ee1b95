"""Questions with the strings that answer them, and the passages in which those are looked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from st_xlret.evaluation.retrieval.data import TextCollection


@dataclass(frozen=True)
class AnsweredQuestions:
    """Passages, questions, and the strings that answer them.

    Attributes:
        corpus: The passages.
        queries: The questions.
        answers: The answers to each question.

    Raises:
        ValueError: If an id occurs twice, a question is empty, or the numbers of questions and answers differ.

    Example:
        >>> passages = TextCollection(["1"], ["Paris is the capital."], "en")
        >>> data = AnsweredQuestions(passages, TextCollection(["q"], ["what is the capital"], "en"), [["Paris"]])
        >>> data.judged.ids
        ['q']
    """

    corpus: TextCollection
    queries: TextCollection
    answers: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        if len(self.answers) != len(self.queries):
            raise ValueError(
                f"{self.queries.source}: {len(self.queries)} questions, but answers to {len(self.answers)}."
            )
        self.corpus.require_distinct_ids()
        self.queries.require_distinct_ids()
        for row, question in enumerate(self.queries.texts):
            if not question.strip():
                raise ValueError(f"{self.queries.source}: question {self.queries.ids[row]!r} is empty.")

    @property
    def judged(self) -> TextCollection:
        """The questions that count, which are all of them."""
        return self.queries
