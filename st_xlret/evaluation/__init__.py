"""Evaluators for the benchmarks of the papers, and tables of their results beside published ones."""

from __future__ import annotations

from st_xlret.evaluation.bilingual_retrieval import (
    BilingualRetrievalEvaluator,
    bilingual_accuracies,
    retrieval_accuracy,
    summarise_accuracies,
    weighted_f1,
)
from st_xlret.evaluation.bucc import BUCCEvaluator
from st_xlret.evaluation.cache import CachedEmbeddings, EmbeddingCache
from st_xlret.evaluation.encoding.embedding import encode_layer
from st_xlret.evaluation.lareqa import LAReQAEvaluator
from st_xlret.evaluation.mewsli_x import MewsliXEvaluator
from st_xlret.evaluation.mr_tydi import MrTyDiEvaluator
from st_xlret.evaluation.nq import NQEvaluator
from st_xlret.evaluation.reporting.published import PublishedRow, published_rows
from st_xlret.evaluation.reporting.tables import BenchmarkResult, markdown_table, results_table, scores_table
from st_xlret.evaluation.retrieval.data import RetrievalData, TextCollection, read_beir
from st_xlret.evaluation.retrieval.evaluator import RetrievalEvaluator
from st_xlret.evaluation.retrieval.metrics import (
    Ranking,
    language_preference,
    map_at_k,
    mrr_at_k,
    recall_at_k,
    score_ranking,
)
from st_xlret.evaluation.retrieval.ranking import evaluate_retrieval, retrieve
from st_xlret.evaluation.tatoeba import TatoebaEvaluator
from st_xlret.evaluation.tatoeba_pairs import TatoebaPairsEvaluator
from st_xlret.evaluation.xor_retrieve import XORRetrieveEvaluator

__all__ = [
    "BUCCEvaluator",
    "BenchmarkResult",
    "BilingualRetrievalEvaluator",
    "CachedEmbeddings",
    "EmbeddingCache",
    "LAReQAEvaluator",
    "MewsliXEvaluator",
    "MrTyDiEvaluator",
    "NQEvaluator",
    "PublishedRow",
    "Ranking",
    "RetrievalData",
    "RetrievalEvaluator",
    "TatoebaEvaluator",
    "TatoebaPairsEvaluator",
    "TextCollection",
    "XORRetrieveEvaluator",
    "bilingual_accuracies",
    "encode_layer",
    "evaluate_retrieval",
    "language_preference",
    "map_at_k",
    "markdown_table",
    "mrr_at_k",
    "published_rows",
    "read_beir",
    "recall_at_k",
    "results_table",
    "retrieval_accuracy",
    "retrieve",
    "score_ranking",
    "scores_table",
    "summarise_accuracies",
    "weighted_f1",
]
