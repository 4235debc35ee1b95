"""Retrieval: the evaluator of pools of documents, which the benchmarks of retrieval share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from datasets import Dataset
from datasets.fingerprint import generate_fingerprint
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor
from typing_extensions import Self

from st_xlret.columns import Role
from st_xlret.data.kept import cache_key
from st_xlret.encoding import KeptVectors, fingerprint
from st_xlret.evaluation.base import (
    BenchmarkEvaluator,
    BenchmarkResult,
    Scores,
    sizes_in_words,
)
from st_xlret.evaluation.by_language import MOST_RESULTS, language_metrics
from st_xlret.evaluation.metrics import METRIC_FUNCTIONS, Values
from st_xlret.evaluation.pools import RetrievalData, RowNumbers, full_texts, read_beir
from st_xlret.files import PathLike
from st_xlret.languages import languages_of_labels
from st_xlret.precision import resolve_precision
from st_xlret.search import top_k, unit_rows

_CorpusVectors = Tensor | KeptVectors
RETRIEVAL_OPTIONS = ("split", "similarity", "embedding_cache", "distributed")
"""Options of the command that every benchmark of retrieval reads."""


class PoolData(Protocol):
    """What a pool is, such as `RetrievalData`: tables of its documents and of the queries."""

    @property
    def corpus(self) -> Dataset:
        """The documents."""

    @property
    def judged(self) -> Dataset:
        """The queries that count."""


Pool = TypeVar("Pool", bound=PoolData)
Pools: TypeAlias = Mapping[str, Pool | Callable[[], Pool]]
"""Name to a pool, or to a function that loads it."""


class PoolEvaluator(BenchmarkEvaluator, Generic[Pool]):
    """Base of the evaluators of pools of documents, whatever says what is right in them.

    A subclass reads its files (`from_files`) and scores a pool (`score_pool`). The arguments are
    those of [`RetrievalEvaluator`][st_xlret.evaluation.RetrievalEvaluator].
    """

    metrics: tuple[str, ...] = ()
    # Both stand in the protocol.
    task: str = ""
    direction: str = ""

    def __init__(
        self,
        pools: Pools[Pool],
        *,
        split: str = "test",
        similarity: Literal["cosine", "dot"] | None = None,
        keep_vectors: PathLike | None = None,
        distributed: bool = False,
        notes: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.pools: dict[str, Pool | Callable[[], Pool]] = dict(pools)
        self.split = split
        self.similarity = similarity
        self.keep_vectors = keep_vectors
        self.distributed = distributed
        self.notes = dict(notes or {})
        self.sizes: dict[str, int] = {}

    def __init_subclass__(cls) -> None:
        """The first of the metrics that a class declares is `primary`, unless it names another."""
        super().__init_subclass__()
        declared = vars(cls)
        if "metrics" in declared and "primary" not in declared:
            cls.primary = cls.metrics[0]

    def evaluated_languages(self) -> list[str]:
        """The languages of the queries that count; all pools are loaded, and stay in memory."""
        languages = []
        for name, pool in self.pools.items():
            data = _loaded_pool(pool)
            self.pools[name] = data
            languages += data.judged.unique("language")
        return languages

    def score(self, model: SentenceTransformer) -> Scores:
        """Language of the queries to metric to value. Sets `sizes`, as it loads the pools.

        A `ValueError` refuses two pools with queries in one language.
        """
        scores: Scores = {}
        self.sizes = {}
        for name, pool in self.pools.items():
            data = _loaded_pool(pool)
            self.sizes[name] = len(data.corpus)
            pool_scores = self.score_pool(model, data)
            twice = sorted(pool_scores.keys() & scores.keys())
            if twice:
                raise ValueError(
                    f"the pool {name!r} and another one have queries in {', '.join(twice)}: give "
                    "them to evaluators of their own"
                )
            scores.update(pool_scores)
        return scores

    @abstractmethod
    def score_pool(self, model: SentenceTransformer, data: Pool) -> Scores:
        """Language of the queries of one pool to metric to value."""

    def embed_pool(
        self, model: SentenceTransformer, queries: Dataset, corpus: Dataset
    ) -> tuple[Tensor, _CorpusVectors]:
        """Vectors (Q, d) of queries and (C, d) of a corpus, whose dot products are similarities.

        Those of the corpus are kept on the disk if that is wanted.
        """
        query_vectors = self._embed_table(model, queries, "query")
        if self.keep_vectors is None:
            return query_vectors, self._embed_table(model, corpus, "document")

        def embed_rows(rows: slice) -> Tensor:
            part = corpus.select(range(rows.start, rows.stop))
            return self._embed_table(model, part, "document")

        folder = Path(self.keep_vectors, self._cache_key(model, corpus))
        vectors = KeptVectors(folder, distributed=self.distributed)
        vectors.write(corpus, embed_rows)
        return query_vectors, vectors

    def _embed_table(self, model: SentenceTransformer, table: Dataset, role: Role) -> Tensor:
        """The vectors of the rows of a table, of unit length where similarities are cosines."""
        vectors = self.embed_texts(model, full_texts(table), table["language"][:], role)
        if self._uses_cosine(model):
            return unit_rows(vectors)
        return vectors

    def _cache_key(self, model: SentenceTransformer, corpus: Dataset) -> str:
        """The name of the folder of kept vectors, made of all that they depend on."""
        settings = [
            fingerprint(model),
            None if self.calibration is None else fingerprint(self.calibration),
            self.layer,
            self.pooling,
            self._uses_cosine(model),
            resolve_precision(self.precision, model.device),
            self.prompts["document"],
            model.prompts,
            model.default_prompt_name,
            generate_fingerprint(corpus),
        ]
        return cache_key(settings)

    def _uses_cosine(self, model: SentenceTransformer) -> bool:
        """Whether similarities are cosines, not dot products; a ValueError refuses all others."""
        similarity = self.similarity or str(model.similarity_fn_name)
        if similarity not in ("cosine", "dot"):
            raise ValueError(
                f"the similarity {similarity!r} is none of a search: give cosine or dot "
                "(--similarity)"
            )
        return similarity == "cosine"

    def evaluate(self, model: SentenceTransformer) -> BenchmarkResult:
        """Scores per query language, their averages, and the protocol with the sizes of pools.

        The size of one pool is the bare number, as `published_results.json` has it.
        """
        result = super().evaluate(model)
        size = sizes_in_words(self.sizes)
        if len(self.sizes) == 1:
            [documents] = self.sizes.values()
            size = str(documents)
        result.protocol["languages"] = str(len(result.scores))
        result.protocol["corpus_size"] = size
        return result

    def protocol(self, model: SentenceTransformer) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        entries = {"task": self.task, "split": self.split, "direction": self.direction}
        entries.update(super().protocol(model))
        entries["similarity"] = "cosine" if self._uses_cosine(model) else "dot"
        entries.update(self.notes)
        return entries


class RetrievalEvaluator(PoolEvaluator[RetrievalData]):
    """Retrieval from pools of documents, scored per language of the queries and averaged over them.

    Its own files are a pool in BEIR's layout, see [`read_beir`][st_xlret.evaluation.read_beir]. A
    pool in several languages also gets `recall_at_10` and
    [`language_metrics`][st_xlret.evaluation.language_metrics].

    Args:
        pools: Name to data, or to a function that loads them: one pool is in memory at a time.
        split: Name of the split, for the result.
        similarity: `"cosine"` or `"dot"`. Default: that of the model.
        keep_vectors: Folder that keeps the vectors of the corpora on the disk: an interrupted run
            goes on from there.
        distributed: With `keep_vectors`, share the corpora among the processes of torchrun.
        notes: Further entries of the protocol.
        **options: Those of [`BenchmarkEvaluator`][st_xlret.evaluation.BenchmarkEvaluator].

    Attributes:
        sizes: Documents of each pool, as `score` has found them; `evaluate` puts them into the
            protocol.
    """

    benchmark = "retrieval"
    primary = "mrr_at_100"
    metrics: tuple[str, ...] = (
        "mrr_at_100",
        "recall_at_100",
        "mrr_at_10",
        "recall_at_10",
        "success_at_10",
    )
    layout = "corpus.jsonl, queries.jsonl, qrels/test.tsv (BEIR)"
    splits: tuple[str, ...] = ("test", "dev", "train")
    options: tuple[str, ...] = (*RETRIEVAL_OPTIONS, "language")
    # Both stand in the protocol.
    task: str = "retrieval of relevant documents from one pool"
    direction: str = "queries to documents"

    @classmethod
    def from_files(
        cls,
        folder: Any,
        languages: Sequence[str] | None,
        *,
        split: str = "test",
        language: str | None = None,
        **options: Any,
    ) -> Self:
        """The evaluator of one pool and a split's queries, whose texts may be in `language`."""
        data = read_beir(folder, split=split, language=language)
        return cls({"all": data.select_languages(languages)}, split=split, **options)

    def score_pool(self, model: SentenceTransformer, data: RetrievalData) -> Scores:
        """Language of the queries of one pool to metric to value."""
        queries, documents = self.embed_pool(model, data.judged, data.corpus)
        depth = MOST_RESULTS
        for metric in self.metrics:
            depth = max(depth, _depth_of(metric))
        ranking = ranking_of(queries, documents, depth)
        return score_ranking(ranking, data, self.metrics)


