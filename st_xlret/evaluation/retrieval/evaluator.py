"""The evaluator that the retrieval benchmarks share: pools of documents, scored per language of the queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from tqdm.auto import tqdm

from st_xlret.evaluation.encoding.embedding import Calibration, Pooling, TextEmbedder
from st_xlret.evaluation.reporting.benchmark_evaluator import BenchmarkEvaluator
from st_xlret.evaluation.reporting.tables import BenchmarkResult, macro_average
from st_xlret.evaluation.retrieval.data import RetrievalData
from st_xlret.evaluation.retrieval.metrics import language_preference, parse_metric, score_ranking
from st_xlret.evaluation.retrieval.ranking import EmbedCorpus, Similarity, retrieve, similarity_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Pool: TypeAlias = "RetrievalData | Callable[[], RetrievalData]"


class RetrievalEvaluator(BenchmarkEvaluator):
    """Retrieval from one or more pools of documents, scored per language of the queries and averaged over languages.

    A subclass defines its benchmark, metrics and task, and reads its files. A subclass with another way of scoring
    overrides `score_pool`.

    Metrics: `average_{metric}`, the mean over the languages, and `{language}_{metric}`.

    Args:
        pools: Name to data, or to a function that loads them. With functions, one pool is in memory at a time.
        name: Prefix of the metrics. Default: the benchmark's.
        split: Name of the split, for the result.
        layer: See `encode_layer`.
        pooling: See `encode_layer`.
        calibration: Applied to each language's embeddings, such as a `CalibrationLayer`.
        query_prompt: Prompt put before queries. Default: that of the model.
        document_prompt: Prompt put before documents. Default: that of the model.
        similarity: `"cosine"` or `"dot"`. Default: that of the model.
        embed_corpus: Source of the embeddings of the corpus, see `retrieve`, or a mapping from the names of the pools
            to such sources. Default: all are encoded into memory.
        batch_size: Size of a forward pass, in texts of 64 tokens (see `encode_texts`).
        precision: Number format of the model, `"fp32"`, `"bf16"` or `"auto"` (bf16 where the device computes in it).
        show_progress_bar: Whether to show bars over pools and batches.
        write_csv: Whether to append the metrics to a CSV file where an output path is given.
        language_metrics: Whether to return each language's metrics, beside the means.

    Raises:
        ValueError: If there are no pools, or the calibration does not know a language.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> from st_xlret.evaluation.retrieval.data import TextCollection
        >>> model = SentenceTransformer(modules=[BoW(vocab=["taxi", "hotel"])], device="cpu")
        >>> corpus = TextCollection(["a", "b"], ["a taxi", "a hotel"], "en")
        >>> data = RetrievalData(corpus, TextCollection(["q"], ["hotel"], "fr"), {"q": {"b": 1}})
        >>> RetrievalEvaluator({"all": data})(model)["retrieval_average_mrr_at_100"]
        1.0
    """

    benchmark: str = "retrieval"
    metrics: tuple[str, ...] = ("mrr_at_100", "recall_at_100")
    task: str = "retrieval of relevant documents from one pool"
    direction: str = "queries to documents"

    def __init__(
        self,
        pools: Mapping[str, Pool],
        *,
        name: str | None = None,
        split: str = "test",
        layer: int | None = None,
        pooling: Pooling | None = None,
        calibration: Calibration | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        similarity: Similarity | None = None,
        embed_corpus: EmbedCorpus | Mapping[str, EmbedCorpus] | None = None,
        batch_size: int = 128,
        precision: str = "fp32",
        show_progress_bar: bool = False,
        write_csv: bool = True,
        language_metrics: bool = True,
    ) -> None:
        name = self.benchmark if name is None else name
        super().__init__(
            name=name,
            csv_file=f"{name.replace('-', '_')}_evaluation_results.csv",
            primary_metric=f"average_{self.metrics[0]}",
            write_csv=write_csv,
            language_metrics=language_metrics,
        )
        if not pools:
            raise ValueError("there is nothing to evaluate: no pools were given.")
        self.pools = dict(pools)
        self.split = split
        self.embedder = TextEmbedder(
            layer=layer,
            pooling=pooling,
            calibration=calibration,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            precision=precision,
            query_prompt=query_prompt,
            document_prompt=document_prompt,
        )
        self.similarity = similarity
        self.embed_corpus = embed_corpus
        self.show_progress_bar = show_progress_bar
        for pool in self.pools.values():
            if isinstance(pool, RetrievalData):
                self._require_languages(pool)

    def evaluate(self, model: SentenceTransformer) -> BenchmarkResult:
        """Scores per query language, their averages, and the protocol."""
        scores: dict[str, dict[str, float]] = {}
        documents, queries = {}, 0
        pools = tqdm(self.pools.items(), desc=self.name, disable=not self.show_progress_bar or len(self.pools) < 2)
        for pool_name, pool in pools:
            data = pool if isinstance(pool, RetrievalData) else pool()
            self._require_languages(data)
            of_pool = self.score_pool(model, data, pool_name)
            twice = sorted(set(of_pool) & set(scores))
            if twice:
                raise ValueError(f"pool {pool_name!r} has queries in {twice}, as another pool does.")
            scores.update(of_pool)
            documents[pool_name] = len(data.corpus)
            queries += len(data.judged)
        return BenchmarkResult(
            self.benchmark,
            scores,
            macro_average(scores),
            {
                **self._protocol(model),
                "similarity": similarity_of(model, self.similarity),
                "languages": str(len(scores)),
                "queries": str(queries),
                "corpus_size": ", ".join(f"{name} {size}" for name, size in documents.items())
                if len(documents) > 1
                else str(sum(documents.values())),
            },
        )

    def score_pool(
        self, model: SentenceTransformer, data: RetrievalData, pool_name: str
    ) -> dict[str, dict[str, float]]:
        """Language of the queries to metric to value, for one pool.

        A pool in several languages also gets the metric `language_preference`, see the function of this name.
        """
        ranking = retrieve(
            model,
            data.judged,
            data.corpus,
            k=max(parse_metric(name)[1] for name in self.metrics),
            embedder=self.embedder,
            similarity=self.similarity,
            embed_corpus=self.corpus_embedding(pool_name),
        )
        scores = score_ranking(ranking, data, self.metrics)
        if len(data.corpus.language_set()) > 1:
            for language, shares in language_preference(ranking, data).items():
                scores[language]["language_preference"] = shares["preference"]
        return scores

    def corpus_embedding(self, pool_name: str) -> EmbedCorpus | None:
        """The source of the embeddings of one pool; None if they are encoded into memory."""
        if isinstance(self.embed_corpus, Mapping):
            return self.embed_corpus.get(pool_name)
        return self.embed_corpus

    def _require_languages(self, data: RetrievalData) -> None:
        self.embedder.require_languages(
            list(dict.fromkeys([*data.queries.language_set(), *data.corpus.language_set()]))
        )

    def _protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        return {"task": self.task, "split": self.split, "direction": self.direction, **self.embedder.describe(model)}
