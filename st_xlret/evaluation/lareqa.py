"""LAReQA on XQuAD-R: retrieval of the answers in all languages from one pool of sentences in all languages."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.data.beir import is_beir, read_texts
from st_xlret.data.lines import DataError
from st_xlret.data.question_formats import sentence_in_paragraph
from st_xlret.data.text import join_sentences
from st_xlret.evaluation.retrieval import RetrievalEvaluator, mean_average_precision, score_ranking, search
from st_xlret.evaluation.retrieval_data import (
    RetrievalData,
    TextCollection,
    find_file,
    listing,
    read_beir,
    rows_in_languages,
)

_LAYOUTS = (
    "XQuAD-R is read from google-research-datasets/lareqa (files such as xquad-r/en.json) or in BEIR's layout "
    "(corpus.jsonl, queries.jsonl, qrels/test.tsv, qrels/test-same-language.tsv)"
)


class LAReQAEvaluator(RetrievalEvaluator):
    """mAP@20 of LAReQA's XQuAD-R: 13 090 questions and 13 014 candidate sentences in 11 languages.

    The benchmark is by Roy et al. (2020) and reported by XTREME-R and MSM
    ([Zhang et al., 2023](https://arxiv.org/abs/2302.01626), Table 12). It has two splits:

    - `"test"`: All candidates are one pool, and the sentence with the answer is relevant in each of the 11 languages.
      Average precision at 20 has the denominator min(R, 20); it is averaged per question language, then over languages.
    - `"test-same-language"`: Monolingual retrieval from the candidates of the question's language alone.

    The models of XTREME-R read each sentence together with its paragraph; by default a candidate is the sentence alone
    here. The folder is that of `en.json` and so on, its parent, or one in BEIR's layout. The languages chosen are those
    of the questions; the pool stays whole.

    Options of reading: `split`, and `context`: whether each candidate is followed by its paragraph, as in XTREME-R (see
    `sentence_in_paragraph`).

    Metrics: `map_at_20` (primary), `map` over the whole ranking, `mrr_at_100`, `recall_at_100`; for the mixed pool also
    `language_preference`, `recall_at_10`, and the metrics of
    [`language_metrics`][st_xlret.evaluation.language_metrics], such as `recall_at_10_other_languages` and
    `language_preference_rate`.
    """

    benchmark = "lareqa"
    metrics = ("map_at_20", "mrr_at_100", "recall_at_100")
    published_metrics = ("map_at_20", "map")
    layout = "files such as xquad-r/en.json, or BEIR's corpus.jsonl, queries.jsonl, qrels/test.tsv"
    splits = ("test", "test-same-language")
    languages_in_all = 11
    task = "retrieval of the answer sentence in every language from one pool in all languages (XQuAD-R)"
    direction = "question to candidate sentences"

    def __init__(self, pools: Any, *, candidate: str = "sentence", **options: Any) -> None:
        super().__init__(pools, **options)
        self.candidate = candidate
        if self.split == "test-same-language":
            self.task = "retrieval of the answer sentence from the question's language alone (XQuAD-R)"

    @classmethod
    def read(
        cls,
        folder: Path | None,
        languages: list[str] | None,
        *_: Any,
        split: str = "test",
        context: bool = False,
        **__: Any,
    ) -> dict[str, Any]:
        """One pool in all languages, or one per language for the split `"test-same-language"`."""
        assert folder is not None
        data = read_lareqa(folder, split=split, context=context)
        if languages is not None:
            data = data.of_languages(languages)
        pools = {"all": data}
        if split == "test-same-language":
            pools = {code: _of_language(data, code) for code in data.judged.language_set()}
        candidate = "sentence followed by its paragraph" if context else "sentence"
        return {"pools": pools, "split": split, "candidate": candidate}

    def score_pool(self, model: SentenceTransformer, data: RetrievalData) -> dict[str, dict[str, float]]:
        """Language of the questions to metric to value."""
        questions, candidates = self.embed_pool(model, data)
        scores = score_ranking(search(questions, candidates, 100), data, self.metrics)
        if isinstance(candidates, Tensor):
            precisions = mean_average_precision(questions, candidates, data.relevant)
            languages = np.array(data.judged.languages_of())
            for language, found in scores.items():
                found["map"] = float(precisions[languages == language].mean())
        return scores

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        return {**super().protocol(model), "candidate": self.candidate, "average": "mean of the languages' means"}


def read_lareqa(path: str | os.PathLike[str], *, split: str = "test", context: bool = False) -> RetrievalData:
    """Read XQuAD-R as one corpus with its questions; the arguments are those of reading of `LAReQAEvaluator`."""
    folder = Path(path)
    if is_beir(folder):
        data = read_beir(folder, split=split)
        paragraphs = _beir_paragraphs(folder) if context else {}
    else:
        data, paragraphs = _read_release(_release_folder(folder), split)
    # Titles are no part of a candidate in the published protocol.
    corpus = replace(data.corpus, titles=None)
    if context:
        pairs = zip(corpus.texts, corpus.ids, strict=True)
        corpus = replace(corpus, texts=[sentence_in_paragraph(text, paragraphs[name]) for text, name in pairs])
    return replace(data, corpus=corpus)


def _of_language(data: RetrievalData, language: str) -> RetrievalData:
    """The queries and the documents in one language."""
    corpus = data.corpus.take(rows_in_languages(data.corpus, language))
    own, there = data.of_languages([language]), set(corpus.ids)
    qrels = {query: {name: found[name] for name in found if name in there} for query, found in own.qrels.items()}
    return replace(own, corpus=corpus, qrels=qrels)


def _beir_paragraphs(folder: Path) -> dict[str, str]:
    """Candidate id to its paragraph, which is joined from the sentences that share `metadata.context`."""
    file = find_file(folder, "corpus.jsonl")
    paragraph_of: dict[str, tuple[str, str]] = {}
    sentences: dict[tuple[str, str], list[str]] = {}
    for record in read_texts(file):
        paragraph = record.metadata.get("context")
        if not isinstance(paragraph, str | int):
            reason = "context=True needs metadata.context, the id of the sentence's paragraph"
            raise DataError(reason, file=str(file), line=record.line)
        paragraph_of[record.id] = (str(paragraph), record.language or "")
        sentences.setdefault(paragraph_of[record.id], []).append(record.text.strip())
    texts = {key: join_sentences(parts, key[1]) for key, parts in sentences.items()}
    return {name: texts[key] for name, key in paragraph_of.items()}


def _release_folder(folder: Path) -> Path:
    for candidate in (folder, folder / "xquad-r"):
        if any(len(file.stem) == 2 for file in candidate.glob("*.json")):
            return candidate
    raise FileNotFoundError(f"{folder} holds neither layout of XQuAD-R, but {listing(folder)}. {_LAYOUTS}.")


def _read_release(folder: Path, split: str) -> tuple[RetrievalData, dict[str, str]]:
    """Read the SQuAD-like files with `sentence_breaks`, one per language; returns the data and the paragraphs."""
    sentences: dict[str, tuple[str, str]] = {}
    paragraphs: dict[str, str] = {}
    questions: dict[str, tuple[str, str]] = {}
    answers: dict[str, list[str]] = {}
    number_of: dict[str, str] = {}
    for file in sorted(folder.glob("??.json")):
        language = file.stem
        try:
            articles = json.loads(file.read_text(encoding="utf-8"))["data"]
            for place, paragraph in (
                (f"{language}-{article:02d}-{position}", paragraph)
                for article, entry in enumerate(articles)
                for position, paragraph in enumerate(entry["paragraphs"])
            ):
                breaks, text = paragraph["sentence_breaks"], paragraph["context"]
                for row, (start, end) in enumerate(breaks):
                    sentences[f"{place}-{row}"] = (text[start:end], language)
                    paragraphs[f"{place}-{row}"] = text
                for entry in paragraph["qas"]:
                    start_of_answer = entry["answers"][0]["answer_start"]
                    rows = [row for row, (start, end) in enumerate(breaks) if start <= start_of_answer < end]
                    if rows:  # an answer between two sentences has no candidate: XTREME-R leaves it out too
                        name = f"{language}-{entry['id']}"
                        questions[name] = (entry["question"], language)
                        number_of[name] = entry["id"]
                        answers.setdefault(entry["id"], []).append(f"{place}-{rows[0]}")
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ValueError(
                f"{file} is no SQuAD-like file with sentence_breaks ({type(error).__name__}: {error}). {_LAYOUTS}."
            ) from error

    def collection(texts: dict[str, tuple[str, str]]) -> TextCollection:
        values = list(texts.values())
        return TextCollection(
            list(texts), [text for text, _ in values], [code for _, code in values], None, str(folder)
        )

    def is_relevant(question: str, sentence: str) -> bool:
        return split == "test" or questions[question][1] == sentences[sentence][1]

    qrels = {
        name: {sentence: 1 for sentence in answers[number_of[name]] if is_relevant(name, sentence)}
        for name in questions
    }
    return RetrievalData(collection(sentences), collection(questions), qrels), paragraphs