def _loaded_pool(pool: Pool | Callable[[], Pool]) -> Pool:
    """A pool, which a function may load."""
    if callable(pool):
        return pool()
    return pool


def ranking_of(queries: Tensor, documents: _CorpusVectors, k: int) -> RowNumbers:
    """The corpus rows of the k best documents of each query, best first.

    Of equal scores, the lower row comes first.
    """
    depth = min(k, len(documents))
    if isinstance(documents, Tensor):
        _, rows = top_k(queries, documents, depth)
    else:
        _, rows = documents.top_k(queries, depth)
    return rows.cpu().numpy()


def score_ranking(
    ranking: RowNumbers,
    data: RetrievalData,
    metrics: Sequence[str] = ("mrr_at_100", "recall_at_100"),
) -> Scores:
    """Language of the queries to metric to its mean over them.

    A corpus in several languages also has the metrics by language. `ranking` has the corpus rows
    (Q, K) of the results of the queries `data.judged`, best first; a metric is `mrr`, `recall`,
    `success`, `map` or `ndcg` at some depth.
    """
    names = list(metrics)
    asked = languages_of_labels(data.judged["language"])
    corpus_languages = set(languages_of_labels(data.corpus.unique("language")))
    is_mixed = len(corpus_languages - {""}) > 1
    if is_mixed and "recall_at_10" not in names:
        names.append("recall_at_10")
    values = _metrics_of_queries(ranking, data.relevant, names)
    if is_mixed:
        document_languages = data.corpus["language"][:]
        values |= language_metrics(ranking, data.relevant, asked, document_languages)
    scores = {}
    for code in dict.fromkeys(asked):
        is_asked = np.array([other == code for other in asked])
        scores[code] = _means_of_queries(values, is_asked)
    return scores


