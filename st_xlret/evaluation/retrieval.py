"""Retrieval: metrics of ranked results, an exact search, and the evaluator that the benchmarks share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.evaluation.base import BenchmarkEvaluator, BenchmarkResult, macro_average
from st_xlret.evaluation.embedding_cache import EmbeddingCache, StoredEmbeddings, fingerprint
from st_xlret.evaluation.retrieval_data import read_beir
from st_xlret.search import top_k

Similarity = Literal["cosine", "dot"]
_FIRST_RESULTS = [f"{what}_{which}_language" for what in ("right", "wrong") for which in ("same", "other")]
Metric = Callable[[NDArray[np.bool_], NDArray[np.int64]], NDArray[np.float64]]
Data: TypeAlias = Any
"""What is searched: `RetrievalData`, or other data with `corpus`, `queries` and `judged`."""


class RetrievalEvaluator(BenchmarkEvaluator):
    """Retrieval from one or more pools of documents, scored per language of the queries and averaged over languages.

    Its own files are a pool in BEIR's layout, see [`read_beir`][st_xlret.evaluation.read_beir]. A subclass defines its
    benchmark, metrics and task, and reads its files. One with another way of scoring overrides `score_pool`.

    Args:
        pools: Name to data, or to a function that loads them. With functions, one pool is in memory at a time.
        split: Name of the split, for the result.
        similarity: `"cosine"` or `"dot"`. Default: that of the model.
        embed_corpus: A cache that keeps the embeddings of the corpora on disk. Default: they are encoded into memory.
        **options: Those of [`BenchmarkEvaluator`][st_xlret.evaluation.BenchmarkEvaluator].

    Raises:
        ValueError: If there are no pools, or the calibration does not know a language.
    """

    benchmark = "retrieval"
    metrics: tuple[str, ...] = ("mrr_at_100", "recall_at_100")
    layout = "corpus.jsonl, queries.jsonl, qrels/test.tsv (BEIR)"
    splits: tuple[str, ...] = ("test", "dev", "train")
    task: str = "retrieval of relevant documents from one pool"
    direction: str = "queries to documents"

    def __init__(
        self,
        pools: Mapping[str, Data | Callable[[], Data]],
        *,
        split: str = "test",
        similarity: Similarity | None = None,
        embed_corpus: EmbeddingCache | None = None,
        **options: Any,
    ) -> None:
        self.primary = self.primary or self.metrics[0]
        super().__init__(**options)
        if not pools:
            raise ValueError("there is nothing to evaluate: no pools were given.")
        self.embedder = replace(self.embedder, show_progress_bar=self.show_progress_bar)
        self.pools = dict(pools)
        self.split = split
        self.similarity = similarity
        self.embed_corpus = embed_corpus
        for pool in self.pools.values():
            if not callable(pool):
                self._require_languages(pool)

    @classmethod
    def read(cls, folder: Path | None, languages: list[str] | None, *, split: str = "test", **_: Any) -> dict[str, Any]:
        """One pool, and the queries of a split."""
        assert folder is not None
        data = read_beir(folder, split=split)
        return {"pools": {"all": data if languages is None else data.of_languages(languages)}, "split": split}

    def evaluate(self, model: SentenceTransformer) -> BenchmarkResult:
        """Scores per query language, their averages, and the protocol."""
        scores: dict[str, dict[str, float]] = {}
        documents, queries = {}, 0
        pools = tqdm(self.pools.items(), desc=self.name, disable=not self.show_progress_bar or len(self.pools) < 2)
        for name, pool in pools:
            data = pool() if callable(pool) else pool
            self._require_languages(data)
            of_pool = self.score_pool(model, data)
            if twice := sorted(set(of_pool) & set(scores)):
                raise ValueError(f"pool {name!r} has queries in {twice}, as another pool does.")
            scores.update(of_pool)
            documents[name] = len(data.corpus)
            queries += len(data.judged)
        sizes = [f"{name} {size}" for name, size in documents.items()]
        protocol = {
            **self.protocol(model),
            "similarity": similarity_of(model, self.similarity),
            "languages": str(len(scores)),
            "queries": str(queries),
            "corpus_size": ", ".join(sizes) if len(sizes) > 1 else str(sum(documents.values())),
        }
        return BenchmarkResult(self.benchmark, scores, macro_average(scores), protocol)

    def score_pool(self, model: SentenceTransformer, data: Data) -> dict[str, dict[str, float]]:
        """Language of the queries to metric to value, for one pool.

        A pool in several languages also gets `recall_at_10`, `language_preference` and the metrics of
        [`language_metrics`][st_xlret.evaluation.language_metrics].
        """
        queries, documents = self.embed_pool(model, data)
        depth = max(10, *(parse_metric(name)[1] for name in self.metrics))
        return score_ranking(search(queries, documents, depth), data, self.metrics)

    def embed_pool(self, model: SentenceTransformer, data: Data) -> tuple[Tensor, Tensor | StoredEmbeddings]:
        """The embeddings of the queries that count, and of the corpus, whose dot products are the similarity.

        Raises:
            ValueError: If the model returns NaN or infinite values for a text.
        """
        normalize = similarity_of(model, self.similarity) == "cosine"
        queries, corpus, embedder = data.judged, data.corpus, self.embedder
        asked = embedder.embed(model, queries.full_texts(), queries.languages_of(), role="query", normalize=normalize)

        def embed(texts: Sequence[str], languages: Sequence[str]) -> Tensor:
            return embedder.embed(model, texts, languages, role="document", normalize=normalize)

        if self.embed_corpus is None:
            return asked, embed(corpus.full_texts(), corpus.languages_of())
        identity = {
            "model": fingerprint(model),
            "calibration": None if embedder.calibration is None else fingerprint(embedder.calibration),
            "prompt": embedder.prompt(model, "document"),
            "layer": embedder.layer,
            "pooling": embedder.pooling,
            "normalize": normalize,
            "precision": embedder.describe(model)["precision"],
        }
        embedder = replace(embedder, show_progress_bar=False)  # the cache has a bar of its own
        return asked, self.embed_corpus.embed(corpus, embed, identity=identity)

    def _require_languages(self, data: Data) -> None:
        self.embedder.require_languages([*data.queries.language_set(), *data.corpus.language_set()])

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        return {"task": self.task, "split": self.split, "direction": self.direction, **self.embedder.describe(model)}


def similarity_of(model: SentenceTransformer, similarity: Similarity | None = None) -> Similarity:
    """The similarity by which documents are searched: the given one, else that of the model."""
    chosen = similarity if similarity is not None else str(model.similarity_fn_name)
    if chosen not in ("cosine", "dot"):
        raise ValueError(
            f'similarity must be "cosine" or "dot", got {chosen!r}; give one that retrieval can search by.'
        )
    return chosen  # type: ignore[return-value]


def search(queries: Tensor, documents: Tensor | StoredEmbeddings, k: int) -> NDArray[np.int64]:
    """The corpus rows of the k best documents of each query, best first; of equal scores, the lower row comes first."""
    depth = min(k, len(documents))
    found = top_k(queries, documents, depth) if isinstance(documents, Tensor) else documents.top_k(queries, depth)
    return found[1].cpu().numpy()


def score_ranking(
    ranking: NDArray[np.int64], data: Data, metrics: Sequence[str] = ("mrr_at_100", "recall_at_100")
) -> dict[str, dict[str, float]]:
    """Language of the queries to metric to its mean over them; metrics by language only for a corpus in several.

    Args:
        ranking: Shape (Q, K), the results of the queries `data.judged`, in their order.
        data: The data that was searched.
        metrics: Names such as `"mrr_at_100"`, `"recall_at_100"`, `"map_at_20"`.

    Raises:
        ValueError: If a metric is unknown or needs more results per query than the ranking has.
    """
    hits = hits_of_ranking(ranking, data.relevant, len(data.corpus))
    counts = np.array([len(rows) for rows in data.relevant])
    is_mixed = len(data.corpus.language_set()) > 1
    values: dict[str, NDArray[np.float64]] = {}
    for name in (*metrics, "recall_at_10") if is_mixed else metrics:
        metric, k = parse_metric(name)
        if hits.shape[1] < min(k, len(data.corpus)):
            raise ValueError(f"{name} needs {k} results a query; the ranking has {hits.shape[1]}.")
        values[name] = metric(hits, counts)
    languages = np.array(data.judged.languages_of())
    if is_mixed:
        given = ranking, data.relevant, languages, data.corpus.languages_of()
        values |= language_metrics(*given)
        values["language_preference"] = language_preference(*given)
    scores: dict[str, dict[str, float]] = {}
    for language in data.judged.language_set():
        means = {name: of_query[languages == language] for name, of_query in values.items()}
        scores[language] = {name: float(np.nanmean(each)) for name, each in means.items() if not np.isnan(each).all()}
    return scores


def mean_average_precision(queries: Tensor, documents: Tensor, relevant: Sequence[NDArray[np.int64]]) -> NDArray[Any]:
    """Average precision of each query over the whole ranking, of equal scores the lower row first."""
    found = []
    for start in range(0, len(queries), 256):
        scores = (queries[start : start + 256] @ documents.T).cpu().numpy()
        for row, gold in zip(scores, relevant[start : start + 256], strict=True):
            before = [np.count_nonzero(row > row[at]) + np.count_nonzero(row[:at] == row[at]) for at in gold]
            found.append(float((np.arange(1, len(gold) + 1) / (np.sort(before) + 1)).mean()))
    return np.array(found)


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


def language_metrics(
    ranking: NDArray[np.int64],
    relevant: Sequence[NDArray[np.int64]],
    query_languages: ArrayLike,
    document_languages: ArrayLike,
) -> dict[str, NDArray[np.float64]]:
    """What a search finds in the query's language and in others, each (Q,); NaN for queries that it is not defined for.

    The relevant documents of a query are taken to be translations of each other, as in LAReQA; for other pools
    [`read_beir`][st_xlret.evaluation.read_beir] takes them from the documents' `translation_of`. The preference rate,
    the language-aware nDCG and the four-way split have the names and the purpose of MLAIRE
    ([arXiv:2605.07249](https://arxiv.org/abs/2605.07249)); they are defined here, and not copied from there:

    - `recall_at_10_same_language`, `recall_at_10_other_languages`: Recall@10 of the relevant documents in the query's
      language, and of those in other languages.
    - `language_preference_rate`: Whether the first relevant result is in the query's language, for queries with
      relevant documents in it and in others, of which the ranking has one.
    - `language_ndcg_at_10`: nDCG@10 with a gain of 2 for a relevant document in the query's language, and of 1 for one
      in another language.
    - `right_same_language`, `right_other_language`, `wrong_same_language`, `wrong_other_language`: What the first
      result is; the four sum to 1.

    The arguments are those of `language_preference`.
    """
    of_documents = np.asarray(document_languages)
    discounts = 1 / np.log2(np.arange(2, 12))
    rows: list[dict[str, float]] = []
    for ranked, gold, language in zip(ranking, relevant, np.asarray(query_languages), strict=True):
        is_own, is_found = of_documents[gold] == language, np.isin(gold, ranked[:10])
        is_right, is_same = np.isin(ranked, gold), of_documents[ranked] == language
        gains = (is_right * (1 + is_same))[:10]
        best = np.sort(1 + is_own)[::-1][:10]
        is_defined = is_own.any() and not is_own.all() and is_right.any()
        first = f"{'right' if is_right[0] else 'wrong'}_{'same' if is_same[0] else 'other'}_language"
        rows.append(
            {
                "recall_at_10_same_language": is_found[is_own].mean() if is_own.any() else np.nan,
                "recall_at_10_other_languages": is_found[~is_own].mean() if not is_own.all() else np.nan,
                "language_preference_rate": float(is_same[is_right.argmax()]) if is_defined else np.nan,
                "language_ndcg_at_10": gains @ discounts[: len(gains)] / (best @ discounts[: len(best)]),
                **{name: float(name == first) for name in _FIRST_RESULTS},
            }
        )
    return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}
