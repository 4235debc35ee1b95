"""Questions with the strings that answer them, which are looked for in the best passages: XOR-Retrieve and NQ."""

from __future__ import annotations

import ast
import unicodedata
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import regex
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from typing_extensions import Self

from st_xlret.data.reading import PathLike, find_file, kept_table, key_of, read_jsonl, read_table
from st_xlret.evaluation.base import choose, naming
from st_xlret.evaluation.retrieval import RetrievalEvaluator, search, texts_table
from st_xlret.optional import import_optional

Question = tuple[str, str, str, list[str]]
"""Id, text, language, and the strings that answer it."""

BUDGETS = {"recall_at_2kt": 2_000, "recall_at_5kt": 5_000}
DEPTHS = {"recall_at_5": 5, "recall_at_20": 20, "recall_at_100": 100}
_DPR: Any = {"delimiter": "\t", "strict": False}  # its tables are quoted as the csv module does

# DPR's SimpleTokenizer: a run of letters, digits and marks, or any other visible character by itself.
_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]", flags=regex.UNICODE | regex.IGNORECASE | regex.MULTILINE)


@dataclass(frozen=True)
class AnsweredQuestions:
    """Tables of passages and of questions, which all count, as `RetrievalData` has them; the answers to each."""

    corpus: Dataset
    judged: Dataset
    answers: Sequence[Sequence[str]]


class AnswerEvaluator(RetrievalEvaluator):
    """Base of the evaluators of questions whose answers are looked for in the texts of the best passages.

    A passage is encoded as title and text, and its text alone is searched for answers. The corpora have some 20 million
    passages: use `keep_vectors`.

    Options of reading: `split`, `passages` (the file of the passages, if it is not `psgs_w100.tsv` in the folder), and
    `cache_dir` (folder for the passages as memory-mapped columns; default: the data cache).
    """

    question_files: tuple[str, ...] = ()
    """Names of the file of the questions, of which the first one there is read, with `{split}` in them."""
    comparison: str = ""
    """How answers are looked for, for the protocol."""

    def __init__(self, pools: Any, **options: Any) -> None:
        super().__init__(pools, **{"split": self.splits[0], **options})
        self.notes["passage"] = "title and text are encoded, the text is searched for answers"
        self.notes["answers"] = self.comparison

    @classmethod
    def read(
        cls,
        folder: Path | None,
        languages: Sequence[str] | None,
        *,
        split: str | None = None,
        passages: PathLike | None = None,
        cache_dir: PathLike | None = None,
        **options: Any,
    ) -> Self:
        """The questions, and the passages, which are read when they are needed."""
        assert folder is not None
        split = split or cls.splits[0]
        file = find_file(folder, *(name.format(split=split) for name in cls.question_files))
        table = find_file(folder, "psgs_w100.tsv", "*w100*.tsv") if passages is None else Path(passages)
        key = key_of("dpr", [table])
        rows = list(cls.read_questions(file))
        chosen = choose(languages, list(dict.fromkeys(row[2] for row in rows)), str(file))
        rows = [row for row in rows if row[2] in chosen]

        def load() -> AnsweredQuestions:
            columns = dict.fromkeys(("id", "title", "text", "language"), "string")
            corpus = kept_table(f"passages-{key}", columns, _read_passages(table), cache_dir=cache_dir)
            questions = texts_table((name, "", text, code) for name, text, code, _ in rows)
            return AnsweredQuestions(corpus, questions, [answers for *_, answers in rows])

        return cls({"english": load}, split=split, **options)

    @staticmethod
    @abstractmethod
    def read_questions(file: Path) -> Iterator[Question]:
        """Read the questions that count."""


def _read_passages(file: Path) -> Iterator[tuple[str, str, str, str]]:
    """Rows of DPR's `psgs_w100.tsv`: id, text, title, with a header."""
    for number, cells in read_table(file, **_DPR):
        with naming(file, number):
            name, text, title = cells
        if name != "id":
            yield name, title, text, "en"


class NQEvaluator(AnswerEvaluator):
    """Recall@5, @20 (primary) and @100 on Natural Questions by string match, as MSM reports it (Table 16).

    The protocol is that of DPR ([Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906)): 3 610 test questions over
    21 million passages of 100 words. A question is answered at k if one of the first k passages contains one of its
    answers as a run of whole tokens in lower case. All questions count. The splits are `"test"` and `"dev"`; for
    options see [`AnswerEvaluator`][st_xlret.evaluation.AnswerEvaluator].
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
    comparison = "runs of whole tokens, by DPR's tokenizer, in lower case, decomposed (NFD)"

    def score_pool(self, model: SentenceTransformer, data: AnsweredQuestions) -> dict[str, dict[str, float]]:
        """Language to metric to value."""
        ranks = first_hits(search(*self.embed_pool(model, data), max(DEPTHS.values())).tolist(), data)
        return {"en": {name: sum(rank < depth for rank in ranks) / len(ranks) for name, depth in DEPTHS.items()}}

    @staticmethod
    def read_questions(file: Path) -> Iterator[Question]:
        """Read DPR's `nq-test.csv`: a question, a tab and a list of answers as Python writes it, on each line."""
        for row, (number, cells) in enumerate(read_table(file, **_DPR)):
            with naming(file, number):
                question, listed = cells
                answers = ast.literal_eval(listed)
                _ = "".join([""] + answers)  # a TypeError unless it is a list of strings
            yield str(row), question.replace("\u2019", "'"), "en", answers  # as DPR does


