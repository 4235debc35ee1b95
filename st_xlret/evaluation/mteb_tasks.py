"""The benchmarks as mteb tasks over local files: results in the format of mteb, without a network."""

import os
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

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
from st_xlret.evaluation.retrieval import RetrievalEvaluator
from st_xlret.evaluation.tatoeba import tatoeba_language

_CODES = """
ar-ara-Arab bn-ben-Beng de-deu-Latn el-ell-Grek en-eng-Latn es-spa-Latn fa-fas-Arab fi-fin-Latn fr-fra-Latn hi-hin-Deva
id-ind-Latn ja-jpn-Jpan ko-kor-Hang pl-pol-Latn ro-ron-Latn ru-rus-Cyrl sw-swa-Latn ta-tam-Taml te-tel-Telu th-tha-Thai
tr-tur-Latn uk-ukr-Cyrl vi-vie-Latn zh-zho-Hans
"""
_SCRIPTS = {code[:2]: code[3:] for code in _CODES.split()}
"""ISO 639-1 to mteb's language and script."""

# Benchmark -> name of the task (after XLRet), languages, reference, licence.
_TASKS: dict[str, tuple[str, str, str, Any]] = {
    "tatoeba": ("Tatoeba", "", TatoebaBitextMining.metadata.reference or "", "cc-by-2.0"),
    "bucc": (
        "BUCC",
        "de fr ru zh",
        "https://comparable.limsi.fr/bucc2018/bucc2018-task.html",
        None,
    ),
    "lareqa": (
        "LAReQA",
        "ar de el en es hi ru th tr vi zh",
        "https://arxiv.org/abs/2004.05484",
        "cc-by-sa-4.0",
    ),
    "mrtydi": (
        "MrTyDi",
        "ar bn en fi id ja ko ru sw te th",
        "https://arxiv.org/abs/2108.08787",
        "apache-2.0",
    ),
    "mewsli-x": (
        "MewsliX",
        "ar de en es fa ja pl ro ta tr uk",
        "https://aclanthology.org/2021.emnlp-main.802",
        None,
    ),
    "xor-retrieve": (
        "XORRetrieve",
        "ar bn fi ja ko ru te",
        "https://arxiv.org/abs/2010.11856",
        "mit",
    ),
}


def mteb_task(
    benchmark: str,
    data: str | os.PathLike[str],
    languages: Sequence[str] | None = None,
    **options: Any,
) -> AbsTask:
    """A benchmark of this library over its folder as an mteb task, with a subset for each language (of the queries).

    The texts are embedded by mteb's encoder (a model with a map per language is told their languages), and scored by
    the evaluator of the benchmark, whose `from_directory` takes the options, such as `split`:
    `mteb.evaluate(model, mteb_task("lareqa", "lareqa/xquad-r"), cache=None)`. BUCC is mining by margin, unlike mteb's
    task of that name; Tatoeba's `f1_to_en` is the `f1` of mteb's own task. A `ValueError` of an unknown benchmark or
    language lists the known ones.
    """
    name, codes, reference, license_name = _TASKS[chosen_names([benchmark], _TASKS, "mteb_task")[0]]
    kind, is_mining = (
        BENCHMARKS[benchmark],
        not issubclass(BENCHMARKS[benchmark], RetrievalEvaluator),
    )
    subsets: Any = {code: [_SCRIPTS[code]] for code in codes.split()}
    if benchmark == "bucc":
        subsets = {f"{code}-en": [_SCRIPTS[code], "eng-Latn"] for code in codes.split()}
    elif benchmark == "tatoeba":
        subsets, options = (
            dict(TatoebaBitextMining.metadata.hf_subsets_to_langscripts),
            {"mteb_f1": True, **options},
        )
    metadata = TaskMetadata(
        name=f"XLRet{name}",
        description=(kind.__doc__ or "").partition("\n")[0],
        dataset={"path": "local", "revision": "local"},
        type="BitextMining" if is_mining else "Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=[options.get("split", kind.splits[0])],
        eval_langs=subsets,
        main_score=kind.primary or cast(Any, kind).metrics[0],
        reference=reference,
        license=license_name,
        is_public=True,
    )
    known = {_subset_language(subset): subset for subset in subsets}
    task = type(metadata.name, (_LocalTask,), {"metadata": metadata})()
    task.hf_subsets = [known[code] for code in chosen_names(languages, known, metadata.name)]
    task.load_evaluator = partial(kind.from_directory, data, languages, **options)
    return task


def _subset_language(subset: str) -> str:
    """The language of a subset, such as `"fr"` of `"fra-eng"`."""
    return tatoeba_language(subset.removesuffix("-eng").removesuffix("-en"))


class _LocalTask(AbsTask):
    """A task whose texts are in local files; `load_evaluator` reads them."""

    load_evaluator: Any = None
    scored_model: Any = None
    _calculate_descriptive_statistics_from_split: Any = None  # the data is in local files

    def load_data(self, num_proc: int | None = None, **options: Any) -> None:
        """Read the folder, once."""
        if self.data_loaded:
            return
        self.evaluator = evaluator = self.load_evaluator()
        if isinstance(evaluator, RetrievalEvaluator):
            pools: dict[str, Any] = {
                name: pool() if callable(pool) else pool for name, pool in evaluator.pools.items()
            }
            there = {code for pool in pools.values() for code in pool.judged.unique("language")}
            evaluator.pools = pools
        else:
            there = set(getattr(evaluator, "corpora", None) or evaluator.sentences)
        self.hf_subsets = [
            subset for subset in self.hf_subsets if _subset_language(subset) in there
        ]
        self.dataset = {subset: {self.eval_splits[0]: None} for subset in self.hf_subsets}
        self.data_loaded = True

    def _evaluate_subset(
        self, model: Any, *_: Any, hf_split: str, hf_subset: str, encode_kwargs: Any, **__: Any
    ) -> Any:
        # mteb's extension point, an abstract method of AbsTask.
        # It is called for one subset after the other; all are measured at once, so that every text is embedded once.
        options = {"task_metadata": self.metadata, "hf_split": hf_split, **encode_kwargs}

        def embed_texts(
            _: Any, texts: Sequence[str], languages: Sequence[str], role: Role | None = None
        ) -> Tensor:
            """As mteb does, but by language where the model has a map for each: mteb has no way to tell it them."""
            inner = getattr(model, "model", None)
            if isinstance(inner, SentenceTransformer) and task_languages(inner):
                return BenchmarkEvaluator.embed_texts(self.evaluator, inner, texts, languages, role)
            row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
            distinct: Any = Dataset.from_dict({"text": list(row_of)})
            batches: Any = DataLoader(distinct, options.get("batch_size", 32))
            prompt_type = {None: None, "query": PromptType.query, "document": PromptType.document}[
                role
            ]
            vectors = model.encode(
                batches, hf_subset=languages[0], prompt_type=prompt_type, **options
            )
            return torch.as_tensor(vectors).float()[[row_of[text] for text in texts]]

        if self.scored_model is not model:
            self.evaluator.embed_texts = embed_texts
            name = model.mteb_model_meta.similarity_fn_name
            self.evaluator.similarity = str(getattr(name, "value", name) or "cosine")
            self.scores, self.scored_model = self.evaluator.score(model), model
        return dict(self.scores[_subset_language(hf_subset)])
