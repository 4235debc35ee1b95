"""Natural Questions: passages of Wikipedia that contain an answer, by DPR's string match."""

from __future__ import annotations

import ast
import os
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

import regex
from sentence_transformers import SentenceTransformer

from st_xlret.data.lines import DataError, read_table
from st_xlret.evaluation.passages import AnsweredQuestions, AnswerEvaluator, Questions
from st_xlret.evaluation.retrieval import search
from st_xlret.evaluation.retrieval_data import TextCollection

DEPTHS = {"recall_at_5": 5, "recall_at_20": 20, "recall_at_100": 100}

# DPR's SimpleTokenizer: a run of letters, digits and marks, or any other visible character by itself.
_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]", flags=regex.UNICODE | regex.IGNORECASE | regex.MULTILINE)


class NQEvaluator(AnswerEvaluator):
    """Recall@5, @20 (primary) and @100 on Natural Questions by string match, as MSM reports it (Table 16).

    The protocol is that of DPR ([Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906)): 3 610 test questions over
    21 million passages of 100 words. A question is answered at k if one of the first k passages contains one of its
    answers as a run of whole tokens in lower case. All questions count. The splits are `"test"` and `"dev"`; for
    options see [`AnswerEvaluator`][st_xlret.evaluation.passages.AnswerEvaluator].
    """

    benchmark = "nq"
    metrics = published_metrics = tuple(DEPTHS)
    primary = "recall_at_20"
    layout = "nq-test.csv (or nq-test.qa.csv) and psgs_w100.tsv (DPR)"
    splits = ("test", "dev")
    languages_in_all = 1
    task = "an answer in one of the first 5, 20 and 100 passages of Wikipedia (Natural Questions)"
    direction = "English question to English passages"
    question_files = ("nq-{split}.csv", "nq-{split}.qa.csv")

    def score_pool(self, model: SentenceTransformer, data: AnsweredQuestions) -> dict[str, dict[str, float]]:
        """Language to metric to value."""
        ranks = first_hits(search(*self.embed_pool(model, data), max(DEPTHS.values())).tolist(), data)
        shares = {name: sum(rank < depth for rank in ranks) / len(ranks) for name, depth in DEPTHS.items()}
        return {data.queries.language_of(0): shares}

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        answers = "runs of whole tokens, by DPR's tokenizer, in lower case, decomposed (NFD)"
        return {**super().protocol(model), "answers": answers}

    @staticmethod
    def read_questions(path: str | os.PathLike[str]) -> Questions:
        """Read DPR's `nq-test.csv`: a question, a tab and a list of answers as Python writes it, on each line."""
        name = os.fspath(path)
        texts: list[str] = []
        answers: list[list[str]] = []
        for number, cells in read_table(name, delimiter="\t"):
            if len(cells) != 2:
                reason = "expected a question and its answers with a tab between them"
                raise DataError(reason, file=name, line=number)
            question, listed = cells
            try:
                found = ast.literal_eval(listed)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                found = None
            if not isinstance(found, list) or not found or not all(isinstance(answer, str) for answer in found):
                raise DataError(f"no list of answers: {listed[:60]!r}", file=name, line=number)
            if not question.strip():
                raise DataError("the question is empty", file=name, line=number)
            texts.append(question.replace("\u2019", "'"))  # as DPR does
            answers.append(found)
        if not texts:
            raise DataError("there are no questions", file=name, line=1)
        return TextCollection([str(row) for row in range(len(texts))], texts, "en", source=name), answers


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


def _run(text: str) -> str:
    """The tokens of a text by which DPR compares, decomposed (NFD) and in lower case, between spaces."""
    tokens = (token.lower() for token in _TOKEN.findall(unicodedata.normalize("NFD", text)))
    return f" {' '.join(tokens)} "


def _runs(answers: Iterable[str]) -> list[str]:
    return [run for run in map(_run, answers) if run.strip()]