def first_hits(ranking: Sequence[Sequence[int]], data: AnsweredQuestions) -> list[float]:
    """The rank, from 0, of the first passage with an answer to each question; infinity if none has one."""

    @lru_cache(maxsize=100_000)
    def passage(row: int) -> str:
        return _run(data.corpus[row]["text"])

    ranks = []
    for ranked, answers in zip(ranking, data.answers, strict=True):
        runs = [run for run in map(_run, answers) if run.strip()]
        hits = (rank for rank, row in enumerate(ranked) if any(run in passage(row) for run in runs))
        ranks.append(float(next(hits, float("inf"))))
    return ranks


def _run(text: str) -> str:
    """The tokens of a text by which DPR compares, decomposed (NFD) and in lower case, between spaces."""
    tokens = (token.lower() for token in _TOKEN.findall(unicodedata.normalize("NFD", text)))
    return f" {' '.join(tokens)} "


class XORRetrieveEvaluator(AnswerEvaluator):
    """R@2kt and R@5kt of XOR-Retrieve, per question language and averaged over the languages.

    The benchmark is by Asai et al. (2021), [arXiv:2010.11856](https://arxiv.org/abs/2010.11856), and reported by CCP
    (Table 4) and MSM (Tables 3 and 10). The texts of the best passages, tokenised by `nltk.word_tokenize`, are
    concatenated and cut after 2 000 and 5 000 tokens. A question is a hit if one of its answers is a case-sensitive
    substring of these tokens joined by spaces. The answers "yes" and "no" are left out, and so are questions without
    another answer. Counting tokens needs NLTK (the extra `eval`). The splits are `"dev"`, `"test"` (the released file
    has no answers) and `"train"`; for options see [`AnswerEvaluator`][st_xlret.evaluation.AnswerEvaluator].
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
    comparison = 'case-sensitive substrings of the tokens joined by spaces; "yes" and "no" left out'

    def __init__(self, pools: Any, **options: Any) -> None:
        super().__init__(pools, **options)
        self.tokenize, self.notes["tokens"] = word_tokenizer()
        self.notes["average"] = "mean over the question languages"

    def score_pool(self, model: SentenceTransformer, data: AnsweredQuestions) -> dict[str, dict[str, float]]:
        """Question language to metric to value."""

        @cache
        def passage(row: int) -> Passage:
            tokens = self.tokenize(data.corpus[row]["text"])
            return Passage(" ".join(tokens), len(tokens))

        def is_filled(ranked: Sequence[int]) -> bool:
            counts = accumulate(passage(row).tokens for row in ranked)
            return any(count >= max(BUDGETS.values()) for count in counts)

        questions, passages = self.embed_pool(model, data)
        depth, ranking = 128, search(questions, passages, 128).tolist()
        while depth < len(data.corpus) and not all(map(is_filled, ranking)):
            depth *= 2  # the passages are short: retrieve more of them
            ranking = search(questions, passages, depth).tolist()
        hits: dict[str, list[list[bool]]] = {}
        for ranked, answers, code in zip(ranking, data.answers, data.judged["language"][:], strict=True):
            texts = [first_tokens(map(passage, ranked), budget) for budget in BUDGETS.values()]
            hits.setdefault(code, []).append([any(answer in text for answer in answers) for text in texts])
        means = {code: np.mean(of_language, axis=0).tolist() for code, of_language in hits.items()}
        return {code: dict(zip(BUDGETS, of_language, strict=True)) for code, of_language in means.items()}

    @staticmethod
    def read_questions(file: Path) -> Iterator[Question]:
        """Read `{"id", "question", "lang", "answers": [...]}` per line; the released test file has no answers."""
        for number, record in read_jsonl(file):
            with naming(file, number):
                # The exact strings: "Yes" may be a span of a passage.
                answers = [answer for answer in record["answers"] if answer not in ("yes", "no") and answer.strip()]
                row = str(record["id"]), record["question"], record["lang"], answers
            if answers:
                yield row


def word_tokenizer() -> tuple[Callable[[str], list[str]], str]:
    """`nltk.word_tokenize`, and its name.

    Without NLTK's download `punkt_tab`, sentences are split by `sentencex`, and words by NLTK's rules, with a warning:
    the tokens differ only where the two disagree about the end of a sentence.
    """
    nltk = import_optional("nltk", extra="eval", needed_for="counting the tokens of XOR-Retrieve")
    try:
        nltk.word_tokenize("Is it there?")
    except LookupError:
        import sentencex

        name = "nltk's word rules on sentences split by sentencex, as punkt_tab is not installed"
        warnings.warn(f"tokens are counted by {name}: python -m nltk.downloader punkt_tab", stacklevel=3)
        words = nltk.tokenize.NLTKWordTokenizer()
        return lambda text: [token for one in sentencex.segment("en", text) for token in words.tokenize(one)], name
    return nltk.word_tokenize, "nltk.word_tokenize"


class Passage(NamedTuple):
    """The tokens of a passage, joined by spaces (no token contains one), and their number."""

    text: str
    tokens: int


def first_tokens(passages: Iterable[Passage], budget: int) -> str:
    """The first tokens of ranked passages, joined by spaces."""
    parts: list[str] = []
    for passage in passages:
        if passage.tokens:
            parts.append(passage.text if passage.tokens <= budget else " ".join(passage.text.split(" ")[:budget]))
            budget -= passage.tokens
        if budget <= 0:
            break
    return " ".join(parts)
