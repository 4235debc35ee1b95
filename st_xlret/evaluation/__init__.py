"""Evaluators for the benchmarks of the papers, and tables of results beside published ones.

Names load on first use: to list the benchmarks needs no PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from st_xlret import evaluators
from st_xlret.optional import lazy_names

if TYPE_CHECKING:
    from st_xlret.evaluation.base import BenchmarkEvaluator as BenchmarkEvaluator
    from st_xlret.evaluation.base import BenchmarkResult as BenchmarkResult
    from st_xlret.evaluation.base import macro_average as macro_average
    from st_xlret.evaluation.by_language import language_metrics as language_metrics
    from st_xlret.evaluation.lareqa import read_lareqa as read_lareqa
    from st_xlret.evaluation.metrics import map_at_k as map_at_k
    from st_xlret.evaluation.metrics import mrr_at_k as mrr_at_k
    from st_xlret.evaluation.metrics import ndcg_at_k as ndcg_at_k
    from st_xlret.evaluation.metrics import recall_at_k as recall_at_k
    from st_xlret.evaluation.metrics import success_at_k as success_at_k
    from st_xlret.evaluation.pools import RetrievalData as RetrievalData
    from st_xlret.evaluation.pools import read_beir as read_beir
    from st_xlret.evaluation.pools import texts_table as texts_table
    from st_xlret.evaluation.published import PublishedRow as PublishedRow
    from st_xlret.evaluation.published import published_rows as published_rows
    from st_xlret.evaluation.published import results_table as results_table
    from st_xlret.evaluation.results import result_text as result_text
    from st_xlret.evaluation.retrieval import score_ranking as score_ranking
    from st_xlret.evaluation.tatoeba import (
        BilingualRetrievalEvaluator as BilingualRetrievalEvaluator,
    )
    from st_xlret.evaluation.tatoeba import retrieval_accuracy as retrieval_accuracy
    from st_xlret.evaluation.tatoeba import weighted_f1 as weighted_f1
    from st_xlret.evaluation.xor_retrieve import AnsweredQuestions as AnsweredQuestions
    from st_xlret.evaluators import *  # noqa: F403
    from st_xlret.tables import markdown_table as markdown_table

MODULES = {
    **evaluators.MODULES,
    "AnsweredQuestions": "st_xlret.evaluation.xor_retrieve",
    "BenchmarkEvaluator": "st_xlret.evaluation.base",
    "BenchmarkResult": "st_xlret.evaluation.base",
    "BilingualRetrievalEvaluator": "st_xlret.evaluation.tatoeba",
    "PublishedRow": "st_xlret.evaluation.published",
    "RetrievalData": "st_xlret.evaluation.pools",
    "language_metrics": "st_xlret.evaluation.by_language",
    "macro_average": "st_xlret.evaluation.base",
    "map_at_k": "st_xlret.evaluation.metrics",
    "markdown_table": "st_xlret.tables",
    "mrr_at_k": "st_xlret.evaluation.metrics",
    "ndcg_at_k": "st_xlret.evaluation.metrics",
    "published_rows": "st_xlret.evaluation.published",
    "read_beir": "st_xlret.evaluation.pools",
    "read_lareqa": "st_xlret.evaluation.lareqa",
    "recall_at_k": "st_xlret.evaluation.metrics",
    "result_text": "st_xlret.evaluation.results",
    "results_table": "st_xlret.evaluation.published",
    "retrieval_accuracy": "st_xlret.evaluation.tatoeba",
    "score_ranking": "st_xlret.evaluation.retrieval",
    "success_at_k": "st_xlret.evaluation.metrics",
    "texts_table": "st_xlret.evaluation.pools",
    "weighted_f1": "st_xlret.evaluation.tatoeba",
}
"""The module of each public name, which is imported when the name is first used."""


class _Benchmarks(Mapping[str, "type[BenchmarkEvaluator]"]):
    """Name of a benchmark to its evaluator, which is loaded when it is asked for."""

    def __getitem__(self, name: str) -> type[BenchmarkEvaluator]:
        module, evaluator = evaluators.EVALUATORS[name]
        return getattr(import_module(module), evaluator)

    def __iter__(self) -> Iterator[str]:
        return iter(evaluators.EVALUATORS)

    def __len__(self) -> int:
        return len(evaluators.EVALUATORS)


BENCHMARKS = _Benchmarks()
"""Name of each benchmark, as in `--benchmark`, to its evaluator."""


def evaluator_class(name: str) -> type[BenchmarkEvaluator]:
    """The evaluator of a benchmark; of an unknown name a ValueError lists all."""
    from st_xlret.evaluation.base import chosen_names

    [known] = chosen_names([name], list(BENCHMARKS), "--benchmark")
    return BENCHMARKS[known]


__all__ = ["BENCHMARKS", "evaluator_class", *MODULES]  # noqa: PLE0604

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, MODULES)
