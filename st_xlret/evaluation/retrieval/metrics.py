"""Metrics of ranked results: MRR, recall and mean average precision at k, and preference for one language."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from st_xlret.evaluation.retrieval.data import RetrievalData

Metric: TypeAlias = Callable[[ArrayLike, ArrayLike], NDArray[np.float64]]


def hits_of_ranking(ranking: ArrayLike, relevant: Sequence[ArrayLike], corpus_size: int) -> NDArray[np.bool_]:
    """Which of the ranked rows are relevant.

    Args:
        ranking: Shape (Q, K), corpus rows, best first.
        relevant: Q collections of the relevant corpus rows.
        corpus_size: Number of rows of the corpus.

    Returns:
        Boolean (Q, K).

    Raises:
        ValueError: If the two differ in their number of queries.

    Example:
        >>> hits_of_ranking([[4, 2], [0, 1]], [[2], [3, 0]], corpus_size=5).tolist()
        [[False, True], [True, False]]
    """
    rows = np.asarray(ranking, dtype=np.int64)
    if rows.ndim != 2 or len(rows) != len(relevant):
        raise ValueError(f"a ranking of shape {rows.shape} does not fit {len(relevant)} queries.")
    gold = [np.asarray(documents, dtype=np.int64) + query * corpus_size for query, documents in enumerate(relevant)]
    gold_keys = np.concatenate(gold) if gold else np.empty(0, dtype=np.int64)
    return np.isin(rows + np.arange(len(rows))[:, None] * corpus_size, gold_keys)


def _checked(hits: ArrayLike, relevant: ArrayLike, k: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    found = np.asarray(hits, dtype=bool)
    counts = np.asarray(relevant, dtype=np.int64)
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}.")
    if found.ndim != 2 or counts.shape != (len(found),):
        raise ValueError(
            f"expected hits (Q, K) and the number of relevant documents (Q,), got {found.shape} and {counts.shape}."
        )
    if (counts < 1).any():
        row = int((counts < 1).nonzero()[0][0])
        raise ValueError(f"query row {row} has no relevant document: it has no score, leave it out.")
    too_many = found.sum(axis=1) > counts
    if too_many.any():
        row = int(too_many.nonzero()[0][0])
        raise ValueError(
            f"query row {row} has {int(found[row].sum())} hits, but {int(counts[row])} relevant documents."
        )
    return found[:, :k], counts


def mrr_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> NDArray[np.float64]:
    """Reciprocal rank of the first hit of each query among its k best results, 0 if there is none.

    Args:
        hits: Boolean (Q, K), whether the result at each rank is relevant, best first. Missing ranks (K < k) count as
            not relevant.
        relevant: (Q,), the number of documents that are relevant to each query, found or not; at least 1.
        k: Number of results per query that are considered.

    Returns:
        (Q,) float64 in [0, 1]; their mean is MRR@k.

    Raises:
        ValueError: If the shapes disagree, k is below 1, or a query has no relevant document or more hits than relevant
            documents.

    Example:
        >>> mrr_at_k([[False, True, True], [False, False, True]], [2, 1], k=2).tolist()
        [0.5, 0.0]
    """
    found, _ = _checked(hits, relevant, k)
    if not found.size:
        return np.zeros(len(found))
    return np.where(found.any(axis=1), 1.0 / (found.argmax(axis=1) + 1), 0.0)


def recall_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> NDArray[np.float64]:
    """Fraction of the relevant documents of each query that are among its k best results.

    Arguments, result and errors are those of `mrr_at_k`.

    Example:
        >>> recall_at_k([[False, True, True], [False, False, True]], [4, 1], k=3).tolist()
        [0.5, 1.0]
    """
    found, counts = _checked(hits, relevant, k)
    return found.sum(axis=1) / counts


def map_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> NDArray[np.float64]:
    """Average precision of the k best results of each query, whose mean is mAP@k.

    `AP@k = sum_{r<=k} hit_r * (hits among the first r) / r / min(R, k)` with R relevant documents. A perfect ranking
    thus has 1 even if more than k documents are relevant. (trec_eval's `map_cut` divides by R. The two agree if R <= k,
    as on LAReQA and Mewsli-X.)

    Arguments, result and errors are those of `mrr_at_k`.

    Example:
        >>> map_at_k([[True, False, True], [False, True, True]], [2, 5], k=2).tolist()
        [0.5, 0.25]
    """
    found, counts = _checked(hits, relevant, k)
    ranks = np.arange(1, found.shape[1] + 1)
    precision_at_hits = found * found.cumsum(axis=1) / ranks
    return precision_at_hits.sum(axis=1) / np.minimum(counts, k)


_METRICS = {"mrr": mrr_at_k, "recall": recall_at_k, "map": map_at_k}


def parse_metric(name: str) -> tuple[Metric, int]:
    """The function and the k of a metric, by its name.

    Raises:
        ValueError: If there is no such metric.

    Example:
        >>> function, k = parse_metric("mrr_at_100")
        >>> k, function([[False, True]], [1]).tolist()
        (100, [0.5])
    """
    match = re.fullmatch(r"(mrr|recall|map)_at_([1-9]\d*)", name)
    if match is None:
        raise ValueError(f"unknown metric {name!r}: give names such as 'mrr_at_100', 'recall_at_100', 'map_at_20'.")
    function, k = _METRICS[match[1]], int(match[2])
    return lambda hits, relevant: function(hits, relevant, k), k


@dataclass(frozen=True)
class Ranking:
    """The best corpus rows of each query.

    Attributes:
        rows: Corpus rows, (Q, K) int64, best first. Of equal scores, the lower row comes first.
        scores: Their similarities, (Q, K) float32.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]


