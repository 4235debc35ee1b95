"""Tatoeba: nearest-neighbour accuracy between 112 languages and English."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.evaluation.bilingual_retrieval import retrieval_accuracy
from st_xlret.evaluation.encoding.embedding import Calibration, Pooling, TextEmbedder
from st_xlret.evaluation.readers.tatoeba import load_tatoeba_directory, load_tatoeba_hub
from st_xlret.evaluation.reporting.benchmark_evaluator import BenchmarkEvaluator
from st_xlret.evaluation.reporting.tables import BenchmarkResult, macro_average
from st_xlret.evaluation.weighted_f1 import weighted_f1

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class TatoebaEvaluator(BenchmarkEvaluator):
    """1-NN accuracy by cosine between each language and English, both directions and their mean.

    The test set is that of Artetxe and Schwenk (2019): up to 1 000 sentences of each of 112 languages with
    their English translations; each sentence is looked up among the translations of its own language pair.
    CCP (`Wu et al., 2022 <https://arxiv.org/abs/2206.03281>`_, Table 1) reports the mean of both directions,
    which is ``accuracy`` here; XTREME reports English to X alone, ``accuracy_from_en``; mteb reports a
    weighted F1 of X to English, ``f1_to_en`` with ``mteb_f1=True``. For large models CCP averages the hidden
    states of layer 14: ``layer=14``.

    Metrics: ``average_accuracy`` (primary), ``average_accuracy_to_en``, ``average_accuracy_from_en`` and the
        same
    three per language, ``fr_accuracy`` and so on.

    Args:
        sentences: Language to (sentences, their English translations), row-aligned.
        name: Prefix of the metrics.
        layer: See `encode_layer`.
        pooling: See `encode_layer`.
        language_as_task: Passes the language (``"en"`` for English) as ``task=`` to ``model.encode``, for
            exported calibrated models.
        calibration: Applied to each language's embeddings, such as a ``CalibrationLayer``.
        batch_size: Texts per forward pass.
        max_sentences: Only the first so many pairs of each language: a quicker and easier task, so that the
            scores are comparable with each other only.
        show_progress_bar: Whether to show a bar over the languages.
        write_csv: Whether to append the accuracies to a CSV file where an output path is given.
        language_metrics: Whether to return each language's metrics; off, a training log stays readable, and
            they are in the CSV file.
        mteb_f1: Whether to add ``f1_to_en``, see `weighted_f1`.

    Raises:
        ValueError: If there are no languages, if a language has no sentences or another number of
            translations than sentences, or if the calibration does not know a language.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["taxi", "hotel", "radio"])], device="cpu")
        >>> evaluator = TatoebaEvaluator({"fr": (["un taxi", "la radio"], ["taxi", "hotel radio"])})
        >>> evaluator(model)["tatoeba_fr_accuracy"]
        1.0
    """

    card_metric = "accuracy"

    def __init__(
        self,
        sentences: Mapping[str, tuple[Sequence[str], Sequence[str]]],
        *,
        name: str = "tatoeba",
        layer: int | None = None,
        pooling: Pooling | None = None,
        language_as_task: bool = False,
        calibration: Calibration | None = None,
        batch_size: int = 128,
        max_sentences: int | None = None,
        show_progress_bar: bool = False,
        write_csv: bool = True,
        language_metrics: bool = True,
        mteb_f1: bool = False,
    ) -> None:
        super().__init__(
            name=name,
            csv_file=f"tatoeba_evaluation{'_' + name if name else ''}_results.csv",
            primary_metric="average_accuracy",
            write_csv=write_csv,
            language_metrics=language_metrics,
        )
        if not sentences:
            raise ValueError("there are no languages to evaluate.")
        if max_sentences is not None and max_sentences < 1:
            raise ValueError(f"max_sentences must be at least 1, got {max_sentences}.")
        self.sentences: dict[str, tuple[list[str], list[str]]] = {}
        for language, (texts, english) in sentences.items():
            if len(texts) != len(english) or not len(texts):
                raise ValueError(
                    f"language {language!r} has {len(texts)} sentences and {len(english)} English "
                    "translations: give it the same, positive number of both."
                )
            self.sentences[language] = (list(texts)[:max_sentences], list(english)[:max_sentences])
        self.embedder = TextEmbedder(layer, pooling, language_as_task, calibration, batch_size)
        self.embedder.require_languages(["en", *self.sentences])
        self.max_sentences = max_sentences
        self.show_progress_bar = show_progress_bar
        self.mteb_f1 = mteb_f1

    @classmethod
    def from_directory(
        cls, path: str | os.PathLike[str], languages: Sequence[str] | None = None, **options: Any
    ) -> TatoebaEvaluator:
        """Reads the LASER layout: ``tatoeba.fra-eng.fra`` and ``tatoeba.fra-eng.eng`` in one directory.

        Args:
            path: The directory, such as LASER's ``data/tatoeba/v1``.
            languages: ISO 639-1 codes (``fr``) or the files' own ISO 639-3 codes (``fra``). Default: all
                there.
            **options: The evaluator's own.

        Raises:
            FileNotFoundError: If the directory or one side of a pair is missing.
            ValueError: If a language is not there, or two files differ in their number of lines.
        """
        return cls(load_tatoeba_directory(path, languages), **options)

    @classmethod
    def from_hub(cls, languages: Sequence[str] | None = None, **options: Any) -> TatoebaEvaluator:
        """Loads ``mteb/tatoeba-bitext-mining`` from the Hugging Face Hub, or from its cache when offline.

        Args:
            languages: ISO 639-1 or 639-3 codes. Default: all 112.
            **options: The evaluator's own.

        Raises:
            ValueError: If a language is not there.
        """
        return cls(load_tatoeba_hub(languages), **options)

    @classmethod
    def from_sentences(
        cls,
        sentences: Mapping[str, Sequence[str]],
        english: Sequence[str] | Mapping[str, Sequence[str]],
        **options: Any,
    ) -> TatoebaEvaluator:
        """Evaluates on own translations: one English list for all languages, or one per language.

        Example:
            >>> evaluator = TatoebaEvaluator.from_sentences({"fr": ["oui"], "de": ["ja"]}, ["yes"])
            >>> sorted(evaluator.sentences)
            ['de', 'fr']
        """
        if isinstance(english, Mapping):
            missing = sorted(set(sentences) - set(english))
            if missing:
                raise ValueError(f"there are no English sentences for {missing}; there are for {sorted(english)}.")
            return cls({code: (texts, english[code]) for code, texts in sentences.items()}, **options)
        return cls({code: (texts, english) for code, texts in sentences.items()}, **options)

    def evaluate(self, model: SentenceTransformer) -> BenchmarkResult:
        """Accuracies per language, their averages, and the protocol."""
        english = self._embed_english(model)
        scores: dict[str, dict[str, float]] = {}
        languages = tqdm(self.sentences.items(), desc="Tatoeba", disable=not self.show_progress_bar)
        for language, (texts, english_texts) in languages:
            embeddings = self.embedder.embed(model, texts, language)
            english_embeddings = english(english_texts)
            to_english, from_english = retrieval_accuracy(embeddings, english_embeddings)
            scores[language] = {
                "accuracy": (to_english + from_english) / 2,
                "accuracy_to_en": to_english,
                "accuracy_from_en": from_english,
            }
            if self.mteb_f1:
                scores[language]["f1_to_en"] = weighted_f1(embeddings, english_embeddings)
        return BenchmarkResult("tatoeba", scores, macro_average(scores), self._protocol())

    def _embed_english(self, model: SentenceTransformer) -> Any:
        """Language pairs share English sentences: each is embedded once, and every pair picks its own."""
        distinct = list(dict.fromkeys(text for _, english in self.sentences.values() for text in english))
        embeddings = self.embedder.embed(model, distinct, "en")
        row_of = {text: row for row, text in enumerate(distinct)}

        def rows(texts: Sequence[str]) -> Tensor:
            return embeddings[[row_of[text] for text in texts]]

        return rows

    def _protocol(self) -> dict[str, str]:
        counts = {len(texts) for texts, _ in self.sentences.values()}
        return {
            "task": "nearest neighbour by cosine within the language pair, equal cosines to the lower row",
            "direction": "to_en: X to English; from_en: English to X; accuracy: mean of both",
            **self.embedder.describe(),
            "languages": str(len(self.sentences)),
            "sentences": "all" if self.max_sentences is None else f"the first {self.max_sentences} of each language",
            "sentences_per_language": f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(max(counts)),
        }
