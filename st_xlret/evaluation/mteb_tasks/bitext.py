"""Tatoeba and BUCC as mteb bitext mining tasks over local files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from datasets import Dataset
from mteb.abstasks import AbsTaskBitextMining
from mteb.tasks.bitext_mining import TatoebaBitextMining
from torch import Tensor
from torch.utils.data import DataLoader

from st_xlret.evaluation.bucc import BUCCEvaluator
from st_xlret.evaluation.encoding.embedding import TextEmbedder
from st_xlret.evaluation.mteb_tasks.languages import by_language
from st_xlret.evaluation.mteb_tasks.metadata import LANGUAGE_SCRIPTS, local_metadata
from st_xlret.evaluation.mteb_tasks.registry import data_folder
from st_xlret.evaluation.tatoeba import load_tatoeba_directory, tatoeba_language

_BOTH_WAYS = [("sentence1", "sentence2"), ("sentence2", "sentence1")]


class TatoebaTask(AbsTaskBitextMining):
    """Tatoeba as an mteb task; see `TatoebaEvaluator`.

    Each subset, `fra-eng`, has mteb's own scores of X to English (`f1`, `accuracy`, `precision`,
    `recall`), and `accuracy_from_en` and `accuracy_both_ways`, their mean, which CCP reports.

    Args:
        data: The folder with files such as `tatoeba.fra-eng.fra`. Default: that of `XLRET_BENCHMARKS`.
        languages: ISO 639-1 codes or the files' own. Default: all there.
        seed: mteb's.
    """

    metadata = local_metadata(
        "XLRetTatoeba",
        "Sentences in 112 languages and their English translations, both ways (Tatoeba of LASER).",
        dict(TatoebaBitextMining.metadata.hf_subsets_to_langscripts),
        type="BitextMining",
        main_score="accuracy_both_ways",
        reference=TatoebaBitextMining.metadata.reference,
        license="cc-by-2.0",
    )

    def __init__(
        self, data: str | os.PathLike[str] | None = None, languages: Sequence[str] | None = None, *, seed: int = 42
    ) -> None:
        super().__init__(seed=seed)
        self.folder = data
        self.chosen_languages = list(languages) if languages is not None else None
        if self.chosen_languages is not None:
            names = {tatoeba_language(code) if len(code) == 3 else code for code in self.chosen_languages}
            self.hf_subsets = [subset for subset in self.hf_subsets if tatoeba_language(subset[:3]) in names]

    def load_data(self, num_proc: int | None = None, **options: Any) -> None:
        """Reads the folder, once."""
        if self.data_loaded:
            return
        pairs = load_tatoeba_directory(data_folder(self.folder, "tatoeba"), self.chosen_languages)
        subsets = {tatoeba_language(subset.removesuffix("-eng")): subset for subset in self.hf_subsets}
        self.dataset = {
            subsets[language]: {"test": Dataset.from_dict({"sentence1": texts, "sentence2": english})}
            for language, (texts, english) in pairs.items()
            if language in subsets  # mteb may have been asked for some languages only
        }
        self.hf_subsets = [subset for subset in self.hf_subsets if subset in self.dataset]
        self.data_loaded = True

    def _get_pairs(self, parallel: bool) -> list[tuple[str, str]]:
        return _BOTH_WAYS

    def _add_main_score(self, scores: Any) -> None:
        if self.metadata.main_score in scores:  # the scores of one direction lack it
            super()._add_main_score(scores)

    def _evaluate_subset(self, model: Any, data_split: Any, **options: Any) -> Any:
        # With `parallel`, mteb scores all of _get_pairs, here the two directions, and encodes each side once.
        encoder = by_language(model, [tatoeba_language(options["hf_subset"].partition("-")[0]), "en"])
        found = super()._evaluate_subset(encoder, data_split, **{**options, "parallel": True})
        to_english, from_english = (cast(Any, found)[f"{one}-{other}"] for one, other in _BOTH_WAYS)
        scores = {name: float(value) for name, value in to_english.items()}
        scores["accuracy_from_en"] = from_english["accuracy"]
        scores["accuracy_both_ways"] = (to_english["accuracy"] + from_english["accuracy"]) / 2
        self._add_main_score(scores)
        return scores


class BUCCTask(AbsTaskBitextMining):
    """BUCC as an mteb task; see `BUCCEvaluator`: mining by margin, the threshold from the training split.

    The BUCC task of mteb itself is a different benchmark, retrieval between the gold pairs alone, whose scores are not
    comparable.

    Args:
        data: The folder with files such as `de-en.training.de`. Default: that of `XLRET_BENCHMARKS`.
        languages: Such as `["de"]`. Default: all four.
        split: The evaluated split. The gold pairs of the test split are not published, so that often only
            `"training"` can be evaluated.
        seed: mteb's.
    """

    metadata = local_metadata(
        "XLRetBUCC",
        "Translations mined from two comparable corpora by the ratio margin, with a threshold (BUCC 2018).",
        {f"{language}-en": [LANGUAGE_SCRIPTS[language], "eng-Latn"] for language in ("de", "fr", "ru", "zh")},
        type="BitextMining",
        main_score="f1",
        reference="https://comparable.limsi.fr/bucc2018/bucc2018-task.html",
    )

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        languages: Sequence[str] | None = None,
        *,
        split: str = "test",
        seed: int = 42,
    ) -> None:
        super().__init__(seed=seed)
        self.folder = data
        self.chosen_languages = list(languages) if languages is not None else None
        self._eval_splits = [split]
        if self.chosen_languages is not None:
            self.hf_subsets = [f"{language}-en" for language in self.chosen_languages]

    def load_data(self, num_proc: int | None = None, **options: Any) -> None:
        """Reads the folder, once."""
        if self.data_loaded:
            return
        split = self.eval_splits[0]
        whole = BUCCEvaluator.from_directory(
            data_folder(self.folder, "bucc"), self.chosen_languages, split=cast(Any, split)
        )
        self.dataset = {
            f"{language}-en": {
                split: BUCCEvaluator({language: corpus}, {language: whole.training[language]}, split=split)
            }
            for language, corpus in whole.corpora.items()
        }
        self.hf_subsets = [subset for subset in self.hf_subsets if subset in self.dataset]
        self.data_loaded = True

    def _evaluate_subset(
        self,
        model: Any,
        data_split: Any,
        *,
        hf_split: str,
        hf_subset: str,
        encode_kwargs: Any,
        prediction_folder: Any = None,
        parallel: bool = False,
        num_proc: int | None = None,
        timer: Any,
        **options: Any,
    ) -> Any:
        evaluator: BUCCEvaluator = data_split
        where = {"task_metadata": self.metadata, "hf_split": hf_split, "hf_subset": hf_subset}
        evaluator.embedder = _ByMteb(arguments={**where, **encode_kwargs})
        scores = evaluator.evaluate(model).scores
        if prediction_folder:
            pairs = [pair._asdict() for pairs in evaluator.mined_pairs.values() for pair in pairs]
            self._save_task_predictions(pairs, model, prediction_folder, hf_subset=hf_subset, hf_split=hf_split)
        if not scores:
            raise ValueError(f"{hf_subset}: the {hf_split} split has no gold pairs; give split='training'.")
        [of_language] = scores.values()
        self._add_main_score(of_language)
        return of_language


@dataclass(frozen=True)
class _ByMteb(TextEmbedder):
    """Embeds with an encoder of mteb, which is called as mteb calls it."""

    arguments: Mapping[str, Any] = field(default_factory=dict)

    def routes(self, model: Any) -> list[str]:
        """None, as the encoder of mteb is called, and not the model."""
        return []

    def embed(self, model: Any, texts: Sequence[str], language: str, *, side: Any = None) -> Tensor:
        """Float32 (n, d)."""
        rows = cast(Any, Dataset.from_dict({"text": list(texts)}))
        batches: DataLoader[Any] = DataLoader(rows, self.arguments.get("batch_size", 32))
        return torch.as_tensor(by_language(model, [language]).encode(batches, **self.arguments)).float()
