"""Evaluators for the benchmarks of the papers, and tables of their results beside published ones."""

from __future__ import annotations

from st_xlret.evaluation.bilingual_retrieval import (
    BilingualRetrievalEvaluator,
    bilingual_accuracies,
    retrieval_accuracy,
    summarise_accuracies,
)
from st_xlret.evaluation.embedding import encode_layer
from st_xlret.evaluation.published import PublishedRow, published_rows
from st_xlret.evaluation.tables import BenchmarkResult, markdown_table, results_table, scores_table
from st_xlret.evaluation.tatoeba import TatoebaEvaluator

__all__ = [
    "BenchmarkResult",
    "BilingualRetrievalEvaluator",
    "PublishedRow",
    "TatoebaEvaluator",
    "bilingual_accuracies",
    "encode_layer",
    "markdown_table",
    "published_rows",
    "results_table",
    "retrieval_accuracy",
    "scores_table",
    "summarise_accuracies",
]
