"""Natural Questions: passages of Wikipedia that contain an answer, by DPR's string match."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, cast

import regex

from st_xlret.evaluation.readers.answered_questions import AnsweredQuestions
from st_xlret.evaluation.readers.nq import find_nq, load_nq
from st_xlret.evaluation.retrieval.data import RetrievalData
from st_xlret.evaluation.retrieval.evaluator import RetrievalEvaluator
from st_xlret.evaluation.retrieval.ranking import retrieve

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

DEPTHS = {"recall_at_5": 5, "recall_at_20": 20, "recall_at_100": 100}

# DPR's SimpleTokenizer: a run of letters, digits and marks, or any other visible character by itself.
_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]", flags=regex.UNICODE | regex.IGNORECASE | regex.MULTILINE)


def answer_tokens(text: str) -> list[str]:
    """The tokens of a text by which DPR compares passages and answers: decomposed (NFD), split, in lower case.

    Args:
        text: A passage or an answer.

    Example:
        >>> answer_tokens("The U.S. won 3-0")
        ['the', 'u', '.', 's', '.', 'won', '3', '-', '0']
    """
    return [token.lower() for token in _TOKEN.findall(unicodedata.normalize("NFD", text))]


def has_answer(answers: Iterable[str], text: str) -> bool:
    """Whether a passage contains one of the answers as a run of whole tokens, see `answer_tokens`.

    An answer without any token, such as an empty string, is in no passage. (DPR's program finds it in all of them; its
    files have no such answer.)

    Args:
        answers: The answers to a question.
        text: The passage, without its title.

    Example:
        >>> has_answer(["Art"], "State of the art"), has_answer(["Art"], "Bonaparte")
        (True, False)
    """
    passage = _run(text)
    return any(run in passage for run in _runs(answers))


def _run(text: str) -> str:
    """The tokens of a text between spaces, of which no token contains one."""
    return f" {' '.join(answer_tokens(text))} "


def _runs(answers: Iterable[str]) -> list[str]:
    return [run for run in map(_run, answers) if run.strip()]


class NQEvaluator(RetrievalEvaluator):
    """Recall@5, @20 and @100 on Natural Questions by string match, as MSM reports it (Table 16).

    The protocol is that of DPR ([Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906)): 3 610 test questions over
    21 million passages of 100 words. A question counts as answered at k if one of the first k passages contains one of
    its answers, as a run of whole tokens in lower case, see `has_answer`. All questions count. A passage is encoded as
    title and text, and its text alone is searched for answers. Which passages an annotator has marked plays no part.

    The corpus is large: use `embed_corpus=EmbeddingCache(folder)`.

    Metrics: `average_recall_at_20` (primary), `average_recall_at_5`, `average_recall_at_100`, and the same as
    `en_recall_at_5` and so on.

    Args:
        data: Passages, questions and answers, or a function that loads them.
        **options: Those of `RetrievalEvaluator`.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> from st_xlret.evaluation.retrieval.data import TextCollection
        >>> model = SentenceTransformer(modules=[BoW(vocab=["capital", "born"])], device="cpu")
        >>> passages = TextCollection(["1", "2"], ["The capital is Tokyo", "Born in 1905"], "en", ["Japan", "Sartre"])
        >>> data = AnsweredQuestions(passages, TextCollection(["q"], ["when born"], "en"), [["1905"]])
        >>> NQEvaluator(data)(model)["nq_average_recall_at_5"]
        1.0
    """

    benchmark = "nq"
    metrics = tuple(DEPTHS)
    task = "an answer in one of the first 5, 20 and 100 passages of Wikipedia (Natural Questions)"
    direction = "English question to English passages"

    def __init__(self, data: AnsweredQuestions | Callable[[], AnsweredQuestions], **options: Any) -> None:
        load = (lambda: data) if isinstance(data, AnsweredQuestions) else data
        super().__init__({"english": cast(Callable[[], RetrievalData], load)}, **options)
        self.primary_metric = "average_recall_at_20"

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
            cache_dir: Folder for the passages as memory-mapped columns. Default: `st_xlret` in the cache of Hugging
                Face Datasets.
            **options: The evaluator's own.

        Raises:
            FileNotFoundError: If a file is missing. The message says which was expected where.
            ValueError: If there is no such split, or another language than English is asked for.
        """
        asked_for = [languages] if isinstance(languages, str) else list(languages or ["en"])
        if asked_for != ["en"]:
            raise ValueError(f"Natural Questions are in English; got the languages {asked_for}.")
        files = find_nq(path, split, passages)
        bar = bool(options.get("show_progress_bar", False))
        return cls(partial(load_nq, files, cache_dir=cache_dir, show_progress_bar=bar), split=split, **options)

    def score_pool(
        self, model: SentenceTransformer, data: RetrievalData, pool_name: str
    ) -> dict[str, dict[str, float]]:
        """Language to metric to value."""
        questions = cast(AnsweredQuestions, data)
        ranking = retrieve(
            model,
            questions.judged,
            questions.corpus,
            k=max(DEPTHS.values()),
            embedder=self.embedder,
            similarity=self.similarity,
            embed_corpus=self.corpus_embedding(pool_name),
        )
        ranks = first_hits(ranking.rows.tolist(), questions)
        shares = {name: sum(rank < depth for rank in ranks) / len(ranks) for name, depth in DEPTHS.items()}
        return {questions.queries.language_of(0): shares}

    def _protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        return {
            **super()._protocol(model),
            "passage": "title and text are encoded, the text is searched for answers",
            "answers": "runs of whole tokens, by DPR's tokenizer, in lower case, decomposed (NFD)",
        }


def first_hits(rows: Sequence[Sequence[int]], data: AnsweredQuestions) -> list[float]:
    """The rank, from 0, of the first passage with an answer to each question; infinity if none has one.

    Args:
        rows: Corpus rows of each question, best first.
        data: The questions, their answers and the passages.

    Returns:
        A rank for each question.
    """

    @lru_cache(maxsize=100_000)
    def passage(row: int) -> str:
        return _run(data.corpus.texts[row])

    found = []
    for ranked, answers in zip(rows, data.answers, strict=True):
        runs = _runs(answers)
        hits = (rank for rank, row in enumerate(ranked) if any(run in passage(row) for run in runs))
        found.append(float(next(hits, float("inf"))))
    return found
