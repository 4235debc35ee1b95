"""XOR-Retrieve: questions with the strings that answer them, which are looked for in the best passages."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from typing_extensions import Self

from st_xlret.data.reading import cache_key, cached_table, find_file, read_jsonl, read_table
from st_xlret.evaluation.base import chosen_names, name_file_in_errors
from st_xlret.evaluation.retrieval import TEXT_COLUMNS, RetrievalEvaluator, ranking_of, texts_table
from st_xlret.optional import import_optional

BUDGETS = {"recall_at_2kt": 2_000, "recall_at_5kt": 5_000}


@dataclass(frozen=True)
class AnsweredQuestions:
    """Tables of passages and of questions, which all count, as `RetrievalData` has them; the answers to each."""

    corpus: Dataset
    judged: Dataset
    answers: Sequence[Sequence[str]]


class XORRetrieveEvaluator(RetrievalEvaluator):
    """R@2kt and R@5kt of XOR-Retrieve, per question language and averaged over the languages.

    The benchmark is by Asai et al. (2021), [arXiv:2010.11856](https://arxiv.org/abs/2010.11856), and reported by CCP
    (Table 4) and MSM (Tables 3 and 10). The texts of the best passages, tokenised by `nltk.word_tokenize` (the extra
    `eval`), are concatenated and cut after 2 000 and 5 000 tokens. A question is a hit if one of its answers, apart
    from "yes" and "no", is a case-sensitive substring of these tokens joined by spaces. The corpus has some 20 million
    passages: use `keep_vectors`.

    Options of reading: `split`, `passages` (their file, if it is not `psgs_w100.tsv` in the folder), and `cache_dir`
    (folder for the passages as memory-mapped columns; default: the data cache).
    """

    benchmark = "xor-retrieve"
    metrics = published_metrics = tuple(BUDGETS)
    primary = "recall_at_5kt"
    layout = "xor_dev_retrieve_eng_span_v1_1.jsonl and psgs_w100.tsv"
    splits = ("dev", "test", "train")
    languages_in_all = 7
    task = "an answer among the first 2 000 and 5 000 tokens of the best English passages (XOR-Retrieve)"
    direction = "question in seven languages to English passages"

    def __init__(self, pools: Any, *, split: str = "dev", **options: Any) -> None:
        super().__init__(pools, split=split, **options)
        self.tokenize, tokens = word_tokenizer()
        self.notes |= {
            "passage": "title and text are encoded, the text is searched for answers",
            "answers": 'case-sensitive substrings of the tokens joined by spaces; "yes" and "no" left out',
            "tokens": tokens,
            "average": "mean over the question languages",
        }

    @classmethod
    def from_files(
        cls, folder: Any, languages: Sequence[str] | None, *, split: str = "dev", **options: Any
    ) -> Self:
        """The evaluator of all questions in one pool; the passages are read when it is scored."""
        cache_dir, passages = options.pop("cache_dir", None), options.pop("passages", None)
        file = find_file(folder, f"xor_{split}_retrieve_eng_span*.jsonl")
        table = (
            find_file(folder, "psgs_w100.tsv", "*w100*.tsv") if passages is None else Path(passages)
        )
        key, questions = cache_key("dpr", [table]), list(_read_questions(file))
        chosen = chosen_names(
            languages, list(dict.fromkeys(code for *_, code in questions)), str(file)
        )
        questions = [question for question in questions if question[-1] in chosen]

        def load_pool() -> AnsweredQuestions:
            corpus = cached_table(
                f"passages-{key}", TEXT_COLUMNS, _read_passages(table), cache_dir=cache_dir
            )
            asked = texts_table((name, "", text, code) for name, text, _, code in questions)
            return AnsweredQuestions(corpus, asked, [answers for _, _, answers, _ in questions])

        return cls({"english": load_pool}, split=split, **options)

    def score_pool(
        self, model: SentenceTransformer, data: AnsweredQuestions
    ) -> dict[str, dict[str, float]]:
        """Question language to metric to value."""
        most = max(BUDGETS.values())

        @cache
        def passage_tokens(row: int) -> str:  # no token contains white space
            return " ".join(self.tokenize(data.corpus[row]["text"]))

        def first_tokens(ranked: Sequence[int]) -> list[str]:
            tokens: list[str] = []
            for row in ranked:
                tokens += passage_tokens(row).split()
                if len(tokens) >= most:
                    break
            return tokens[:most]

        questions, passages = self.embed_pool(model, data.judged, data.corpus)
        depth, ranking = 128, ranking_of(questions, passages, 128).tolist()
        while depth < len(data.corpus) and any(
            len(first_tokens(ranked)) < most for ranked in ranking
        ):
            depth *= 2  # the passages are short: retrieve more of them
            ranking = ranking_of(questions, passages, depth).tolist()
        hits: dict[str, list[list[bool]]] = {}
        for ranked, answers, code in zip(
            ranking, data.answers, data.judged["language"][:], strict=True
        ):
            tokens = first_tokens(ranked)
            texts = [" ".join(tokens[:budget]) for budget in BUDGETS.values()]
            hits.setdefault(code, []).append(
                [any(answer in text for answer in answers) for text in texts]
            )
        means = {code: np.mean(of_language, axis=0).tolist() for code, of_language in hits.items()}
        return {
            code: dict(zip(BUDGETS, of_language, strict=True))
            for code, of_language in means.items()
        }


def _read_passages(file: Path) -> Iterator[tuple[str, str, str, str]]:
    """Rows of DPR's `psgs_w100.tsv`: id, text, title, with a header, quoted as the csv module does."""
    for number, cells in read_table(file, delimiter="\t", strict=False):
        with name_file_in_errors(file, number):
            name, text, title = cells
        if name != "id":
            yield name, title, text, "en"


def _read_questions(file: Path) -> Iterator[tuple[str, str, list[str], str]]:
    """Id, text, answers and language of the questions that count; the released test file has no answers."""
    for number, record in read_jsonl(file):
        with name_file_in_errors(file, number):
            # The exact strings: "Yes" may be a span of a passage.
            answers = [
                answer
                for answer in record["answers"]
                if answer not in ("yes", "no") and answer.strip()
            ]
            row = str(record["id"]), record["question"], answers, record["lang"]
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
        warnings.warn(
            f"tokens are counted by {name}: python -m nltk.downloader punkt_tab", stacklevel=3
        )
        words = nltk.tokenize.NLTKWordTokenizer()
        return lambda text: [
            token for one in sentencex.segment("en", text) for token in words.tokenize(one)
        ], name
    return nltk.word_tokenize, "nltk.word_tokenize"
