"""LAReQA on XQuAD-R: retrieval of the answers in all languages from one pool of sentences in all languages."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.data.beir import read_texts
from st_xlret.data.lines import DataError
from st_xlret.evaluation.retrieval import (
    RetrievalData,
    RetrievalEvaluator,
    TextCollection,
    find_file,
    mean_average_precision,
    read_beir,
    rows_in_languages,
    score_ranking,
    search,
)

LareqaSplit = Literal["test", "test-same-language"]

_SPLITS = ("test", "test-same-language")
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
    here.

    Metrics: `map_at_20` (primary), `map` over the whole ranking, `mrr_at_100`, `recall_at_100`; for the mixed pool also
    `language_preference`, `recall_at_10`, `recall_at_10_same_language` and `recall_at_10_other_languages`.
    """

    benchmark = "lareqa"
    metrics = ("map_at_20", "mrr_at_100", "recall_at_100")
    task = "retrieval of the answer sentence in every language from one pool in all languages (XQuAD-R)"
    direction = "question to candidate sentences"

    def __init__(self, pools: Any, *, candidate: str = "sentence", **options: Any) -> None:
        super().__init__(pools, **options)
        self.candidate = candidate
        if self.split == "test-same-language":
            self.task = "retrieval of the answer sentence from the question's language alone (XQuAD-R)"

    @classmethod
    def from_directory(
        cls,
        path: str | os.PathLike[str],
        languages: Sequence[str] | None = None,
        *,
        split: LareqaSplit = "test",
        context: bool = False,
        **options: Any,
    ) -> LAReQAEvaluator:
        """Read the official release, or BEIR's layout.

        Args:
            path: The folder of `en.json` and so on, its parent, or a folder in BEIR's layout.
            languages: Languages of the questions; the pool stays whole. Default: all.
            split: See the class.
            context: Whether each candidate is followed by its paragraph, as in XTREME-R.
            **options: The evaluator's own.
        """
        data = read_lareqa(path, split=split, context=context)
        if languages is not None:
            data = data.of_languages(languages)
        pools = {"all": data} if split == "test" else same_language_pools(data)
        candidate = "sentence followed by its paragraph" if context else "sentence"
        return cls(pools, candidate=candidate, split=split, **options)

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


def read_lareqa(path: str | os.PathLike[str], *, split: LareqaSplit = "test", context: bool = False) -> RetrievalData:
    """Read XQuAD-R as one corpus with its questions, see `LAReQAEvaluator.from_directory`."""
    if split not in _SPLITS:
        raise ValueError(f"split must be one of {_SPLITS}, got {split!r}.")
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no directory. {_LAYOUTS}.")
    if any((folder / name).is_file() for name in ("corpus.jsonl", "corpus.jsonl.gz")):
        data = read_beir(folder, split=split)
        paragraphs = _beir_paragraphs(folder) if context else None
    else:
        data, paragraphs = _read_release(_release_folder(folder), split)
    # Titles are no part of a candidate in the published protocol.
    corpus = replace(data.corpus, titles=None)
    if context and paragraphs is not None:
        texts = [f"{text} {paragraphs[name]}" for name, text in zip(corpus.ids, corpus.texts, strict=True)]
        corpus = replace(corpus, texts=texts)
    return replace(data, corpus=corpus)


def same_language_pools(data: RetrievalData) -> dict[str, RetrievalData]:
    """One pool per query language: its queries and the documents in that language."""
    pools = {}
    for language in data.judged.language_set():
        of_language = data.of_languages([language])
        pools[language] = replace(of_language, corpus=data.corpus.take(rows_in_languages(data.corpus, language)))
    return pools


def _beir_paragraphs(folder: Path) -> dict[str, str]:
    """Candidate id to its paragraph, which is joined from the sentences that share `metadata.context`."""
    file = find_file(folder, "corpus.jsonl")
    paragraph_of: dict[str, str] = {}
    sentences: dict[str, list[str]] = {}
    for record in read_texts(file):
        paragraph = record.metadata.get("context")
        if not isinstance(paragraph, str | int):
            reason = "context=True needs metadata.context, the id of the sentence's paragraph"
            raise DataError(reason, file=str(file), line=record.line)
        paragraph_of[record.id] = str(paragraph)
        sentences.setdefault(str(paragraph), []).append(record.text.strip())
    texts = {paragraph: " ".join(parts) for paragraph, parts in sentences.items()}
    return {name: texts[paragraph] for name, paragraph in paragraph_of.items()}


def _release_folder(folder: Path) -> Path:
    for candidate in (folder, folder / "xquad-r"):
        if any(len(file.stem) == 2 for file in candidate.glob("*.json")):
            return candidate
    there = sorted(entry.name for entry in folder.iterdir())[:12]
    raise FileNotFoundError(f"{folder} holds neither layout of XQuAD-R, but {there}. {_LAYOUTS}.")


def _read_release(folder: Path, split: LareqaSplit) -> tuple[RetrievalData, dict[str, str]]:
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
