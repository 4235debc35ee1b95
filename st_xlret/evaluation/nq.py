"""Natural Questions: passages of Wikipedia that contain an answer, by DPR's string match."""

from __future__ import annotations

import ast
import csv
import os
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import regex
from sentence_transformers import SentenceTransformer

from st_xlret.data.lines import DataError, read_lines
from st_xlret.evaluation.passages import AnsweredQuestions, load_passages, read_dpr_passages
from st_xlret.evaluation.retrieval import RetrievalEvaluator, TextCollection, find_file, search

DEPTHS = {"recall_at_5": 5, "recall_at_20": 20, "recall_at_100": 100}

# DPR's SimpleTokenizer: a run of letters, digits and marks, or any other visible character by itself.
_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]", flags=regex.UNICODE | regex.IGNORECASE | regex.MULTILINE)


def answer_tokens(text: str) -> list[str]:
    """The tokens of a text by which DPR compares passages and answers: decomposed (NFD), split, in lower case."""
    return [token.lower() for token in _TOKEN.findall(unicodedata.normalize("NFD", text))]


def has_answer(answers: Iterable[str], text: str) -> bool:
    """Whether a passage contains one of the answers as a run of whole tokens, see `answer_tokens`."""
    passage = _run(text)
    return any(run in passage for run in _runs(answers))


def _run(text: str) -> str:
    """The tokens of a text between spaces, of which no token contains one."""
    return f" {' '.join(answer_tokens(text))} "


def _runs(answers: Iterable[str]) -> list[str]:
    return [run for run in map(_run, answers) if run.strip()]


class NQEvaluator(RetrievalEvaluator):
    """Recall@5, @20 (primary) and @100 on Natural Questions by string match, as MSM reports it (Table 16).

    The protocol is that of DPR ([Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906)): 3 610 test questions over
    21 million passages of 100 words. A question is answered at k if one of the first k passages contains one of its
    answers as a run of whole tokens in lower case. All questions count. A passage is encoded as title and text, and its
    text alone is searched for answers. The corpus is large: use `embed_corpus=EmbeddingCache(folder)`.

    Args:
        data: Passages, questions and answers, or a function that loads them.
        **options: Those of `RetrievalEvaluator`.
    """

    benchmark = "nq"
    metrics = tuple(DEPTHS)
    primary = "recall_at_20"
    task = "an answer in one of the first 5, 20 and 100 passages of Wikipedia (Natural Questions)"
    direction = "English question to English passages"

    def __init__(self, data: AnsweredQuestions | Callable[[], AnsweredQuestions], **options: Any) -> None:
        super().__init__({"english": data}, **options)

    @classmethod
    def from_directory(
        cls,
        path: str | os.PathLike[str],
        languages: Sequence[str] | None = None,
        *,
        split: str = "test",
        passages: str | os.PathLike[str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> NQEvaluator:
        """Read DPR's files: `nq-test.csv` (or `nq-test.qa.csv`) and `psgs_w100.tsv`. Both may be gzipped.

        Args:
            path: The folder.
            languages: English alone.
            split: `"test"` or `"dev"`.
            passages: The file of the passages, if it is elsewhere.
            cache_dir: Folder for the passages as memory-mapped columns. Default: the data cache.
            **options: The evaluator's own.
        """
        asked_for = [languages] if isinstance(languages, str) else list(languages or ["en"])
        if asked_for != ["en"]:
            raise ValueError(f"Natural Questions are in English; got the languages {asked_for}.")
        if split not in ("dev", "test"):
            raise ValueError(f"split must be dev or test, got {split!r}.")
        questions = find_file(path, f"nq-{split}.csv", f"nq-{split}.qa.csv")
        table = find_file(path, "psgs_w100.tsv") if passages is None else Path(passages)
        if not table.is_file():
            raise FileNotFoundError(f"{table}: there is no such file of passages.")
        return cls(partial(_load, questions, table, cache_dir), split=split, **options)

    def score_pool(self, model: SentenceTransformer, data: AnsweredQuestions) -> dict[str, dict[str, float]]:
        """Language to metric to value."""
        ranks = first_hits(search(*self.embed_pool(model, data), max(DEPTHS.values())).tolist(), data)
        shares = {name: sum(rank < depth for rank in ranks) / len(ranks) for name, depth in DEPTHS.items()}
        return {data.queries.language_of(0): shares}

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        return {
            **super().protocol(model),
            "passage": "title and text are encoded, the text is searched for answers",
            "answers": "runs of whole tokens, by DPR's tokenizer, in lower case, decomposed (NFD)",
        }


def first_hits(rows: Sequence[Sequence[int]], data: AnsweredQuestions) -> list[float]:
    """The rank, from 0, of the first passage with an answer to each question; infinity if none has one."""

    @lru_cache(maxsize=100_000)
    def passage(row: int) -> str:
        return _run(data.corpus.texts[row])

    found = []
    for ranked, answers in zip(rows, data.answers, strict=True):
        runs = _runs(answers)
        hits = (rank for rank, row in enumerate(ranked) if any(run in passage(row) for run in runs))
        found.append(float(next(hits, float("inf"))))
    return found


def _load(questions: Path, passages: Path, cache_dir: Any) -> AnsweredQuestions:
    read, answers = read_questions(questions)
    return AnsweredQuestions(load_passages(passages, read_dpr_passages, "en", cache_dir=cache_dir), read, answers)


def read_questions(path: str | os.PathLike[str]) -> tuple[TextCollection, list[list[str]]]:
    """Read DPR's `nq-test.csv`: a question, a tab and a list of answers as Python writes it, on each line."""
    name = os.fspath(path)
    texts: list[str] = []
    answers: list[list[str]] = []
    for number, line in read_lines(name):
        try:
            question, listed = next(csv.reader([line], delimiter="\t"))
        except (csv.Error, ValueError) as error:
            raise DataError(
                "expected a question and its answers with a tab between them", file=name, line=number
            ) from error
        try:
            found = ast.literal_eval(listed)
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise DataError(f"no list of answers: {listed[:60]!r}", file=name, line=number) from error
        if not isinstance(found, list) or not found or not all(isinstance(answer, str) for answer in found):
            raise DataError(f"no list of answers: {listed[:60]!r}", file=name, line=number)
        if not question.strip():
            raise DataError("the question is empty", file=name, line=number)
        texts.append(question.replace("\u2019", "'"))  # as DPR does
        answers.append(found)
    if not texts:
        raise DataError("there are no questions", file=name, line=1)
    return TextCollection([str(row) for row in range(len(texts))], texts, "en", source=name), answers