def score_ranking(
    ranking: Ranking, data: RetrievalData, metrics: Iterable[str] = ("mrr_at_100", "recall_at_100")
) -> dict[str, dict[str, float]]:
    """Average metrics over the queries of each language.

    Args:
        ranking: The results of the queries `data.judged`, in their order.
        data: The data that was searched.
        metrics: Names such as `"mrr_at_100"`, `"recall_at_100"`, `"map_at_20"`.

    Returns:
        Language of the queries to metric to value, fractions in [0, 1].

    Raises:
        ValueError: If a metric is unknown or needs more results per query than the ranking has.
    """
    hits = hits_of_ranking(ranking.rows, data.relevant, len(data.corpus))
    counts = np.array([len(rows) for rows in data.relevant])
    values: dict[str, NDArray[np.float64]] = {}
    for name in metrics:
        metric, k = parse_metric(name)
        if hits.shape[1] < min(k, len(data.corpus)):
            raise ValueError(f"{name} needs {k} results a query; the ranking has {hits.shape[1]}.")
        values[name] = metric(hits, counts)
    languages = np.array([data.judged.language_of(row) for row in range(len(data.judged))])
    return {
        language: {name: float(of_query[languages == language].mean()) for name, of_query in values.items()}
        for language in data.judged.language_set()
        if (languages == language).any()
    }


def language_preference(ranking: Ranking, data: RetrievalData, *, k: int = 20) -> dict[str, dict[str, float]]:
    """How much more often the top results share the query's language than the relevant documents do.

    For a query with R relevant documents, the top min(R, k) results are considered. A perfect ranking has the relevant
    documents there, so that its preference is 0 whatever their languages. The preference of a model that groups texts
    by language is near 1 minus the share of the query's language among the relevant documents. It is negative if the
    model avoids the language of the query.

    Args:
        ranking: The results of the queries `data.judged`, in their order.
        data: The data that was searched.
        k: Maximum number of results per query that are considered.

    Returns:
        Language of the queries to the means of `"results"`, the share of the top results in the query's language,
        `"relevant"`, the same share of the relevant documents, and `"preference"`, the difference of the two, from
        -1 to 1.

    Raises:
        ValueError: If k is below 1.

    Example:
        >>> from st_xlret.evaluation.retrieval.data import TextCollection
        >>> corpus = TextCollection(["a", "b", "c", "d"], ["one", "un", "two", "deux"], ["en", "fr", "en", "fr"])
        >>> data = RetrievalData(corpus, TextCollection(["q"], ["1 ?"], "en"), {"q": {"a": 1, "b": 1}})
        >>> language_preference(Ranking(np.array([[0, 2, 1]]), np.array([[3.0, 2.0, 1.0]])), data)
        {'en': {'results': 1.0, 'relevant': 0.5, 'preference': 0.5}}
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}.")
    codes: dict[str, int] = {}
    corpus = data.corpus
    languages = [corpus.languages] * len(corpus) if isinstance(corpus.languages, str) else corpus.languages
    document_codes = np.array([codes.setdefault(language, len(codes)) for language in languages])
    results: dict[str, list[float]] = {}
    relevant: dict[str, list[float]] = {}
    for row, gold in enumerate(data.relevant):
        language = data.judged.language_of(row)
        code = codes.get(language, -1)
        top = ranking.rows[row, : min(len(gold), k)]
        results.setdefault(language, []).append(float((document_codes[top] == code).mean()))
        relevant.setdefault(language, []).append(float((document_codes[gold] == code).mean()))
    shares = {language: (float(np.mean(results[language])), float(np.mean(relevant[language]))) for language in results}
    return {
        language: {"results": found, "relevant": wanted, "preference": found - wanted}
        for language, (found, wanted) in shares.items()
    }
