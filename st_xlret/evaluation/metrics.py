"""Metrics of ranked results: MRR, recall, nDCG and mean average precision, and preference for one language."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Metric = Callable[[NDArray[np.bool_], NDArray[np.int64]], NDArray[np.float64]]


def hits_of_ranking(ranking: ArrayLike, relevant: Sequence[ArrayLike], corpus_size: int) -> NDArray[np.bool_]:
    """Which of the ranked rows are relevant."""
    rows = np.asarray(ranking, dtype=np.int64)
    if rows.ndim != 2 or len(rows) != len(relevant):
        raise ValueError(f"a ranking of shape {rows.shape} does not fit {len(relevant)} queries.")
    gold = [np.asarray(documents, dtype=np.int64) + query * corpus_size for query, documents in enumerate(relevant)]
    gold_keys = np.concatenate(gold) if gold else np.empty(0, dtype=np.int64)
    return np.isin(rows + np.arange(len(rows))[:, None] * corpus_size, gold_keys)


def mrr_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> NDArray[np.float64]:
    """Reciprocal rank of the first hit of each query among its k best results, 0 if there is none: (Q,), float64.

    Args:
        hits: Boolean (Q, K), whether the result at each rank is relevant, best first. Missing ranks (K < k) are no
            hits.
        relevant: (Q,), the number of documents that are relevant to each query, found or not; at least 1.
        k: Number of results per query that are considered.

    Raises:
        ValueError: If the shapes disagree, k is below 1, or a query has no relevant document or more hits than those.
    """
    found, _ = _checked(hits, relevant, k)
    if not found.size:
        return np.zeros(len(found))
    return np.where(found.any(axis=1), 1.0 / (found.argmax(axis=1) + 1), 0.0)


def recall_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> NDArray[np.float64]:
    """Fraction of the relevant documents of each query that are among its k best results; see `mrr_at_k`.

    Example:
        >>> recall_at_k([[False, True, True], [False, False, True]], [4, 1], k=3).tolist()
        [0.5, 1.0]
    """
    found, counts = _checked(hits, relevant, k)
    return found.sum(axis=1) / counts


def map_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> NDArray[np.float64]:
    """Average precision of the k best results of each query, whose mean is mAP@k; see `mrr_at_k`.

    `AP@k = sum_{r<=k} hit_r * (hits among the first r) / r / min(R, k)` with R relevant documents. A perfect ranking
    thus has 1 even if more than k documents are relevant. (trec_eval's `map_cut` divides by R. The two agree if R <= k,
    as on LAReQA and Mewsli-X.)

    Example:
        >>> map_at_k([[True, False, True], [False, True, True]], [2, 5], k=2).tolist()
        [0.5, 0.25]
    """
    found, counts = _checked(hits, relevant, k)
    ranks = np.arange(1, found.shape[1] + 1)
    return (found * found.cumsum(axis=1) / ranks).sum(axis=1) / np.minimum(counts, k)


def ndcg_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> NDArray[np.float64]:
    """Normalised discounted cumulative gain of the k best results of each query; see `mrr_at_k`.

    Example:
        >>> ndcg_at_k([[True, False, True]], [1 + 1], k=3).round(4).tolist()
        [0.9197]
    """
    found, counts = _checked(hits, relevant, k)
    discounts = 1 / np.log2(np.arange(2, k + 2))
    return (found * discounts[: found.shape[1]]).sum(axis=1) / discounts.cumsum()[np.minimum(counts, k) - 1]


def _checked(hits: ArrayLike, relevant: ArrayLike, k: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    found, counts = np.asarray(hits, dtype=bool), np.asarray(relevant, dtype=np.int64)
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}.")
    if found.ndim != 2 or counts.shape != (len(found),):
        raise ValueError(
            f"expected hits (Q, K) and numbers of relevant documents (Q,), got {found.shape}, {counts.shape}."
        )
    bad = (counts < 1) | (found.sum(axis=1) > counts)
    if bad.any():
        row = int(bad.nonzero()[0][0])
        raise ValueError(f"query row {row} has {int(found[row].sum())} hits and {int(counts[row])} relevant documents.")
    return found[:, :k], counts


_METRICS = {"mrr": mrr_at_k, "recall": recall_at_k, "map": map_at_k, "ndcg": ndcg_at_k}


def parse_metric(name: str) -> tuple[Metric, int]:
    """The function and the k of a metric, by its name."""
    match = re.fullmatch(r"(mrr|recall|map|ndcg)_at_([1-9]\d*)", name)
    if match is None:
        raise ValueError(f"unknown metric {name!r}: give names such as 'mrr_at_100', 'recall_at_100', 'map_at_20'.")
    function, k = _METRICS[match[1]], int(match[2])
    return lambda hits, relevant: function(hits, relevant, k), k


def language_preference(
    ranking: NDArray[np.int64],
    relevant: Sequence[NDArray[np.int64]],
    query_languages: ArrayLike,
    document_languages: ArrayLike,
    *,
    k: int = 20,
) -> NDArray[np.float64]:
    """How much more often top results share the query's language than the relevant documents do: (Q,), from -1 to 1.

    For a query with R relevant documents, the top min(R, k) results are considered: a perfect ranking has 0 whatever
    its languages, and a model that groups texts by language has nearly 1 minus the share of the query's language.

    Args:
        ranking: Shape (Q, K), corpus rows, best first.
        relevant: The relevant corpus rows of each query.
        query_languages: (Q,) languages, or numbers of them.
        document_languages: (C,) languages of the corpus.
        k: Maximum number of results per query that are considered.
    """
    of_documents = np.asarray(document_languages)
    return np.array(
        [
            (of_documents[ranked[: min(len(gold), k)]] == language).mean() - (of_documents[gold] == language).mean()
            for ranked, gold, language in zip(ranking, relevant, np.asarray(query_languages), strict=True)
        ]
    )


def recall_by_language(
    ranking: NDArray[np.int64],
    relevant: Sequence[NDArray[np.int64]],
    query_languages: ArrayLike,
    document_languages: ArrayLike,
    *,
    k: int = 10,
) -> dict[str, NDArray[np.float64]]:
    """Recall@k of the relevant documents in the query's language, and of those in other languages, each (Q,).

    The arguments are those of `language_preference`; NaN for queries without such a relevant document.
    """
    of_documents = np.asarray(document_languages)
    found: dict[str, list[float]] = {"same_language": [], "other_languages": []}
    for ranked, gold, language in zip(ranking, relevant, np.asarray(query_languages), strict=True):
        is_found, is_same = np.isin(gold, ranked[:k]), of_documents[gold] == language
        for name, part in (("same_language", is_same), ("other_languages", ~is_same)):
            found[name].append(is_found[part].mean() if part.any() else np.nan)
    return {name: np.array(values) for name, values in found.items()}
