"""LAReQA on XQuAD-R: retrieval of the answers in all languages from one pool in all languages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor
from typing_extensions import Self

from st_xlret.data.beir import BeirFiles, is_beir_folder, text_of_record
from st_xlret.data.reading import BadLines, decoded_lines, read_jsonl
from st_xlret.data.sources import find_file, find_files
from st_xlret.data.texts import join_sentences
from st_xlret.evaluation.base import Scores, chosen_names, name_file_in_errors
from st_xlret.evaluation.pools import (
    RetrievalData,
    RowNumbers,
    TextRow,
    read_beir,
    text_row,
    texts_table,
)
from st_xlret.evaluation.retrieval import (
    RETRIEVAL_OPTIONS,
    RetrievalEvaluator,
    ranking_of,
    score_ranking,
)
from st_xlret.files import PathLike

_MIXED = "test"
_BY_LANGUAGE = "test-same-language"
_QUERIES_AT_ONCE = 256


class LAReQAEvaluator(RetrievalEvaluator):
    """mAP@20 of LAReQA's XQuAD-R: 13 090 questions and 13 014 candidate sentences in 11 languages.

    The benchmark is by Roy et al. (2020) and reported by XTREME-R and MSM
    ([Zhang et al., 2023](https://arxiv.org/abs/2302.01626), Table 12). In the split `"test"`, the
    sentence with the answer is relevant in each language of one pool, which stays whole whatever
    the languages of the questions; `"test-same-language"` is retrieval from the candidates of the
    question's language alone.

    Options of reading: `split`, and `context`: whether each candidate is followed by its paragraph,
    as in the papers.

    Metrics: `map_at_20` (primary), `map` over the whole ranking, `mrr_at_100`, `recall_at_100`; for
    the mixed pool also `recall_at_10` and those of
    [`language_metrics`][st_xlret.evaluation.language_metrics].
    """

    benchmark = "lareqa"
    title = "LAReQA"
    question_languages = ("ar", "de", "el", "en", "es", "hi", "ru", "th", "tr", "vi", "zh")
    reference = "https://arxiv.org/abs/2004.05484"
    license = "cc-by-sa-4.0"
    metrics = ("map_at_20", "mrr_at_100", "recall_at_100")
    published_metrics = ("map_at_20", "map")
    layout = "files such as xquad-r/en.json, or BEIR's corpus.jsonl, queries.jsonl, qrels/test.tsv"
    splits = (_MIXED, _BY_LANGUAGE)
    options = (*RETRIEVAL_OPTIONS, "context")
    languages_in_all = 11
    task = (
        "retrieval of the answer sentence in every language from one pool in all languages "
        "(XQuAD-R)"
    )
    direction = "question to candidate sentences"

    @classmethod
    def from_files(
        cls,
        folder: Any,
        languages: Sequence[str] | None,
        *,
        split: str = _MIXED,
        context: bool = False,
        **options: Any,
    ) -> Self:
        """The evaluator of one pool in all languages, or of one per language."""
        data = read_lareqa(folder, split=split, context=context)
        notes = {"average": "mean of the languages' means"}
        if split == _BY_LANGUAGE:
            notes["task"] = (
                "retrieval of the answer sentence from the question's language alone (XQuAD-R)"
            )
            there = data.judged.unique("language")
            codes = chosen_names(languages, there, f"{folder} ({split})")
            pools = {code: data.select_languages([code], corpus=True) for code in codes}
        else:
            pools = {"all": data.select_languages(languages)}
        # In the words of published_results.json, which are compared.
        notes["candidate"] = "sentence followed by its paragraph" if context else "sentence"
        return cls(pools, split=split, notes=notes, **options)

    def score_pool(self, model: SentenceTransformer, data: RetrievalData) -> Scores:
        """Language of the questions to metric to value."""
        questions, candidates = self.embed_pool(model, data.judged, data.corpus)
        scores = score_ranking(ranking_of(questions, candidates, 100), data, self.metrics)
        if isinstance(candidates, Tensor):
            precisions = average_precisions(questions, candidates, data.relevant)
            asked = np.array(data.judged["language"][:])
            for code, values in scores.items():
                values["map"] = float(precisions[asked == code].mean())
        return scores


def average_precisions(
    queries: Tensor, documents: Tensor, relevant: Sequence[RowNumbers]
) -> NDArray[Any]:
    """Average precision of each query over the whole ranking, of equal scores the lower row first.

    Rows below 0 are relevant documents that are missing.
    """
    precisions = []
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        stop = start + _QUERIES_AT_ONCE
        scores = (queries[start:stop] @ documents.T).cpu().numpy()
        for of_query, gold in zip(scores, relevant[start:stop], strict=True):
            precisions.append(_average_precision(of_query, gold))
    return np.array(precisions)


def _average_precision(scores: NDArray[Any], gold: RowNumbers) -> float:
    """The mean precision at the ranks of the right rows, of all candidates (C,).

    Of equal scores, the lower row comes first. `gold` has -1 for answers that are no candidates.
    """
    ranks = []
    for row in gold[gold >= 0]:
        score = scores[row]
        better = np.count_nonzero(scores > score)
        as_good_before = np.count_nonzero(scores[:row] == score)
        ranks.append(1 + int(better) + int(as_good_before))
    hits = np.arange(1, len(ranks) + 1)
    precisions = hits / np.sort(ranks)
    return float(precisions.sum() / len(gold))


def read_lareqa(folder: PathLike, *, split: str = _MIXED, context: bool = False) -> RetrievalData:
    """Read XQuAD-R as one corpus with its questions.

    The arguments are those of reading of `LAReQAEvaluator`.
    """
    paragraphs = {}
    if is_beir_folder(Path(folder)):
        data = read_beir(folder, split=split)
        if context:
            paragraphs = _read_paragraphs(BeirFiles.of_folder(folder, split).corpus)
    else:
        file = find_files(folder, "??.json", "xquad-r/??.json")[0]
        pool = _read_squad_files(file.parent)
        paragraphs = pool.paragraphs
        data = RetrievalData(
            texts_table(pool.candidates),
            texts_table(pool.questions),
            pool.judgements(split),
            str(file.parent),
        )
    return replace(data, corpus=_without_titles(data.corpus, paragraphs if context else None))


def _without_titles(corpus: Dataset, paragraphs: dict[str, str] | None) -> Dataset:
    """The candidates, each followed by its paragraph if these are given.

    XQuAD-R has titles in the file and none in the published protocol.
    """
    rows = []
    for row in corpus:
        name = row["id"]
        text = row["text"]
        if paragraphs is not None:
            text = f"{text} {paragraphs[name]}"
        rows.append(TextRow(name, "", text, row["language"]))
    return texts_table(rows)


def _read_paragraphs(file: Path) -> dict[str, str]:
    """Candidate id to its paragraph: the sentences that share `metadata.context`, joined."""
    paragraph_of = {}
    sentences: dict[tuple[str, str], list[str]] = {}
    for number, record in read_jsonl(file):
        with name_file_in_errors(file, number):
            about = record["metadata"]
            paragraph = (str(about["context"]), about["language"])
            paragraph_of[text_of_record(record).id] = paragraph
            sentences.setdefault(paragraph, []).append(record["text"].strip())
    text_of = {}
    for name, paragraph in paragraph_of.items():
        _, code = paragraph
        text_of[name] = join_sentences(sentences[paragraph], code)
    return text_of


@dataclass
class _SquadPool:
    """What the SQuAD-like files have.

    Attributes:
        paragraphs: Id of a candidate to its paragraph.
        answers: Number of a question, which its translations share, to the candidates that are
            right, of every language.
        number_of: Id of a question to its number.
    """

    candidates: list[TextRow] = field(default_factory=list)
    questions: list[TextRow] = field(default_factory=list)
    paragraphs: dict[str, str] = field(default_factory=dict)
    answers: dict[str, list[str]] = field(default_factory=dict)
    number_of: dict[str, str] = field(default_factory=dict)

    def add_paragraph(self, place: str, code: str, paragraph: dict[str, Any]) -> None:
        """Add the sentences of a paragraph and its questions, in a language."""
        text = paragraph["context"]
        breaks = paragraph["sentence_breaks"]
        for row, (start, end) in enumerate(breaks):
            name = f"{place}-{row}"
            self.candidates.append(text_row(name, "", text[start:end], code))
            self.paragraphs[name] = text
        for entry in paragraph["qas"]:
            answer = entry["answers"][0]["answer_start"]
            sentence = _sentence_number_at(answer, breaks)
            if sentence is None:
                # An answer between two sentences has no candidate: XTREME-R leaves it out too.
                continue
            number = entry["id"]
            name = f"{code}-{number}"
            self.questions.append(text_row(name, "", entry["question"], code))
            self.number_of[name] = number
            answers_of_number = self.answers.setdefault(number, [])
            answers_of_number.append(f"{place}-{sentence}")

    def judgements(self, split: str) -> dict[str, dict[str, int]]:
        """The candidates that are right, in all languages or in that of the question."""
        qrels = {}
        for name, number in self.number_of.items():
            right = {}
            code = name[:2]
            for candidate in self.answers[number]:
                if split != _BY_LANGUAGE or candidate.startswith(code):
                    right[candidate] = 1
            qrels[name] = right
        return qrels


def _sentence_number_at(position: int, breaks: Sequence[tuple[int, int]]) -> int | None:
    """The number of the sentence that a position is in; None between two sentences."""
    for row, (start, end) in enumerate(breaks):
        if start <= position < end:
            return row
    return None


def _read_squad_files(folder: Path) -> _SquadPool:
    """Read the SQuAD-like files with `sentence_breaks`, one per language."""
    pool = _SquadPool()
    codes = {file.name.partition(".")[0] for file in folder.glob("??.json*")}
    for code in sorted(codes):
        file = find_file(folder, f"{code}.json")
        with name_file_in_errors(file):
            for place, paragraph in _numbered_paragraphs(file):
                pool.add_paragraph(f"{code}-{place}", code, paragraph)
    return pool


def _numbered_paragraphs(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The paragraphs of a file, by the numbers of article and paragraph."""
    lines = [line for _, line in decoded_lines(file, BadLines())]
    content = json.loads("\n".join(lines))
    for number, article in enumerate(content["data"]):
        for position, paragraph in enumerate(article["paragraphs"]):
            yield f"{number:02d}-{position}", paragraph
