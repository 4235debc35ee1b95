"""Evaluators for the benchmarks of the papers, and tables of their results beside published ones."""

from __future__ import annotations

from st_xlret.evaluation.base import BenchmarkEvaluator, BenchmarkResult
from st_xlret.evaluation.bucc import BUCCEvaluator
from st_xlret.evaluation.embedding import TextEmbedder
from st_xlret.evaluation.embedding_cache import EmbeddingCache, StoredEmbeddings, fingerprint
from st_xlret.evaluation.lareqa import LAReQAEvaluator
from st_xlret.evaluation.mewsli_x import MewsliXEvaluator
from st_xlret.evaluation.mr_tydi import MrTyDiEvaluator
from st_xlret.evaluation.nq import NQEvaluator
from st_xlret.evaluation.passages import AnsweredQuestions, AnswerEvaluator
from st_xlret.evaluation.retrieval import (
    RetrievalEvaluator,
    language_metrics,
    language_preference,
    map_at_k,
    mrr_at_k,
    ndcg_at_k,
    recall_at_k,
    score_ranking,
)
from st_xlret.evaluation.retrieval_data import RetrievalData, TextCollection, read_beir
from st_xlret.evaluation.tables import PublishedRow, markdown_table, published_rows, results_table, scores_table
from st_xlret.evaluation.tatoeba import (
    BilingualRetrievalEvaluator,
    TatoebaEvaluator,
    TatoebaPairsEvaluator,
    retrieval_accuracy,
    weighted_f1,
)
from st_xlret.evaluation.xor_retrieve import XORRetrieveEvaluator

__all__ = [
    "AnswerEvaluator",
    "AnsweredQuestions",
    "BUCCEvaluator",
    "BenchmarkEvaluator",
    "BenchmarkResult",
    "BilingualRetrievalEvaluator",
    "EmbeddingCache",
    "LAReQAEvaluator",
    "MewsliXEvaluator",
    "MrTyDiEvaluator",
    "NQEvaluator",
    "PublishedRow",
    "RetrievalData",
    "RetrievalEvaluator",
    "StoredEmbeddings",
    "TatoebaEvaluator",
    "TatoebaPairsEvaluator",
    "TextCollection",
    "TextEmbedder",
    "XORRetrieveEvaluator",
    "fingerprint",
    "language_metrics",
    "language_preference",
    "map_at_k",
    "markdown_table",
    "mrr_at_k",
    "ndcg_at_k",
    "published_rows",
    "read_beir",
    "recall_at_k",
    "results_table",
    "retrieval_accuracy",
    "score_ranking",
    "scores_table",
    "weighted_f1",
]
