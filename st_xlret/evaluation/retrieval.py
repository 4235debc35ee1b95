"""Retrieval: a corpus, queries and judgements, an exact search, and the evaluator that the benchmarks share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.data.beir import find_beir, read_qrels, read_texts
from st_xlret.data.lines import DataError, read_lines
from st_xlret.evaluation.base import BenchmarkEvaluator, BenchmarkResult, macro_average
from st_xlret.evaluation.embedding_cache import EmbeddingCache, StoredEmbeddings, fingerprint
from st_xlret.evaluation.metrics import hits_of_ranking, language_preference, parse_metric, recall_by_language
from st_xlret.search import top_k

Similarity = Literal["cosine", "dot"]
Qrels = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class TextCollection:
    """Texts with ids and languages: a corpus or the queries of a benchmark.

    The columns may be anything that is indexed and sliced like a list, such as memory-mapped columns of a data set.

    Attributes:
        ids: The id of each text.
        texts: The texts.
        languages: ISO 639-1 code of each text, or one code for all.
        titles: Titles, which are put before the texts with a space. Default: none.
        source: Origin of the texts, for error messages.

    Raises:
        ValueError: If the columns differ in length, or there are no texts.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    languages: str | Sequence[str]
    titles: Sequence[str] | None = None
    source: str = "collection"

    def __post_init__(self) -> None:
        columns = {"ids": self.ids, "texts": self.texts, "titles": self.titles, "languages": self.languages}
        lengths = {name: len(column) for name, column in columns.items() if not isinstance(column, str | None)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{self.source}: the columns differ in length: {lengths}.")
        if not len(self.ids):
            raise ValueError(f"{self.source}: there are no texts.")

    def __len__(self) -> int:
        return len(self.ids)

    def language_of(self, row: int) -> str:
        """The language of one row."""
        return self.languages if isinstance(self.languages, str) else self.languages[row]

    def full_texts(self, rows: slice = slice(None)) -> list[str]:
        """What is encoded: title and text of some rows, joined with a space as in BEIR and mteb."""
        if self.titles is None:
            return list(self.texts[rows])
        return [f"{title} {text}".strip() for title, text in zip(self.titles[rows], self.texts[rows], strict=True)]

    def languages_of(self, rows: slice = slice(None)) -> list[str]:
        """The languages of some rows."""
        if isinstance(self.languages, str):
            return [self.languages] * len(range(*rows.indices(len(self))))
        return list(self.languages[rows])

    def language_set(self) -> list[str]:
        """The distinct languages, in order of appearance."""
        return [self.languages] if isinstance(self.languages, str) else list(dict.fromkeys(self.languages))

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> TextCollection:
        """A collection of the given rows, in memory."""

        def pick(column: Sequence[str]) -> list[str]:
            return [column[int(row)] for row in rows]

        languages = self.languages if isinstance(self.languages, str) else pick(self.languages)
        titles = None if self.titles is None else pick(self.titles)
        return replace(self, ids=pick(self.ids), texts=pick(self.texts), titles=titles, languages=languages)

    def require_distinct_ids(self) -> None:
        """Raise a ValueError that names the first id that occurs twice. Needs 8 bytes of memory per id."""
        hashes = np.fromiter((hash(name) for name in self.ids), dtype=np.int64, count=len(self.ids))
        ordered = np.sort(hashes)
        suspects = ordered[1:][ordered[1:] == ordered[:-1]]
        seen: dict[str, int] = {}
        for row in np.isin(hashes, suspects).nonzero()[0].tolist() if len(suspects) else []:
            name = self.ids[row]
            if name in seen:
                raise ValueError(
                    f"{self.source}: id {name!r} occurs twice, as texts {seen[name] + 1} and {row + 1}: "
                    "ids must be distinct."
                )
            seen[name] = row

    def require_texts(self) -> None:
        """Raise a ValueError that names the first empty text."""
        for row, text in enumerate(self.texts):
            if not text.strip():
                raise ValueError(f"{self.source}: query {self.ids[row]!r} is empty.")


@dataclass(frozen=True)
class RetrievalData:
    """A corpus, queries and relevance judgements, checked.

    A document is relevant if its judgement is above 0. Queries without a relevant document have no score; `judged` has
    the others, which all count, whether a relevant document is found or not.

    Attributes:
        corpus: The documents.
        queries: The queries.
        qrels: Query id to document id to judgement.
        qrels_file: File of the judgements, of which error messages name the line.

    Raises:
        ValueError: If a query is empty, an id occurs twice, a judgement names an unknown id, or no query has a relevant
            document.
    """

    corpus: TextCollection
    queries: TextCollection
    qrels: Qrels
    qrels_file: str | None = field(default=None)

    def __post_init__(self) -> None:
        self.corpus.require_distinct_ids()
        self.queries.require_distinct_ids()
        self.queries.require_texts()
        if not self.relevant:
            raise ValueError(f"{self._where()} no query has a relevant document.")

    @cached_property
    def _judged_rows(self) -> tuple[list[int], list[NDArray[np.int64]]]:
        """Rows of the queries that count, and the corpus rows relevant to each."""
        row_of_query = {name: row for row, name in enumerate(self.queries.ids)}
        judged_documents = {document for judgements in self.qrels.values() for document in judgements}
        row_of_document = {name: row for row, name in enumerate(self.corpus.ids) if name in judged_documents}
        relevant: dict[int, NDArray[np.int64]] = {}
        for query, judgements in self.qrels.items():
            for document in judgements:
                if query not in row_of_query or document not in row_of_document:
                    raise ValueError(self._unknown_id(query, document, query_is_known=query in row_of_query))
            rows = [row_of_document[document] for document, judgement in judgements.items() if judgement > 0]
            if rows:
                relevant[row_of_query[query]] = np.array(sorted(rows), dtype=np.int64)
        return sorted(relevant), [relevant[row] for row in sorted(relevant)]

    @property
    def relevant(self) -> list[NDArray[np.int64]]:
        """The corpus rows relevant to each of the `judged` queries."""
        return self._judged_rows[1]

    @cached_property
    def judged(self) -> TextCollection:
        """The queries that count, which are those with a relevant document, in their order."""
        return self.queries.take(self._judged_rows[0])

    def of_languages(self, languages: str | Sequence[str]) -> RetrievalData:
        """The same corpus with the queries of some languages only.

        Raises:
            ValueError: If one of them has no query.
        """
        queries = self.queries.take(rows_in_languages(self.queries, languages))
        kept = set(queries.ids)
        return replace(self, queries=queries, qrels={q: found for q, found in self.qrels.items() if q in kept})

    def _where(self) -> str:
        return f"{self.qrels_file}:" if self.qrels_file else "qrels:"

    def _unknown_id(self, query: str, document: str, *, query_is_known: bool) -> str:
        unknown = f"document {document!r}" if query_is_known else f"query {query!r}"
        source = self.corpus.source if query_is_known else self.queries.source
        where = self._where()
        for number, line in read_lines(self.qrels_file) if self.qrels_file else ():
            fields = set(line.split())
            if all(name in fields or f'"{name}"' in line for name in (query, document)):
                where = f"{self.qrels_file}, line {number}:"
                break
        return f"{where} {unknown} is not in {source}. Give the queries, corpus and qrels of one split and version."


def rows_in_languages(texts: TextCollection, languages: str | Sequence[str]) -> list[int]:
    """The rows of the texts in some languages."""
    chosen = [languages] if isinstance(languages, str) else list(languages)
    there = texts.language_set()
    unknown = [language for language in chosen if language not in there]
    if unknown or not chosen:
        raise ValueError(f"{texts.source} has no {unknown}; it has {sorted(there)}.")
    return [row for row in range(len(texts)) if texts.language_of(row) in chosen]


def read_beir(
    folder: str | os.PathLike[str],
    *,
    split: str = "test",
    language: str | None = None,
    languages: Sequence[str] | None = None,
) -> RetrievalData:
    """Read a retrieval benchmark in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/SPLIT.tsv`, plain or gzip.

    Args:
        folder: The folder of these files.
        split: Name of the judgements. Queries without a judgement are left out.
        language: Language of the texts that have no `metadata.language` and no field `language`.
        languages: Languages of the queries to keep; the corpus stays whole. Default: all.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is malformed (file and line are named).
    """
    files = find_beir(folder, split)
    corpus, queries = (_read_collection(file, language) for file in (files.corpus, files.queries))
    data = RetrievalData(corpus, queries, read_qrels(files.qrels), str(files.qrels))
    return data if languages is None else data.of_languages(languages)


def _read_collection(path: Path, language: str | None) -> TextCollection:
    columns = Columns(str(path))
    titles = []
    for record in read_texts(path):
        of_record = record.language or language
        if of_record is None:
            reason = "the text has no language: give metadata.language, or one language for all texts"
            raise DataError(reason, file=str(path), line=record.line)
        columns.add(record.id, record.text, of_record, record.line)
        titles.append(record.title)
    return replace(columns.collection(), titles=titles if any(titles) else None)


class Columns:
    """Collects the columns of a `TextCollection` from a file, and refuses an id that stands twice."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.line_of: dict[str, int] = {}
        self.texts: list[str] = []
        self.languages: list[str] = []

    def add(self, name: str, text: str, language: str, line: int) -> None:
        """Add a text; its id must be new."""
        if name in self.line_of:
            reason = f"the id {name!r} occurs in line {self.line_of[name]} too"
            raise DataError(reason, file=self.source, line=line)
        self.line_of[name] = line
        self.texts.append(text)
        self.languages.append(language)

    def collection(self) -> TextCollection:
        """The texts."""
        return TextCollection(list(self.line_of), self.texts, self.languages, source=self.source)


def find_file(folder: str | os.PathLike[str], *names: str, layout: str = "") -> Path:
    """Find the first of several files in a folder, plain or gzipped."""
    for name in names:
        for candidate in (Path(folder) / name, Path(folder) / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    there = sorted(entry.name for entry in Path(folder).iterdir())[:12] if Path(folder).is_dir() else None
    found = f"the folder holds {there}" if there is not None else "there is no such folder"
    raise FileNotFoundError(f"expected {Path(folder) / names[0]} (or {names[0]}.gz){layout}; {found}.")


Data: TypeAlias = Any
"""What is searched: `RetrievalData`, or other data with `corpus`, `queries` and `judged`."""


class RetrievalEvaluator(BenchmarkEvaluator):
    """Retrieval from one or more pools of documents, scored per language of the queries and averaged over languages.

    A subclass defines its benchmark, metrics and task, and reads its files. One with another way of scoring overrides
    `score_pool`.

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

        A pool in several languages also gets `language_preference`, and the recall@10 of all relevant documents, of
        those in the query's language and of those in other languages.
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
        calibration: Any = embedder.calibration
        identity = {
            "model": fingerprint(model),
            "calibration": None if calibration is None else fingerprint(calibration),
            "prompt": embedder.prompt(model, "document"),
            "layer": embedder.layer,
            "pooling": embedder.pooling,
            "normalize": normalize,
            "precision": embedder.describe(model)["precision"],
        }
        embedder = replace(embedder, show_progress_bar=False)  # the cache has a bar of its own
        return asked, self.embed_corpus.embed(_Documents(corpus), embed, identity=identity)

    def _require_languages(self, data: Data) -> None:
        self.embedder.require_languages([*data.queries.language_set(), *data.corpus.language_set()])

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        return {"task": self.task, "split": self.split, "direction": self.direction, **self.embedder.describe(model)}


class _Documents:
    """(text, language) of each document of a corpus, read slice by slice."""

    def __init__(self, corpus: TextCollection) -> None:
        self.corpus = corpus

    def __len__(self) -> int:
        return len(self.corpus)

    def __iter__(self) -> Any:
        for start in range(0, len(self), 1_024):
            rows = slice(start, start + 1_024)
            yield from zip(self.corpus.full_texts(rows), self.corpus.languages_of(rows), strict=True)


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
    ranking: NDArray[np.int64], data: RetrievalData, metrics: Sequence[str] = ("mrr_at_100", "recall_at_100")
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
        values |= {f"recall_at_10_{name}": found for name, found in recall_by_language(*given).items()}
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
