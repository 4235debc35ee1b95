"""XOR-Retrieve: questions with strings that answer them, looked for in the best passages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from typing_extensions import Self

from st_xlret.data.cells import read_table
from st_xlret.data.kept import cache_key, cached_table
from st_xlret.data.reading import DataError, read_jsonl
from st_xlret.data.sources import find_file
from st_xlret.evaluation.base import Scores, chosen_names, name_file_in_errors
from st_xlret.evaluation.pools import TEXT_COLUMNS, TextRow, text_row, texts_table
from st_xlret.evaluation.retrieval import RETRIEVAL_OPTIONS, PoolEvaluator, Pools, ranking_of
from st_xlret.files import PathLike
from st_xlret.optional import import_optional

_BUDGETS = {"recall_at_2kt": 2_000, "recall_at_5kt": 5_000}
_MOST_TOKENS = max(_BUDGETS.values())
_FIRST_DEPTH = 128  # passages that are ranked at first; short ones need more


@dataclass(frozen=True)
class AnsweredQuestions:
    """Tables of passages and of questions, as `RetrievalData` has them; the answers to each.

    All questions count.
    """

    corpus: Dataset
    judged: Dataset
    answers: Sequence[Sequence[str]]


class XORRetrieveEvaluator(PoolEvaluator[AnsweredQuestions]):
    """R@2kt and R@5kt of XOR-Retrieve, per question language and averaged over the languages.

    The benchmark is by Asai et al. (2021), [arXiv:2010.11856](https://arxiv.org/abs/2010.11856),
    and reported by CCP (Table 4) and MSM (Tables 3 and 10). The texts of the best passages,
    tokenised by `nltk.word_tokenize` (the extra `eval`), are concatenated and cut after 2 000 and
    5 000 tokens. A question is a hit if one of its answers, apart from "yes" and "no", is a
    case-sensitive substring of these tokens joined by spaces. The corpus has some 20 million
    passages: use `keep_vectors`.

    Options of reading: `split`, `passages` (their file, if it is not `psgs_w100.tsv` in the
    folder), and `cache_dir` (folder for the passages as memory-mapped columns; default: the data
    cache).
    """

    benchmark = "xor-retrieve"
    title = "XORRetrieve"
    question_languages = ("ar", "bn", "fi", "ja", "ko", "ru", "te")
    reference = "https://arxiv.org/abs/2010.11856"
    license = "mit"
    metrics = tuple(_BUDGETS)
    published_metrics = metrics
    primary = "recall_at_5kt"
    layout = "xor_dev_retrieve_eng_span_v1_1.jsonl and psgs_w100.tsv"
    splits = ("dev", "test", "train")
    options = RETRIEVAL_OPTIONS
    languages_in_all = 7
    task = (
        "an answer among the first 2 000 and 5 000 tokens of the best English passages "
        "(XOR-Retrieve)"
    )
    direction = "question in seven languages to English passages"

    def __init__(
        self, pools: Pools[AnsweredQuestions], *, split: str = "dev", **options: Any
    ) -> None:
        super().__init__(pools, split=split, **options)
        self.tokenize, tokens = word_tokenizer()
        self.notes |= {
            "passage": "title and text are encoded, the text is searched for answers",
            "answers": "case-sensitive substrings of the tokens joined by spaces; "
            '"yes" and "no" left out',
            "tokens": tokens,
            "average": "mean over the question languages",
        }

    @classmethod
    def from_files(
        cls,
        folder: Any,
        languages: Sequence[str] | None,
        *,
        split: str = "dev",
        passages: PathLike | None = None,
        cache_dir: PathLike | None = None,
        **options: Any,
    ) -> Self:
        """The evaluator of all questions in one pool; the passages are read when it is scored."""
        file = find_file(folder, f"xor_{split}_retrieve_eng_span*.jsonl")
        if passages is None:
            table = find_file(folder, "psgs_w100.tsv", "*w100*.tsv")
        else:
            table = Path(passages)
        key = cache_key("dpr", [table])
        every = list(_read_questions(file))
        there = dict.fromkeys(question.row.language for question in every)
        chosen = chosen_names(languages, there, str(file))
        questions = [each for code in chosen for each in every if each.row.language == code]

        def load_pool() -> AnsweredQuestions:
            rows = _read_passages(table)
            corpus = cached_table(f"passages-{key}", TEXT_COLUMNS, rows, cache_dir=cache_dir)
            if len(corpus) == 0:
                raise DataError("no passages", file=table)
            asked = texts_table(question.row for question in questions)
            return AnsweredQuestions(corpus, asked, [question.answers for question in questions])

        return cls({"english": load_pool}, split=split, **options)

    def score_pool(self, model: SentenceTransformer, data: AnsweredQuestions) -> Scores:
        """Question language to metric to value."""
        vectors, passages = self.embed_pool(model, data.judged, data.corpus)
        best = _BestTokens(data.corpus, self.tokenize)
        depth = _FIRST_DEPTH
        ranking = ranking_of(vectors, passages, depth).tolist()
        while depth < len(data.corpus) and any(best.are_too_few(ranked) for ranked in ranking):
            depth *= 2
            ranking = ranking_of(vectors, passages, depth).tolist()

        hits: dict[str, list[list[bool]]] = {}
        languages = data.judged["language"][:]
        for ranked, answers, code in zip(ranking, data.answers, languages, strict=True):
            hits_of_question = _hits_within_budgets(best.tokens(ranked), answers)
            hits.setdefault(code, []).append(hits_of_question)
        scores = {}
        for code, of_questions in hits.items():
            means = np.mean(of_questions, axis=0).tolist()
            scores[code] = dict(zip(_BUDGETS, means, strict=True))
        return scores


class _BestTokens:
    """The first tokens of ranked passages; each passage is cut into tokens once."""

    def __init__(self, corpus: Dataset, tokenize: Callable[[str], list[str]]) -> None:
        self._corpus = corpus
        self._tokenize = tokenize
        self._joined: dict[int, str] = {}  # by spaces, which no token contains: less memory

    def tokens(self, ranked: Sequence[int]) -> list[str]:
        """As many tokens as the largest budget has, of the best passages."""
        tokens = []
        for row in ranked:
            tokens += self._tokens_of_passage(row)
            if len(tokens) >= _MOST_TOKENS:
                break
        return tokens[:_MOST_TOKENS]

    def are_too_few(self, ranked: Sequence[int]) -> bool:
        """Whether more passages are to be ranked."""
        return len(self.tokens(ranked)) < _MOST_TOKENS

    def _tokens_of_passage(self, row: int) -> list[str]:
        """The tokens of a passage, which is tokenized once, for all questions that find it."""
        if row not in self._joined:
            self._joined[row] = " ".join(self._tokenize(self._corpus[row]["text"]))
        return self._joined[row].split()


def _hits_within_budgets(tokens: Sequence[str], answers: Sequence[str]) -> list[bool]:
    """Whether an answer is among the first tokens, for each of `_BUDGETS` in their order."""
    hits = []
    for budget in _BUDGETS.values():
        text = " ".join(tokens[:budget])
        hits.append(any(answer in text for answer in answers))
    return hits


def _read_passages(file: Path) -> Iterator[TextRow]:
    """Rows of DPR's `psgs_w100.tsv`: id, text, title, with a header, quoted as csv does."""
    is_first = True
    for number, cells in read_table(file, delimiter="\t", strict=False):
        with name_file_in_errors(file, number):
            name, text, title = cells
        if not is_first or name != "id":
            yield TextRow(name, title, text, "en")
        is_first = False


@dataclass(frozen=True)
class _Question:
    row: TextRow
    answers: list[str]


def _read_questions(file: Path) -> Iterator[_Question]:
    """The questions that count: the released test file has no answers.

    A `DataError` names a line that is none, or has an id again.
    """
    names = set()
    for number, record in read_jsonl(file):
        with name_file_in_errors(file, number):
            if not isinstance(record["answers"], list):
                raise TypeError(f"answers must be a list, found {record['answers']!r:.40}")
            # The exact strings: "Yes" may be a span of a passage.
            given = [answer for answer in record["answers"] if answer.strip()]
            answers = [answer for answer in given if answer not in ("yes", "no")]
            name = str(record["id"])
            if name in names:
                raise ValueError(f"{name!r} stands above, too")
            names.add(name)
            row = text_row(name, "", record["question"], record["lang"])
        if answers:
            yield _Question(row, answers)


def word_tokenizer() -> tuple[Callable[[str], list[str]], str]:
    """`nltk.word_tokenize`, and its name.

    Without NLTK's download `punkt_tab`, sentences are split by `sentencex`, and words by NLTK's
    rules, with a warning: the tokens differ only where the two disagree about the end of a
    sentence.
    """
    nltk = import_optional("nltk", extra="eval", needed_for="counting the tokens of XOR-Retrieve")
    try:
        nltk.word_tokenize("Is it there?")
    except LookupError:
        name = "nltk's word rules on sentences split by sentencex, as punkt_tab is not installed"
        command = "python -m nltk.downloader punkt_tab"
        warnings.warn(f"tokens are counted by {name}: {command}", stacklevel=3)
        return _tokenizer_without_punkt(nltk), name
    return nltk.word_tokenize, "nltk.word_tokenize"


def _tokenizer_without_punkt(nltk: Any) -> Callable[[str], list[str]]:
    """NLTK's words of sentences that another library finds: its own are a download."""
    import sentencex

    words = nltk.tokenize.NLTKWordTokenizer()

    def tokenize(text: str) -> list[str]:
        tokens = []
        for sentence in sentencex.segment("en", text):
            tokens += words.tokenize(sentence)
        return tokens

    return tokenize
