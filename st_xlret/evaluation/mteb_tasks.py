"""The benchmarks as mteb tasks over local files: results in the format of mteb, without a network.

```python
import mteb
from st_xlret.evaluation.mteb_tasks import LAReQATask

results = mteb.evaluate(model, LAReQATask("lareqa/xquad-r", languages=["fr", "de"]), cache=None)
```
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, cast

import torch
from datasets import Dataset
from mteb.abstasks.abstask import AbsTask
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.tasks.bitext_mining import TatoebaBitextMining
from mteb.types import PromptType
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.utils.data import DataLoader

from st_xlret.encoding import Role, language_routes
from st_xlret.evaluation.benchmarks import benchmark
from st_xlret.evaluation.embedding import TextEmbedder
from st_xlret.evaluation.retrieval import RetrievalEvaluator
from st_xlret.evaluation.tatoeba import tatoeba_language

_CODES = """
ar-ara-Arab bn-ben-Beng de-deu-Latn el-ell-Grek en-eng-Latn es-spa-Latn fa-fas-Arab fi-fin-Latn fr-fra-Latn hi-hin-Deva
id-ind-Latn ja-jpn-Jpan ko-kor-Hang pl-pol-Latn ro-ron-Latn ru-rus-Cyrl sw-swa-Latn ta-tam-Taml te-tel-Telu th-tha-Thai
tr-tur-Latn uk-ukr-Cyrl vi-vie-Latn zh-zho-Hans
"""
_SCRIPTS = {code[:2]: code[3:] for code in _CODES.split()}
"""ISO 639-1 to mteb's language and script."""


