"""Mr.TyDi, XOR-Retrieve, LAReQA and Mewsli-X as mteb retrieval tasks over local files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from datasets import Dataset
from mteb.abstasks import AbsTaskRetrieval

from st_xlret.evaluation.benchmarks import benchmark
from st_xlret.evaluation.mteb_tasks.languages import COLUMN, by_language
from st_xlret.evaluation.mteb_tasks.metadata import LANGUAGE_SCRIPTS, local_metadata
from st_xlret.evaluation.mteb_tasks.pool_search import PoolSearch
from st_xlret.evaluation.mteb_tasks.registry import data_folder
from st_xlret.evaluation.readers.xor_retrieve import XorRetrieveData
from st_xlret.evaluation.retrieval.data import RetrievalData, TextCollection
from st_xlret.evaluation.retrieval.metrics import map_at_k
from st_xlret.evaluation.xor_retrieve import XORRetrieveEvaluator


def _scripts(*languages: str) -> dict[str, list[str]]:
    return {language: [LANGUAGE_SCRIPTS[language]] for language in languages}


class LocalRetrievalTask(AbsTaskRetrieval):
    """A retrieval benchmark of this library as an mteb task, with a subset for each language of the queries.

    Subsets that share a pool share its embeddings. A model with a map per language is told the languages of the texts.
    In addition to mteb's scores there is `map_at_20_capped` with the denominator min(R, 20), which is `map_at_20` of
    this library (that of mteb divides by R).

    Args:
        data: The folder of the files of the benchmark. Default: its subfolder of the folder in the environment variable
            `XLRET_BENCHMARKS`.
        languages: Languages of the queries. Default: all there.
        seed: Seed of mteb.
        **options: Options of `from_directory` of the evaluator, such as `split`.
    """

    benchmark: ClassVar[str]
    k_values: Sequence[int] = (1, 3, 5, 10, 20, 100)

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        languages: Sequence[str] | None = None,
        *,
        seed: int = 42,
        **options: Any,
    ) -> None:
        super().__init__(seed=seed)
        self.folder = data
        self.options = options
        self.chosen_languages = list(languages) if languages is not None else None
        if self.chosen_languages is not None:
            unknown = [language for language in self.chosen_languages if language not in self.hf_subsets]
            if unknown:
                raise ValueError(f"{self.metadata.name} has no {unknown}; it has {self.hf_subsets}.")
            self.hf_subsets = self.chosen_languages
        if "split" in options:
            self._eval_splits = [options["split"]]
        self.search: PoolSearch | None = None
        self.searched_by: Any = None

    def load_data(self, num_proc: int | None = None, **options: Any) -> None:
        """Read the folder, once."""
        if self.data_loaded:
            return
        evaluator: Any = benchmark(self.benchmark).load(
            data_folder(self.folder, self.benchmark), self.chosen_languages, self.options
        )
        split = self.eval_splits[0]
        self.dataset = {}
        for pool in evaluator.pools.values():
            data = pool() if callable(pool) else pool
            corpus = _corpus(data.corpus)
            for language in data.judged.language_set():
                self.dataset[language] = {split: self.split_data(data, corpus, language)}
        self.hf_subsets = [subset for subset in self.hf_subsets if subset in self.dataset]
        self.data_loaded = True

    def split_data(self, data: Any, corpus: Dataset, language: str) -> Any:
        """The data of one language of the queries, as mteb searches it."""
        of_language: RetrievalData = data.of_languages([language])
        queries = of_language.judged
        return {
            "corpus": corpus,
            "queries": Dataset.from_dict(
                {"id": list(queries.ids), "text": queries.full_texts(slice(None)), COLUMN: [language] * len(queries)}
            ),
            "relevant_docs": {name: dict(of_language.qrels[name]) for name in queries.ids},
            "top_ranked": None,
        }

    def evaluate(self, model: Any, *arguments: Any, **options: Any) -> Mapping[str, Any]:
        """Evaluate one subset, as mteb does, but encode each pool once."""
        if self.search is None or self.searched_by is not model:
            self.search, self.searched_by = PoolSearch(by_language(model)), model
        return super().evaluate(self.search, *arguments, **options)

    def task_specific_scores(
        self,
        scores: dict[str, dict[str, float]],
        qrels: Mapping[str, Mapping[str, int]],
        results: dict[str, dict[str, float]],
        hf_split: str,
        hf_subset: str,
    ) -> dict[str, float]:
        """mAP@20 with the denominator min(R, 20)."""
        hits, counts = [], []
        for query, found in results.items():
            gold = {document for document, judgement in qrels[query].items() if judgement > 0}
            ranked = sorted(found.items(), key=lambda item: (item[1], item[0]), reverse=True)[:20]
            hits.append([document in gold for document, _ in ranked] + [False] * (20 - len(ranked)))
            counts.append(len(gold))
        return {"map_at_20_capped": float(map_at_k(hits, counts, 20).mean())}


def _corpus(corpus: TextCollection) -> Dataset:
    columns = {"id": list(corpus.ids), "text": list(corpus.texts)}
    columns["title"] = list(corpus.titles) if corpus.titles is not None else [""] * len(corpus)
    codes = corpus.languages
    columns[COLUMN] = [codes] * len(corpus) if isinstance(codes, str) else list(codes)
    return Dataset.from_dict(columns)


class LAReQATask(LocalRetrievalTask):
    """LAReQA (XQuAD-R) as an mteb task; see `LAReQAEvaluator`."""

    benchmark = "lareqa"
    metadata = local_metadata(
        "XLRetLAReQA",
        "Answer sentences in 11 languages to questions in each of them, from one pool in all languages (XQuAD-R).",
        _scripts("ar", "de", "el", "en", "es", "hi", "ru", "th", "tr", "vi", "zh"),
        type="Retrieval",
        main_score="map_at_20",
        reference="https://arxiv.org/abs/2004.05484",
        license="cc-by-sa-4.0",
    )


class MrTyDiTask(LocalRetrievalTask):
    """Mr.TyDi as an mteb task; see `MrTyDiEvaluator`."""

    benchmark = "mrtydi"
    metadata = local_metadata(
        "XLRetMrTyDi",
        "Wikipedia passages that answer a question in its own language, 11 languages (Mr.TyDi v1.1).",
        _scripts("ar", "bn", "en", "fi", "id", "ja", "ko", "ru", "sw", "te", "th"),
        type="Retrieval",
        main_score="mrr_at_100",
        reference="https://arxiv.org/abs/2108.08787",
        license="apache-2.0",
    )


class MewsliXTask(LocalRetrievalTask):
    """Mewsli-X as an mteb task; see `MewsliXEvaluator`."""

    benchmark = "mewsli-x"
    metadata = local_metadata(
        "XLRetMewsliX",
        "The entity that a mention in its sentence refers to, among descriptions in 50 languages (Mewsli-X).",
        _scripts("ar", "de", "en", "es", "fa", "ja", "pl", "ro", "ta", "tr", "uk"),
        type="Retrieval",
        main_score="map_at_20",
        reference="https://aclanthology.org/2021.emnlp-main.802",
    )


class XORRetrieveTask(LocalRetrievalTask):
    """XOR-Retrieve as an mteb task; see `XORRetrieveEvaluator`. Its judgements are answers, not passages."""

    benchmark = "xor-retrieve"
    k_values = (256,)  # passages per question, which fill more than 5 000 tokens
    metadata = local_metadata(
        "XLRetXORRetrieve",
        "English passages that answer questions in 7 languages, in the first 2 000 and 5 000 tokens (XOR-Retrieve).",
        _scripts("ar", "bn", "fi", "ja", "ko", "ru", "te"),
        type="Retrieval",
        main_score="recall_at_5kt",
        eval_splits=["dev"],
        reference="https://arxiv.org/abs/2010.11856",
        license="mit",
    )

    def split_data(self, data: Any, corpus: Dataset, language: str) -> Any:
        """As the other tasks, with answers instead of relevant documents."""
        judged = data.judged
        rows = [row for row in range(len(judged)) if judged.language_of(row) == language]
        xor = XorRetrieveData(data.corpus, judged.take(rows), [data.judged_answers[row] for row in rows])
        columns = {"id": list(xor.queries.ids), "text": list(xor.queries.texts), COLUMN: [language] * len(rows)}
        queries = Dataset.from_dict(columns)
        return {"corpus": corpus, "queries": queries, "relevant_docs": {}, "top_ranked": None, "xor": xor}

    def _evaluate_subset(
        self,
        model: Any,
        data_split: Any,
        *,
        encode_kwargs: Any,
        hf_split: str,
        hf_subset: str,
        prediction_folder: Any = None,
        num_proc: int | None = None,
        timer: Any,
        **options: Any,
    ) -> Any:
        search = {"task_metadata": self.metadata, "hf_split": hf_split, "hf_subset": hf_subset}
        search |= {"encode_kwargs": encode_kwargs, "num_proc": num_proc}
        model.index(data_split["corpus"], **search)
        found = model.search(data_split["queries"], top_k=max(self.k_values), timer=timer, **search)
        if prediction_folder:
            self._save_task_predictions(found, model, prediction_folder, hf_subset=hf_subset, hf_split=hf_split)
        xor: XorRetrieveData = data_split["xor"]
        retrieved = {name for ranked in found.values() for name in ranked}
        row_of = {name: row for row, name in enumerate(xor.corpus.ids) if name in retrieved}
        rows = np.array(
            [
                [row_of[name] for name, _ in sorted(found[query].items(), key=lambda item: -item[1])]
                for query in xor.queries.ids
            ]
        )
        return XORRetrieveEvaluator(xor).score_rows(xor, rows)[hf_subset]
