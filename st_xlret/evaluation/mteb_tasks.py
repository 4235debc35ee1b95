"""The benchmarks as mteb tasks over local files: results in the format of mteb, no network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import langcodes
import torch
from datasets import Dataset
from mteb.abstasks.abstask import AbsTask
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.tasks.bitext_mining import TatoebaBitextMining
from mteb.types import PromptType
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.utils.data import DataLoader

from st_xlret.columns import Role
from st_xlret.encoding import task_languages
from st_xlret.evaluation import BENCHMARKS
from st_xlret.evaluation.base import BenchmarkEvaluator, chosen_names
from st_xlret.evaluation.bucc import BUCCEvaluator
from st_xlret.evaluation.retrieval import PoolEvaluator
from st_xlret.evaluation.tatoeba import TatoebaEvaluator
from st_xlret.evaluation.tatoeba_files import tatoeba_language
from st_xlret.files import PathLike

_SCRIPTS = {"Kore": "Hang"}  # mteb writes Korean without its Chinese characters
_PROMPT_TYPES = {None: None, "query": PromptType.query, "document": PromptType.document}


def mteb_task(
    benchmark: str,
    data: PathLike,
    languages: Sequence[str] | None = None,
    **options: Any,
) -> AbsTask:
    """A benchmark of this library over its folder as an mteb task.

    It has a subset for each language (of the queries). The texts are embedded by mteb's encoder (a
    model with a map per language is told their languages), and scored by the evaluator of the
    benchmark, whose `from_directory` takes the options, such as `split`:
    `mteb.evaluate(model, mteb_task("lareqa", "lareqa/xquad-r"), cache=None)`. BUCC is mining by
    margin, unlike mteb's task of that name; Tatoeba's `f1_to_en` is the `f1` of mteb's own task. A
    `ValueError` of an unknown benchmark or language lists the known ones.
    """
    tasks = [name for name, kind in BENCHMARKS.items() if kind.title]
    [name] = chosen_names([benchmark], tasks, "mteb_task")
    kind = BENCHMARKS[name]
    if kind is TatoebaEvaluator:
        options = {"mteb_f1": True, **options}
    metadata = _task_metadata(kind, options.get("split", kind.splits[0]))
    known = {_subset_language(subset): subset for subset in metadata.eval_langs}
    task = type(metadata.name, (_LocalTask,), {"metadata": metadata})()
    task.hf_subsets = [known[code] for code in chosen_names(languages, known, metadata.name)]
    task.load_evaluator = partial(kind.from_directory, data, languages, **options)
    return task


def _task_metadata(kind: type[BenchmarkEvaluator], split: str) -> TaskMetadata:
    """What mteb knows of a task: its description is the first line of the evaluator's docstring."""
    is_retrieval = issubclass(kind, PoolEvaluator)
    first_line = (kind.__doc__ or "").partition("\n")[0]
    return TaskMetadata(
        name=f"XLRet{kind.title}",
        description=first_line,
        dataset={"path": "local", "revision": "local"},
        type="Retrieval" if is_retrieval else "BitextMining",
        category="t2t",
        modalities=["text"],
        eval_splits=[split],
        eval_langs=_languages_of_subsets(kind),
        main_score=kind.primary,
        reference=kind.reference,
        license=kind.license,
        is_public=True,
    )


def _languages_of_subsets(kind: type[BenchmarkEvaluator]) -> dict[str, list[str]]:
    """Name of a subset, of which `_subset_language` finds ours, to its languages for mteb."""
    if kind is TatoebaEvaluator:
        return dict(TatoebaBitextMining.metadata.hf_subsets_to_langscripts)
    subsets = {}
    for code in kind.question_languages:
        if kind is BUCCEvaluator:
            subsets[f"{code}-en"] = [_mteb_language(code), _mteb_language("en")]
        else:
            subsets[code] = [_mteb_language(code)]
    return subsets


def _mteb_language(code: str) -> str:
    """`deu-Latn` of `de`."""
    language = langcodes.get(code).maximize()
    script = language.script or ""
    return f"{language.to_alpha3()}-{_SCRIPTS.get(script, script)}"


def _subset_language(subset: str) -> str:
    """The language of a subset, such as `"fr"` of `"fra-eng"`."""
    return tatoeba_language(subset.removesuffix("-eng").removesuffix("-en"))


class _LocalTask(AbsTask):
    """A task whose texts are in local files; `load_evaluator` reads them."""

    load_evaluator: Any = None
    scores: Any = None
    _calculate_descriptive_statistics_from_split: Any = None  # the data is in local files

    def load_data(self, num_proc: int | None = None, **options: Any) -> None:
        """Read the folder, once."""
        if self.data_loaded:
            return
        self.evaluator = self.load_evaluator()
        there = self.evaluator.evaluated_languages()
        self.hf_subsets = [name for name in self.hf_subsets if _subset_language(name) in there]
        [split] = self.eval_splits
        self.dataset = {name: {split: None} for name in self.hf_subsets}
        self.data_loaded = True

    def evaluate(self, *arguments: Any, **options: Any) -> Any:
        """Measure a model, anew at each call: it may have been trained since."""
        self.scores = None
        return super().evaluate(*arguments, **options)

    # mteb's extension point, an abstract method of AbsTask. It is called for one subset after the
    # other; all are measured at once, so that every text is embedded once.
    def _evaluate_subset(
        self, model: Any, *_: Any, hf_split: str, hf_subset: str, encode_kwargs: Any, **__: Any
    ) -> Any:
        """The metrics of a language, as mteb asks for them one by one.

        The first call measures all, and the others read what it found.
        """
        if self.scores is None:
            options = {"task_metadata": self.metadata, "hf_split": hf_split, **encode_kwargs}
            self.evaluator.embed_texts = _MtebEncoder(self.evaluator, model, options)
            name = model.mteb_model_meta.similarity_fn_name
            self.evaluator.similarity = str(getattr(name, "value", name) or "cosine")
            self.scores = self.evaluator.score(model)
        return dict(self.scores[_subset_language(hf_subset)])


class _MtebEncoder:
    """Embeds as mteb does, in the place of `embed_texts` of an evaluator.

    A model with a map for each language is called by ours: mteb has no way to tell it languages.
    """

    def __init__(self, evaluator: BenchmarkEvaluator, model: Any, options: dict[str, Any]) -> None:
        self._evaluator = evaluator
        self._model = model
        self._options = options

    def __call__(
        self, _: Any, texts: Sequence[str], languages: Sequence[str], role: Role | None = None
    ) -> Tensor:
        inner = getattr(self._model, "model", None)
        if isinstance(inner, SentenceTransformer) and task_languages(inner):
            return BenchmarkEvaluator.embed_texts(self._evaluator, inner, texts, languages, role)
        distinct = list(dict.fromkeys(texts))
        row_of = {text: row for row, text in enumerate(distinct)}
        rows: Any = Dataset.from_dict({"text": distinct})
        vectors = self._model.encode(
            DataLoader(rows, self._options.get("batch_size", 32)),
            hf_subset=languages[0],
            prompt_type=_PROMPT_TYPES[role],
            **self._options,
        )
        return torch.as_tensor(vectors).float()[[row_of[text] for text in texts]]