class LocalTask(AbsTask):
    """A benchmark of this library as an mteb task, with a subset for each language.

    The texts are embedded by mteb's encoder (a model with a map per language is told their languages), and scored by
    the evaluator of the benchmark. `data` is the folder of its files, `languages` are those of the queries (default:
    all there), `seed` is mteb's, and the other options are those of `from_directory` of the evaluator, such as `split`.
    """

    benchmark: ClassVar[str]

    def __init__(
        self, data: str | os.PathLike[str], languages: Sequence[str] | None = None, *, seed: int = 42, **options: Any
    ) -> None:
        super().__init__(seed=seed)
        self.folder = data
        self.chosen_languages = None if languages is None else list(languages)
        self.options = options
        self.measured: Any = None
        if languages is not None:
            known = {self.language_of(subset): subset for subset in self.hf_subsets}
            if unknown := [language for language in languages if language not in known]:
                raise ValueError(f"{self.metadata.name} has no {unknown}; it has {list(known)}.")
            self.hf_subsets = [known[language] for language in languages]
        if "split" in options:
            self.filter_eval_splits([options["split"]])

    @staticmethod
    def language_of(subset: str) -> str:
        """The language of a subset, such as `"fr"` of `"fra-eng"`."""
        return tatoeba_language(subset.removesuffix("-eng").removesuffix("-en"))

    def load_data(self, num_proc: int | None = None, **options: Any) -> None:
        """Read the folder, once."""
        if self.data_loaded:
            return
        evaluator: Any = benchmark(self.benchmark).from_directory(self.folder, self.chosen_languages, **self.options)
        if isinstance(evaluator, RetrievalEvaluator):
            pools: dict[str, Any] = {name: pool() if callable(pool) else pool for name, pool in evaluator.pools.items()}
            evaluator.pools = pools
            there = {code for pool in pools.values() for code in pool.judged.language_set()}
        else:
            there = set(evaluator.corpora if self.benchmark == "bucc" else evaluator.sentences)
        self.evaluator = evaluator
        self.hf_subsets = [subset for subset in self.hf_subsets if self.language_of(subset) in there]
        self.dataset = {subset: {self.eval_splits[0]: None} for subset in self.hf_subsets}
        self.data_loaded = True

    def _evaluate_subset(
        self,
        model: Any,
        *_: Any,
        hf_split: str,
        hf_subset: str,
        encode_kwargs: Any,
        **__: Any,
    ) -> Any:
        # mteb's extension point, an abstract method of AbsTask.
        # It is called for one subset after the other; all are measured at once, so that every text is embedded once.
        language = self.language_of(hf_subset)
        if self.measured is not model:
            arguments = {"task_metadata": self.metadata, "hf_split": hf_split, **encode_kwargs}
            self.evaluator.embedder = _ByMteb(arguments=arguments)
            name = model.mteb_model_meta.similarity_fn_name
            self.evaluator.similarity = str(getattr(name, "value", name) or "cosine")
            self.found, self.measured = self.evaluator.evaluate(model).scores, model
        if language not in self.found:
            raise ValueError(f"{hf_subset}: the {hf_split} split has nothing to score by; give another split.")
        return dict(self.found[language])

    def _calculate_descriptive_statistics_from_split(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("the data is in local files")


@dataclass(frozen=True)
class _ByMteb(TextEmbedder):
    """Embeds with an encoder of mteb, which is called as mteb calls it."""

    arguments: Mapping[str, Any] = field(default_factory=dict)

    def routes(self, model: Any) -> list[str]:
        """The maps per language of a Sentence Transformer behind mteb's encoder."""
        inner = getattr(model, "model", None)
        return language_routes(inner) if isinstance(inner, SentenceTransformer) else []

    def describe(self, model: Any = None) -> dict[str, str]:
        """Nothing: results of mteb have no protocol."""
        return {}

    def embed_distinct(self, model: Any, texts: list[str], languages: list[str], role: Role | None) -> Tensor:
        """As mteb does, but with the languages where the model has a map for each."""
        if self.routes(model):  # mteb has no way to tell it the languages
            plain = replace(TextEmbedder(), batch_size=self.arguments.get("batch_size", 32))
            return plain.embed(model.model, texts, languages, role=role)
        batches: DataLoader[Any] = DataLoader(
            cast(Any, Dataset.from_dict({"text": texts})), self.arguments.get("batch_size", 32)
        )
        kind = {None: None, "query": PromptType.query, "document": PromptType.document}[role]
        found = model.encode(batches, hf_subset=languages[0], prompt_type=kind, **self.arguments)
        return torch.as_tensor(found).float()


def _metadata(
    name: str,
    description: str,
    languages: Mapping[str, list[str]] | str,
    kind: Literal["Retrieval", "BitextMining"],
    main_score: str,
    reference: str | None,
    **more: Any,
) -> TaskMetadata:
    if isinstance(languages, str):
        languages = {code: [_SCRIPTS[code]] for code in languages.split()}
    return TaskMetadata(
        name=name,
        description=description,
        dataset={"path": "local", "revision": "local"},
        type=kind,
        category="t2t",
        modalities=["text"],
        eval_langs=dict(languages),
        main_score=main_score,
        reference=reference,
        **{"eval_splits": ["test"], "is_public": True, **more},
    )


class TatoebaTask(LocalTask):
    """Tatoeba as an mteb task; see `TatoebaEvaluator`. `f1_to_en` is the `f1` of mteb's own task."""

    benchmark = "tatoeba"
    metadata = _metadata(
        "XLRetTatoeba",
        "Sentences in 112 languages and their English translations, both ways (Tatoeba of LASER).",
        dict(TatoebaBitextMining.metadata.hf_subsets_to_langscripts),
        "BitextMining",
        "accuracy",
        TatoebaBitextMining.metadata.reference,
        license="cc-by-2.0",
    )

    def __init__(self, data: str | os.PathLike[str], languages: Sequence[str] | None = None, **options: Any) -> None:
        super().__init__(data, languages, **{"mteb_f1": True, **options})


class BUCCTask(LocalTask):
    """BUCC as an mteb task; see `BUCCEvaluator`: mining by margin, the threshold from the training split.

    The BUCC task of mteb itself is a different benchmark, retrieval between the gold pairs alone. The gold pairs of the
    test split are not published, and often only `split="training"` can be evaluated.
    """

    benchmark = "bucc"
    metadata = _metadata(
        "XLRetBUCC",
        "Translations mined from two comparable corpora by the ratio margin, with a threshold (BUCC 2018).",
        {f"{code}-en": [_SCRIPTS[code], "eng-Latn"] for code in ("de", "fr", "ru", "zh")},
        "BitextMining",
        "f1",
        "https://comparable.limsi.fr/bucc2018/bucc2018-task.html",
    )


class LAReQATask(LocalTask):
    """LAReQA (XQuAD-R) as an mteb task; see `LAReQAEvaluator`."""

    benchmark = "lareqa"
    metadata = _metadata(
        "XLRetLAReQA",
        "Answer sentences in 11 languages to questions in each of them, from one pool in all languages (XQuAD-R).",
        "ar de el en es hi ru th tr vi zh",
        "Retrieval",
        "map_at_20",
        "https://arxiv.org/abs/2004.05484",
        license="cc-by-sa-4.0",
    )


class MrTyDiTask(LocalTask):
    """Mr.TyDi as an mteb task; see `MrTyDiEvaluator`."""

    benchmark = "mrtydi"
    metadata = _metadata(
        "XLRetMrTyDi",
        "Wikipedia passages that answer a question in its own language, 11 languages (Mr.TyDi v1.1).",
        "ar bn en fi id ja ko ru sw te th",
        "Retrieval",
        "mrr_at_100",
        "https://arxiv.org/abs/2108.08787",
        license="apache-2.0",
    )


class MewsliXTask(LocalTask):
    """Mewsli-X as an mteb task; see `MewsliXEvaluator`."""

    benchmark = "mewsli-x"
    metadata = _metadata(
        "XLRetMewsliX",
        "The entity that a mention in its sentence refers to, among descriptions in 50 languages (Mewsli-X).",
        "ar de en es fa ja pl ro ta tr uk",
        "Retrieval",
        "map_at_20",
        "https://aclanthology.org/2021.emnlp-main.802",
    )


class XORRetrieveTask(LocalTask):
    """XOR-Retrieve as an mteb task; see `XORRetrieveEvaluator`. Its judgements are answers, not passages."""

    benchmark = "xor-retrieve"
    metadata = _metadata(
        "XLRetXORRetrieve",
        "English passages that answer questions in 7 languages, in the first 2 000 and 5 000 tokens (XOR-Retrieve).",
        "ar bn fi ja ko ru te",
        "Retrieval",
        "recall_at_5kt",
        "https://arxiv.org/abs/2010.11856",
        eval_splits=["dev"],
        license="mit",
    )
