"""LAReQA on XQuAD-R: retrieval of the answers in all languages from one pool of sentences in all languages."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor
from typing_extensions import Self

from st_xlret.data.reading import find_file, join_sentences, read_jsonl
from st_xlret.evaluation.base import name_file_in_errors
from st_xlret.evaluation.retrieval import (
    RetrievalData,
    RetrievalEvaluator,
    ranking_of,
    read_beir,
    score_ranking,
    texts_table,
)
from st_xlret.files import PathLike


class LAReQAEvaluator(RetrievalEvaluator):
    """mAP@20 of LAReQA's XQuAD-R: 13 090 questions and 13 014 candidate sentences in 11 languages.

    The benchmark is by Roy et al. (2020) and reported by XTREME-R and MSM
    ([Zhang et al., 2023](https://arxiv.org/abs/2302.01626), Table 12). In the split `"test"`, the sentence with the
    answer is relevant in each language of one pool, which stays whole whatever the languages of the questions;
    `"test-same-language"` is retrieval from the candidates of the question's language alone.

    Options of reading: `split`, and `context`: whether each candidate is followed by its paragraph, as in the papers.

    Metrics: `map_at_20` (primary), `map` over the whole ranking, `mrr_at_100`, `recall_at_100`; for the mixed pool also
    `recall_at_10` and those of [`language_metrics`][st_xlret.evaluation.language_metrics].
    """

    benchmark = "lareqa"
    metrics = ("map_at_20", "mrr_at_100", "recall_at_100")
    published_metrics = ("map_at_20", "map")
    layout = "files such as xquad-r/en.json, or BEIR's corpus.jsonl, queries.jsonl, qrels/test.tsv"
    splits = ("test", "test-same-language")
    languages_in_all = 11
    task = "retrieval of the answer sentence in every language from one pool in all languages (XQuAD-R)"
    direction = "question to candidate sentences"

    @classmethod
    def from_files(
        cls, folder: Any, languages: Sequence[str] | None, *, split: str = "test", **options: Any
    ) -> Self:
        """The evaluator of one pool in all languages, or of one per language for the split `"test-same-language"`."""
        context = options.pop("context", False)
        data = read_lareqa(folder, split=split, context=context)
        pools, notes = (
            {"all": data.select_languages(languages)},
            {"average": "mean of the languages' means"},
        )
        if split == "test-same-language":
            notes["task"] = (
                "retrieval of the answer sentence from the question's language alone (XQuAD-R)"
            )
            codes = languages or data.judged.unique("language")
            pools = {code: data.select_languages([code], corpus=True) for code in codes}
        notes["candidate"] = "sentence followed by its paragraph" if context else "sentence"
        return cls(pools, split=split, notes=notes, **options)

    def score_pool(
        self, model: SentenceTransformer, data: RetrievalData
    ) -> dict[str, dict[str, float]]:
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
    queries: Tensor, documents: Tensor, relevant: Sequence[NDArray[np.int64]]
) -> NDArray[Any]:
    """Average precision of each query over the whole ranking, of equal scores the lower row first."""
    precisions = []
    for start in range(0, len(queries), 256):
        scores = (queries[start : start + 256] @ documents.T).cpu().numpy()
        for row, gold in zip(scores, relevant[start : start + 256], strict=True):
            places = gold[gold >= 0]
            before = [
                np.count_nonzero(row > row[at]) + np.count_nonzero(row[:at] == row[at])
                for at in places
            ]
            precisions.append(
                float((np.arange(1, len(places) + 1) / (np.sort(before) + 1)).sum() / len(gold))
            )
    return np.array(precisions)


def read_lareqa(folder: PathLike, *, split: str = "test", context: bool = False) -> RetrievalData:
    """Read XQuAD-R as one corpus with its questions; the arguments are those of reading of `LAReQAEvaluator`."""
    if any(Path(folder).glob("corpus.jsonl*")):
        data, paragraphs = (
            read_beir(folder, split=split),
            _read_paragraphs(folder) if context else {},
        )
    else:
        data, paragraphs = _read_squad_files(
            find_file(folder, "??.json", "xquad-r/??.json").parent, split
        )
    ids, texts = data.corpus["id"][:], data.corpus["text"][:]
    if context:
        texts = [f"{text} {paragraphs[name]}" for name, text in zip(ids, texts, strict=True)]
    # XQuAD-R has titles in the file and none in the published protocol.
    return replace(
        data,
        corpus=texts_table(
            zip(ids, [""] * len(ids), texts, data.corpus["language"][:], strict=True)
        ),
    )


def _read_paragraphs(folder: PathLike) -> dict[str, str]:
    """Candidate id to its paragraph, which is joined from the sentences that share `metadata.context`."""
    paragraph_of: dict[str, tuple[str, str]] = {}
    sentences: dict[tuple[str, str], list[str]] = {}
    file = find_file(folder, "corpus.jsonl")
    for number, record in read_jsonl(file):
        with name_file_in_errors(file, number):
            paragraph = str(record["metadata"]["context"]), record["metadata"]["language"]
            paragraph_of[record["_id"]] = paragraph
            sentences.setdefault(paragraph, []).append(record["text"].strip())
    texts = {
        paragraph: join_sentences(parts, paragraph[1]) for paragraph, parts in sentences.items()
    }
    return {name: texts[paragraph] for name, paragraph in paragraph_of.items()}


def _read_squad_files(folder: Path, split: str) -> tuple[RetrievalData, dict[str, str]]:
    """Read the SQuAD-like files with `sentence_breaks`, one per language; returns the data and the paragraphs."""
    candidates, questions = list[tuple[str, str, str, str]](), list[tuple[str, str, str, str]]()
    paragraphs, number_of, answers = dict[str, str](), dict[str, str](), dict[str, list[str]]()
    for file in sorted(folder.glob("??.json")):
        code = file.stem
        with name_file_in_errors(file):
            articles = enumerate(json.loads(file.read_text(encoding="utf-8"))["data"])
            numbered = (
                (number, *each)
                for number, article in articles
                for each in enumerate(article["paragraphs"])
            )
            for number, position, paragraph in numbered:
                place = f"{code}-{number:02d}-{position}"
                text, breaks = paragraph["context"], paragraph["sentence_breaks"]
                for row, (start, end) in enumerate(breaks):
                    candidates.append((f"{place}-{row}", "", text[start:end], code))
                    paragraphs[f"{place}-{row}"] = text
                for entry in paragraph["qas"]:
                    answer = entry["answers"][0]["answer_start"]
                    rows = [row for row, (start, end) in enumerate(breaks) if start <= answer < end]
                    if rows:  # an answer between two sentences has no candidate: XTREME-R leaves it out too
                        name = f"{code}-{entry['id']}"
                        questions.append((name, "", entry["question"], code))
                        number_of[name] = entry["id"]
                        answers.setdefault(entry["id"], []).append(f"{place}-{rows[0]}")
    qrels = {
        name: {
            candidate: 1
            for candidate in answers[number]
            if split == "test" or candidate[:2] == name[:2]
        }
        for name, number in number_of.items()
    }
    return RetrievalData(
        texts_table(candidates), texts_table(questions), qrels, str(folder)
    ), paragraphs
