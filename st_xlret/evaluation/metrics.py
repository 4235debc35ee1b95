"""Metrics of ranked results: one value for each query."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[np.float64]


def mrr_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> Values:
    """Reciprocal rank of the first hit of each query among its k best results: (Q,).

    It is 0 where there is no hit.

    Args:
        hits: Boolean (Q, K), whether the result at each rank is relevant, best first. Ranks beyond
            K are no hits.
        relevant: (Q,), the number of documents that are relevant to each query, found or not; at
            least 1.
        k: Results per query that are considered.
    """
    best = _hits_of_best(hits, k)
    rank = best.argmax(axis=1) + 1
    return np.where(best.any(axis=1), 1.0 / rank, 0.0)


def recall_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> Values:
    """Fraction of the relevant documents that are among the k best results; see `mrr_at_k`."""
    found = _hits_of_best(hits, k).sum(axis=1)
    return np.divide(found, np.asarray(relevant))


def success_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> Values:
    """Whether a relevant document is among the k best results of each query; see `mrr_at_k`."""
    return np.where(_hits_of_best(hits, k).any(axis=1), 1.0, 0.0)


def map_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> Values:
    """Average precision of the k best results of each query, whose mean is mAP@k; see `mrr_at_k`.

    `AP@k = sum_{r<=k} hit_r * (hits among the first r) / r / min(R, k)` with R relevant documents.
    (trec_eval's `map_cut` divides by R.)

    Example:
        >>> map_at_k([[True, False, True], [False, True, True]], [2, 5], k=2).tolist()
        [0.5, 0.25]
    """
    best = _hits_of_best(hits, k)
    ranks = np.arange(1, best.shape[1] + 1)
    precision = best.cumsum(axis=1) / ranks
    most = np.minimum(np.asarray(relevant), k)
    return (best * precision).sum(axis=1) / most


def ndcg_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> Values:
    """Normalised discounted cumulative gain of the k best results of each query; see `mrr_at_k`."""
    best = _hits_of_best(hits, k)
    discounts = rank_discounts(k)
    gain = (best * discounts[: best.shape[1]]).sum(axis=1)
    most = np.minimum(np.asarray(relevant), k)
    ideal = discounts.cumsum()[most - 1]
    return gain / ideal


def rank_discounts(k: int) -> Values:
    """The weights (k,) of the first k ranks in the cumulative gain."""
    return 1 / np.log2(np.arange(2, k + 2))


def _hits_of_best(hits: ArrayLike, k: int) -> NDArray[np.bool_]:
    """The hits among the k best results of each query, (Q, k) or narrower."""
    return np.asarray(hits, dtype=bool)[:, :k]


METRIC_FUNCTIONS = {
    "mrr": mrr_at_k,
    "recall": recall_at_k,
    "success": success_at_k,
    "map": map_at_k,
    "ndcg": ndcg_at_k,
}
"""What the name of a metric begins with, as `mrr` of `mrr_at_100`."""
