"""XOR-Retrieve: questions in seven languages, answers in English passages."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from tqdm.auto import tqdm

from st_xlret.data.lines import DataError, read_jsonl
from st_xlret.evaluation.passages import AnsweredQuestions, AnswerEvaluator, Questions
from st_xlret.evaluation.retrieval import search
from st_xlret.evaluation.retrieval_data import Columns, TextCollection
from st_xlret.optional import import_optional

BUDGETS = {"recall_at_2kt": 2_000, "recall_at_5kt": 5_000}
_FIRST_DEPTH = 128


class XORRetrieveEvaluator(AnswerEvaluator):
    """R@2kt and R@5kt of XOR-Retrieve, per question language and averaged over the languages.

    The benchmark is by Asai et al. (2021), [arXiv:2010.11856](https://arxiv.org/abs/2010.11856), and reported by CCP
    (Table 4) and MSM (Tables 3 and 10). The texts of the best passages, tokenised by `nltk.word_tokenize`, are
    concatenated and cut after 2 000 and 5 000 tokens. A question is a hit if one of its answers is a case-sensitive
    substring of these tokens joined by spaces. The answers "yes" and "no" are left out, and so are questions without
    another answer. Counting tokens needs NLTK (the extra `eval`). The splits are `"dev"`, `"test"` (the released file
    has no answers) and `"train"`; for options see [`AnswerEvaluator`][st_xlret.evaluation.passages.AnswerEvaluator].
    """

    benchmark = "xor-retrieve"
    metrics = published_metrics = tuple(BUDGETS)
    primary = "recall_at_5kt"
    layout = "xor_dev_retrieve_eng_span_v1_1.jsonl and psgs_w100.tsv"
    splits = ("dev", "test", "train")
    languages_in_all = 7
    task = "an answer among the first 2 000 and 5 000 tokens of the best English passages (XOR-Retrieve)"
    direction = "question in seven languages to English passages"
    question_files = ("xor_{split}_retrieve_eng_span*.jsonl",)

    def __init__(self, pools: Any, **options: Any) -> None:
        super().__init__(pools, **{"split": "dev", **options})
        self.tokenizer = word_tokenizer()

    def score_pool(self, model: SentenceTransformer, data: AnsweredQuestions) -> dict[str, dict[str, float]]:
        """Question language to metric to value."""
        if not self.tokenizer.is_official:
            warnings.warn(
                f"XOR-Retrieve: tokens are counted by {self.tokenizer.description}. The figures can differ slightly "
                "from the official evaluation.",
                stacklevel=2,
            )
        questions, passages = self.embed_pool(model, data)
        tokenized: dict[int, TokenizedPassage] = {}
        depth = _FIRST_DEPTH
        while True:
            rows = search(questions, passages, depth)
            self._tokenize(data.corpus, rows, tokenized)
            if depth >= len(data.corpus) or self._is_filled(rows, tokenized):
                return self._score(data, rows, tokenized)
            depth *= 2  # the passages are short: retrieve more of them

    def _tokenize(self, corpus: TextCollection, rows: NDArray[np.int64], known: dict[int, TokenizedPassage]) -> None:
        """Tokenise the retrieved passages, each once, as far as the budgets reach."""
        bar = tqdm(rows, desc="Tokenising", unit=" questions", disable=not self.show_progress_bar)
        for ranked in bar:
            left = max(BUDGETS.values())
            for row in ranked.tolist():
                if left <= 0:
                    break
                if row not in known:
                    tokens = self.tokenizer.tokenize(corpus.texts[row])
                    known[row] = TokenizedPassage(" ".join(tokens), len(tokens))
                left -= known[row].tokens

    @staticmethod
    def _is_filled(rows: NDArray[np.int64], tokenized: dict[int, TokenizedPassage]) -> bool:
        counts = (sum(tokenized[row].tokens for row in ranked if row in tokenized) for ranked in rows.tolist())
        return min(counts) >= max(BUDGETS.values())

    @staticmethod
    def _score(
        data: AnsweredQuestions, rows: NDArray[np.int64], tokenized: dict[int, TokenizedPassage]
    ) -> dict[str, dict[str, float]]:
        hits: dict[str, list[list[bool]]] = {}
        for number, (ranked, answers) in enumerate(zip(rows, data.answers, strict=True)):
            passages = [tokenized[row] for row in ranked.tolist() if row in tokenized]
            found = [first_tokens(passages, budget) for budget in BUDGETS.values()]
            of_question = [any(answer in text for answer in answers) for text in found]
            hits.setdefault(data.queries.language_of(number), []).append(of_question)
        means = {language: np.mean(of_language, axis=0) for language, of_language in hits.items()}
        return {language: dict(zip(BUDGETS, map(float, mean), strict=True)) for language, mean in means.items()}

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        return {
            **super().protocol(model),
            "tokens": self.tokenizer.description,
            "answers": 'case-sensitive substrings of the tokens joined by spaces; "yes" and "no" left out',
            "average": "mean over the question languages",
        }

    @staticmethod
    def read_questions(path: str | os.PathLike[str]) -> Questions:
        """Read `{"id", "question", "lang", "answers": [...]}` per line: the questions that count, and their answers."""
        columns = Columns(os.fspath(path))
        answers = []
        for number, record in read_jsonl(path):
            identifier, question, language = (record.get(field) for field in ("id", "question", "lang"))
            if not isinstance(identifier, str | int) or not isinstance(question, str) or not isinstance(language, str):
                reason = 'expected {"id", "question", "lang", "answers"}'
                raise DataError(f"{reason}, got the fields {sorted(record)}", file=columns.source, line=number)
            found = record.get("answers")
            if not isinstance(found, list) or not all(isinstance(answer, str) for answer in found):
                reason = (
                    f"question {identifier!r} has no list of answers: the released test file holds questions only, "
                    "evaluate on dev"
                )
                raise DataError(reason, file=columns.source, line=number)
            if not question.strip():
                raise DataError(f"question {identifier!r} is empty", file=columns.source, line=number)
            if spans := [answer for answer in found if answer not in ("yes", "no") and answer.strip()]:
                columns.add(str(identifier), question, language, number)
                answers.append(spans)
        if not answers:
            raise ValueError(f"{columns.source}: no question has an answer other than yes and no.")
        return columns.collection(), answers


@dataclass(frozen=True)
class WordTokenizer:
    """A way to split passages into tokens, its description for results, and whether it is the benchmark's own."""

    tokenize: Callable[[str], list[str]]
    description: str
    is_official: bool


def word_tokenizer() -> WordTokenizer:
    """`nltk.word_tokenize`, or an approximation of it where the data of its sentence splitter is missing.

    Without NLTK's download `punkt_tab`, sentences are split by `sentencex`, and words by NLTK's rules: the tokens
    differ only where the two disagree about the end of a sentence. An ImportError says that NLTK is not installed.
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


def _tokenize_without_punkt(text: str) -> list[str]:
    import sentencex
    from nltk.tokenize import NLTKWordTokenizer

    words = NLTKWordTokenizer()
    return [token for sentence in sentencex.segment("en", text) for token in words.tokenize(sentence)]


class TokenizedPassage(NamedTuple):
    """The tokens of a passage, joined by spaces (no token contains one), and their number."""

    text: str
    tokens: int


def first_tokens(passages: Iterable[TokenizedPassage], budget: int) -> str:
    """The first tokens of ranked passages, joined by spaces."""
    parts: list[str] = []
    left = budget
    for passage in passages:
        if left <= 0:
            break
        if passage.tokens:
            parts.append(passage.text if passage.tokens <= left else " ".join(passage.text.split(" ")[:left]))
            left -= passage.tokens
    return " ".join(parts)
