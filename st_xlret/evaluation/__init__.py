"""Evaluators for the benchmarks of the papers, and tables of their results beside published ones."""

from st_xlret.evaluation.base import (
    BenchmarkEvaluator,
    BenchmarkResult,
    chosen_names,
    macro_average,
)
from st_xlret.evaluation.bucc import BUCCEvaluator
from st_xlret.evaluation.lareqa import LAReQAEvaluator, read_lareqa
from st_xlret.evaluation.mewsli_x import MewsliXEvaluator
from st_xlret.evaluation.mr_tydi import MrTyDiEvaluator
from st_xlret.evaluation.retrieval import (
    RetrievalData,
    RetrievalEvaluator,
    language_metrics,
    map_at_k,
    mrr_at_k,
    ndcg_at_k,
    read_beir,
    recall_at_k,
    score_ranking,
    success_at_k,
    texts_table,
)
from st_xlret.evaluation.tables import PublishedRow, published_rows, result_report, results_table
from st_xlret.evaluation.tatoeba import (
    BilingualRetrievalEvaluator,
    TatoebaEvaluator,
    TatoebaPairsEvaluator,
    retrieval_accuracy,
    weighted_f1,
)
from st_xlret.evaluation.xor_retrieve import AnsweredQuestions, XORRetrieveEvaluator
from st_xlret.tables import markdown_table

_EVALUATORS: tuple[type[BenchmarkEvaluator], ...] = (
    TatoebaEvaluator,
    TatoebaPairsEvaluator,
    BUCCEvaluator,
    MrTyDiEvaluator,
    XORRetrieveEvaluator,
    LAReQAEvaluator,
    MewsliXEvaluator,
    RetrievalEvaluator,
)
BENCHMARKS = {evaluator.benchmark: evaluator for evaluator in _EVALUATORS}


def evaluator_class(name: str) -> type[BenchmarkEvaluator]:
    """The evaluator of a benchmark; of an unknown name a ValueError lists all."""
    return BENCHMARKS[chosen_names([name], BENCHMARKS, "--benchmark")[0]]


__all__ = [
    "BENCHMARKS",
    "AnsweredQuestions",
    "BUCCEvaluator",
    "BenchmarkEvaluator",
    "BenchmarkResult",
    "BilingualRetrievalEvaluator",
    "LAReQAEvaluator",
    "MewsliXEvaluator",
    "MrTyDiEvaluator",
    "PublishedRow",
    "RetrievalData",
    "RetrievalEvaluator",
    "TatoebaEvaluator",
    "TatoebaPairsEvaluator",
    "XORRetrieveEvaluator",
    "evaluator_class",
    "language_metrics",
    "macro_average",
    "map_at_k",
    "markdown_table",
    "mrr_at_k",
    "ndcg_at_k",
    "published_rows",
    "read_beir",
    "read_lareqa",
    "recall_at_k",
    "success_at_k",
    "result_report",
    "results_table",
    "retrieval_accuracy",
    "score_ranking",
    "texts_table",
    "weighted_f1",
]
