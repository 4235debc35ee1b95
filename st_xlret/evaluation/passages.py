"""Questions with the strings that answer them, which are looked for in the best passages of Wikipedia, as in DPR."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from sentence_transformers import SentenceTransformer

from st_xlret.data.cache import cache_key, cached_dataset
from st_xlret.data.lines import DataError, read_table
from st_xlret.evaluation.retrieval import RetrievalEvaluator
from st_xlret.evaluation.retrieval_data import TextCollection, find_file, rows_in_languages

Passage: TypeAlias = tuple[str, str, str]
"""Id, title and text."""
Questions: TypeAlias = tuple[TextCollection, list[list[str]]]
"""Questions, and the strings that answer each."""


@dataclass(frozen=True)
class AnsweredQuestions:
    """Passages (`corpus`), questions (`queries`), and the strings that answer each of them (`answers`).

    Raises:
        ValueError: If an id occurs twice, a question is empty, or the numbers of questions and answers differ.
    """

    corpus: TextCollection
    queries: TextCollection
    answers: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        if len(self.answers) != len(self.queries):
            counts = f"{len(self.queries)} questions, but answers to {len(self.answers)}"
            raise ValueError(f"{self.queries.source}: {counts}.")
        self.corpus.require_distinct_ids()
        self.queries.require_distinct_ids()
        self.queries.require_texts()

    @property
    def judged(self) -> TextCollection:
        """The questions that count, which are all of them."""
        return self.queries


class AnswerEvaluator(RetrievalEvaluator):
    """Base of the evaluators of questions whose answers are looked for in the texts of the best passages.

    A passage is encoded as title and text, and its text alone is searched for answers. The corpora have some 20 million
    passages: use `embed_corpus=EmbeddingCache(folder)`. A subclass names the files of its questions, and reads them.

    Args:
        pools: Name to [`AnsweredQuestions`][st_xlret.evaluation.AnsweredQuestions], or to a function that loads them.
        **options: Those of [`RetrievalEvaluator`][st_xlret.evaluation.RetrievalEvaluator].

    Options of reading: `split`, `passages` (the file of the passages, if it is not `psgs_w100.tsv` in the folder), and
    `cache_dir` (folder for the passages as memory-mapped columns; default: the data cache).
    """

    question_files: tuple[str, ...] = ()
    """Names of the file of the questions, of which the first one there is read, with `{split}` in them."""

    @classmethod
    def read(
        cls,
        folder: Path | None,
        languages: list[str] | None,
        *,
        split: str | None = None,
        passages: str | os.PathLike[str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """The questions and passages, which are read when they are needed."""
        assert folder is not None
        split = split or cls.splits[0]
        questions = find_file(folder, *(name.format(split=split) for name in cls.question_files))
        table = find_file(folder, "psgs_w100.tsv", "*w100*.tsv") if passages is None else Path(passages)
        if not table.is_file():
            raise FileNotFoundError(f"{table}: there is no such file of passages.")
        return {"pools": {"english": partial(cls._load, questions, table, languages, cache_dir)}, "split": split}

    @classmethod
    def _load(cls, questions: Path, passages: Path, languages: list[str] | None, cache_dir: Any) -> AnsweredQuestions:
        asked, answers = cls.read_questions(questions)
        if languages is not None:
            rows = rows_in_languages(asked, languages)
            asked, answers = asked.take(rows), [answers[row] for row in rows]
        return AnsweredQuestions(load_passages(passages, read_dpr_passages, "en", cache_dir=cache_dir), asked, answers)

    @staticmethod
    def read_questions(path: str | os.PathLike[str]) -> Questions:
        """Read the questions and their answers."""
        raise NotImplementedError

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        passage = "title and text are encoded, the text is searched for answers"
        return {**super().protocol(model), "passage": passage}


def load_passages(
    file: Path,
    read: Callable[[Path], Iterator[Passage]],
    language: str,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
) -> TextCollection:
    """Load a file of passages as a collection that is memory-mapped."""
    key = cache_key(["passages", read.__qualname__], [file])
    columns = dict.fromkeys(("id", "title", "text"), "string")
    table = cached_dataset("passages", columns, read(file), key=key, cache_dir=cache_dir)
    if not len(table):
        raise DataError("there are no passages", file=str(file), line=1)
    return TextCollection(table["id"], table["text"], language, table["title"], source=str(file))


def read_dpr_passages(file: Path) -> Iterator[Passage]:
    """Id, title and text of DPR's `psgs_w100.tsv`: id, text, title, quoted as the csv module does, with a header."""
    for row, (number, fields) in enumerate(read_table(file, delimiter="\t")):
        if len(fields) != 3:
            reason = f"expected three columns, id, text and title, got {len(fields)}: {fields[:1]}"
            raise DataError(reason, file=str(file), line=number)
        identifier, text, title = fields
        if row or identifier != "id":
            yield identifier, title, text
