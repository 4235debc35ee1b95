"""XOR-Retrieve: questions in seven languages, answers in English passages."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from tqdm.auto import tqdm

from st_xlret.data.lines import DataError, read_jsonl
from st_xlret.evaluation.passages import AnsweredQuestions, load_passages, read_dpr_passages
from st_xlret.evaluation.retrieval import Columns, RetrievalEvaluator, TextCollection, rows_in_languages, search
from st_xlret.optional import import_optional

BUDGETS = {"recall_at_2kt": 2_000, "recall_at_5kt": 5_000}
YES_NO = ("yes", "no")
_SPLITS = ("train", "dev", "test")
_FIRST_DEPTH = 128


@dataclass(frozen=True)
class XorRetrieveData(AnsweredQuestions):
    """English passages, questions in other languages, and the annotated answers of each, which may be yes or no.

    Raises:
        ValueError: As `AnsweredQuestions`, or if no question has an answer that can be searched for.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._judged_rows:
            raise ValueError(f"{self.queries.source}: no question has an answer other than yes and no.")

    @cached_property
    def _judged_rows(self) -> list[int]:
        return [row for row, answers in enumerate(self.answers) if span_answers(answers)]

    @property
    def judged(self) -> TextCollection:
        """The questions that count, which are those with an answer that can be searched for."""
        return self.queries.take(self._judged_rows)

    @property
    def judged_answers(self) -> list[list[str]]:
        """The answers that are searched for, of each of the `judged` questions."""
        return [span_answers(self.answers[row]) for row in self._judged_rows]


class XORRetrieveEvaluator(RetrievalEvaluator):
    """R@2kt and R@5kt of XOR-Retrieve, per question language and averaged over the languages.

    The benchmark is by Asai et al. (2021), [arXiv:2010.11856](https://arxiv.org/abs/2010.11856), and reported by CCP
    (Table 4) and MSM (Tables 3 and 10). The texts of the best passages, tokenised by `nltk.word_tokenize`, are
    concatenated and cut after 2 000 and 5 000 tokens. A question is a hit if one of its answers is a case-sensitive
    substring of these tokens joined by spaces. The answers "yes" and "no" are left out, and so are questions without
    another answer. A passage is encoded as title and text, and its text alone is searched for answers.

    The official corpus has 18 million passages: use `embed_corpus=EmbeddingCache(folder)`. Counting tokens needs NLTK
    (the extra `eval`). Metrics: `average_recall_at_5kt` (primary), `average_recall_at_2kt`, and both per language.

    Args:
        data: Passages, questions and answers, or a function that loads them.
        tokenizer: How tokens are counted, which the result says. Default: that of `word_tokenizer`.
        **options: Those of `RetrievalEvaluator`.
    """

    benchmark = "xor-retrieve"
    metrics = tuple(BUDGETS)
    primary = "recall_at_5kt"
    task = "an answer among the first 2 000 and 5 000 tokens of the best English passages (XOR-Retrieve)"
    direction = "question in seven languages to English passages"

    def __init__(
        self,
        data: XorRetrieveData | Callable[[], XorRetrieveData],
        *,
        tokenizer: WordTokenizer | None = None,
        **options: Any,
    ) -> None:
        super().__init__({"english": data}, **{"split": "dev", **options})
        self.tokenizer = tokenizer or word_tokenizer()

    @classmethod
    def from_directory(
        cls,
        path: str | os.PathLike[str],
        languages: Sequence[str] | None = None,
        *,
        split: str = "dev",
        passages: str | os.PathLike[str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> XORRetrieveEvaluator:
        """Read the official files, plain or gzip.

        Args:
            path: The folder of `xor_<split>_retrieve_eng_span*.jsonl` and DPR's `psgs_w100.tsv` (or the one
                `*w100*.tsv`).
            languages: Languages of the questions, as ISO 639-1 codes. Default: all in the file.
            split: `"dev"`, `"test"` or `"train"`. (The released test file has no answers.)
            passages: The file of the passages, if it is elsewhere.
            cache_dir: Folder for the passages as memory-mapped columns. Default: the data cache.
            **options: The evaluator's own.
        """
        if split not in _SPLITS:
            raise ValueError(f"split must be one of {_SPLITS}, got {split!r}.")
        questions = _only_file(path, f"xor_{split}_retrieve_eng_span*.jsonl")
        table = _only_file(path, "psgs_w100.tsv", "*w100*.tsv") if passages is None else Path(passages)
        if not table.is_file():
            raise FileNotFoundError(f"{table}: there is no such file of passages.")
        return cls(partial(load_xor_retrieve, questions, table, languages, cache_dir=cache_dir), split=split, **options)

    def score_pool(self, model: SentenceTransformer, data: XorRetrieveData) -> dict[str, dict[str, float]]:
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
        xor: XorRetrieveData, rows: NDArray[np.int64], tokenized: dict[int, TokenizedPassage]
    ) -> dict[str, dict[str, float]]:
        hits: dict[str, list[list[bool]]] = {}
        for number, (ranked, answers) in enumerate(zip(rows, xor.judged_answers, strict=True)):
            passages = [tokenized[row] for row in ranked.tolist() if row in tokenized]
            found = [first_tokens(passages, budget) for budget in BUDGETS.values()]
            of_question = [any(answer in text for answer in answers) for text in found]
            hits.setdefault(xor.judged.language_of(number), []).append(of_question)
        means = {language: np.mean(of_language, axis=0) for language, of_language in hits.items()}
        return {language: dict(zip(BUDGETS, map(float, mean), strict=True)) for language, mean in means.items()}

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        return {
            **super().protocol(model),
            "passage": "title and text are encoded, the text is searched for answers",
            "tokens": self.tokenizer.description,
            "answers": 'case-sensitive substrings of the tokens joined by spaces; "yes" and "no" left out',
            "average": "mean over the question languages",
        }


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


def load_xor_retrieve(
    questions: Path,
    passages: Path,
    languages: Sequence[str] | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
) -> XorRetrieveData:
    """Load passages (memory-mapped), questions and answers, which are checked."""
    asked, answers = read_questions(questions)
    if languages is not None:
        rows = rows_in_languages(asked, languages)
        asked, answers = asked.take(rows), [answers[row] for row in rows]
    return XorRetrieveData(load_passages(passages, read_dpr_passages, "en", cache_dir=cache_dir), asked, answers)


def read_questions(path: str | os.PathLike[str]) -> tuple[TextCollection, list[list[str]]]:
    """Read questions and their answers: `{"id", "question", "lang", "answers": [...]}` per line."""
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
        columns.add(str(identifier), question, language, number)
        answers.append(found)
    return columns.collection(), answers


def span_answers(answers: Iterable[str]) -> list[str]:
    """The answers that can be searched for in a text, which are all but "yes", "no" and blank ones."""
    return [answer for answer in answers if answer not in YES_NO and answer.strip()]


def _only_file(folder: str | os.PathLike[str], *patterns: str) -> Path:
    """The only file that matches the first pattern that any file matches, plain or gzipped."""
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is no directory: expected one with {patterns[0]}.")
    for pattern in patterns:
        found = sorted({*root.glob(pattern), *root.glob(f"{pattern}.gz")})
        if len(found) > 1:
            raise FileNotFoundError(f"{root}: {[file.name for file in found]} all match {pattern}: leave one there.")
        if found:
            return found[0]
    there = sorted(entry.name for entry in root.iterdir())[:12]
    raise FileNotFoundError(f"{root}: expected {patterns[0]}; the folder holds {there}.")
