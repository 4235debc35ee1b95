"""Does a model favour the query's own language in a pool of many languages?"""

from __future__ import annotations

import numpy as np

from st_xlret.evaluation.retrieval.data import RetrievalData
from st_xlret.evaluation.retrieval.ranking import Ranking


def language_preference(ranking: Ranking, data: RetrievalData, *, k: int = 20) -> dict[str, dict[str, float]]:
    """How much more often the top results share the query's language than the relevant documents do.

    For a query with R relevant documents, its top min(R, k) results are looked at: a perfect ranking shows
    the relevant documents there, so that its preference is 0 whatever the languages of the answers. A model
    that groups texts by language has a preference near 1 minus the share among the relevant documents; a
    negative one avoids the query's language.

    Args:
        ranking: The results of ``data.judged``, in its order.
        data: What was searched.
        k: The depth at most; the ranking's where that is less.

    Returns:
        Query language to ``{"results": share of the top results in the query's language, "relevant": the same
        share of the relevant documents, "preference": the difference}``, means over queries, in [0, 1] and
        [-1, 1].

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
