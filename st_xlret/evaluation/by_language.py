"""Metrics of a search in several languages: what it finds in the query's language and in others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from st_xlret.evaluation.metrics import Values, rank_discounts
from st_xlret.evaluation.pools import RowNumbers
from st_xlret.languages import is_same_language, languages_of_labels

_FIRST_RESULTS = (
    "right_same_language",
    "right_other_language",
    "wrong_same_language",
    "wrong_other_language",
)
"""What the first result of a query is: each query is one of these, which are metrics' names."""

_DEPTH = 10
MOST_RESULTS = 20
"""Results that metrics by language read, at most."""
_OWN_GAIN = 2
_OTHER_GAIN = 1

_Mask = NDArray[np.bool_]


def language_metrics(
    ranking: RowNumbers,
    relevant: Sequence[RowNumbers],
    query_languages: Sequence[str],
    document_languages: Sequence[str],
) -> dict[str, Values]:
    """What a search finds in the query's language and in others, each (Q,).

    It is NaN for queries without a value. `ranking` has corpus rows (Q, K), best first, and
    `relevant` those relevant to each query, which are taken to be translations of each other, as
    in LAReQA; negative ones are not in the corpus. Regions are of one language. Some names are
    those of MLAIRE
    ([arXiv:2605.07249](https://arxiv.org/abs/2605.07249)); the definitions are these:

    - `recall_at_10_same_language`, `recall_at_10_other_languages`: Recall@10 of the relevant
      documents in the query's language, and of those in other languages.
    - `same_language_at_10`: The share of the first ten results that is in the query's language.
    - `language_preference`: How much more often the first min(R, 20) results share the query's
      language than the R relevant documents do, from -1 to 1: 0 for a perfect ranking.
    - `language_preference_rate`: Whether the first relevant result is in the query's language, for
      queries with relevant documents in it and in others, of which the ranking has one.
    - `language_ndcg_at_10`: nDCG@10 with a gain of 2 for a relevant document in the query's
      language, else of 1.
    - `right_same_language`, `right_other_language`, `wrong_same_language`, `wrong_other_language`:
      The first result.
    """
    document_codes = languages_of_labels(document_languages)
    query_codes = languages_of_labels(query_languages)
    in_language = _documents_in_languages(document_codes, set(query_codes) - {""})
    of_queries = []
    for ranked, judged, code in zip(ranking, relevant, query_codes, strict=True):
        gold = judged[judged >= 0]
        if len(gold) > 0 and code:
            of_queries.append(_metrics_of_query(ranked, gold, in_language[code]))
        else:
            of_queries.append({})
    names = next(filter(None, of_queries), {})
    values = {}
    for name in names:
        values[name] = np.array([metrics.get(name, np.nan) for metrics in of_queries])
    return values


def _documents_in_languages(document_codes: Sequence[str], languages: set[str]) -> dict[str, _Mask]:
    """For each language, which documents are in it, boolean, (C,); regions do not matter."""
    codes = np.array(document_codes)
    present = set(document_codes)
    masks = {}
    for language in languages:
        alike = [code for code in present if is_same_language(code, language)]
        masks[language] = np.isin(codes, alike)
    return masks


def _metrics_of_query(ranked: RowNumbers, gold: RowNumbers, in_language: _Mask) -> dict[str, float]:
    """The metrics of a query, of which those without a value are NaN.

    `ranked` are corpus rows, best first, `gold` the relevant ones, one at least; `in_language` says
    of each document of the corpus whether it is in the query's language.
    """
    # Of the relevant documents:
    is_own = in_language[gold]
    is_found = np.isin(gold, ranked[:_DEPTH])
    # Of the results:
    is_right = np.isin(ranked, gold)
    is_same = in_language[ranked]

    first = _kind_of_first_result(is_right, is_same)
    metrics = {
        "recall_at_10_same_language": _share_of_true(is_found[is_own]),
        "recall_at_10_other_languages": _share_of_true(is_found[~is_own]),
        "same_language_at_10": _share_of_true(is_same[:_DEPTH]),
        "language_preference_rate": _preference_rate(is_own, is_right, is_same),
        "language_ndcg_at_10": _language_ndcg(is_own, is_right, is_same),
    }
    for kind in _FIRST_RESULTS:
        metrics[kind] = float(kind == first)
    depth = min(len(gold), MOST_RESULTS)
    metrics["language_preference"] = _share_of_true(is_same[:depth]) - _share_of_true(is_own)
    return metrics


def _share_of_true(values: _Mask) -> float:
    """The share that is true; NaN of none."""
    if len(values) == 0:
        return np.nan
    return float(values.mean())


def _kind_of_first_result(is_right: _Mask, is_same: _Mask) -> str:
    """Which of `_FIRST_RESULTS` the first result is; the arguments are as of `_preference_rate`."""
    answer = "right" if is_right[0] else "wrong"
    language = "same" if is_same[0] else "other"
    return f"{answer}_{language}_language"


def _preference_rate(is_own: _Mask, is_right: _Mask, is_same: _Mask) -> float:
    """1 if the first right result is in the query's language, else 0; NaN where it cannot be both.

    All are boolean, best first: `is_own` of the relevant documents, the others of the results.
    """
    has_both = is_own.any() and not is_own.all()
    if not has_both or not is_right.any():
        return np.nan
    first_right = is_right.argmax()
    return float(is_same[first_right])


def _language_ndcg(is_own: _Mask, is_right: _Mask, is_same: _Mask) -> float:
    """The nDCG with a gain of 2 for a right result in the query's language, and 1 for another.

    All are boolean, best first: `is_own` of the relevant documents, the others of the results.
    """
    gain_of_results = np.where(is_same, _OWN_GAIN, _OTHER_GAIN)
    gain_of_relevant = np.where(is_own, _OWN_GAIN, _OTHER_GAIN)
    best_order = np.sort(gain_of_relevant)[::-1]
    return _discounted_gain(is_right * gain_of_results) / _discounted_gain(best_order)


def _discounted_gain(gains: NDArray[Any]) -> float:
    """The cumulative gain of the first ten results, each weighed by its rank."""
    best = gains[:_DEPTH]
    return float(best @ rank_discounts(len(best)))