def _metrics_of_queries(
    ranking: RowNumbers, relevant: Sequence[RowNumbers], names: Sequence[str]
) -> dict[str, Values]:
    """Each metric of each query, (Q,).

    `ranking` (Q, k) has the rows that were found, best first, and `relevant` the right ones. A name
    begins with one of `METRIC_FUNCTIONS`, as `mrr_at_100` does.
    """
    found = []
    counts = []
    for ranked, gold in zip(ranking, relevant, strict=True):
        found.append(np.isin(ranked, gold))
        counts.append(len(gold))
    hits = np.array(found)
    values = {}
    for name in names:
        kind, _, _ = name.partition("_at_")
        metric = METRIC_FUNCTIONS[kind]
        values[name] = metric(hits, counts, _depth_of(name))
    return values


def _depth_of(metric: str) -> int:
    """100 of `mrr_at_100`."""
    _, _, depth = metric.partition("_at_")
    return int(depth)


def _means_of_queries(values: Mapping[str, Values], chosen: NDArray[np.bool_]) -> dict[str, float]:
    """The mean of each metric over some queries, without those that have no value."""
    means = {}
    for name, values_of_queries in values.items():
        chosen_values = values_of_queries[chosen]
        if np.isnan(chosen_values).all():
            continue
        means[name] = float(np.nanmean(chosen_values))
    return means
