"""Retrieval: metrics of ranked results, the data of a pool, its reader in BEIR's layout, and the shared evaluator."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from datasets import Dataset
from datasets.fingerprint import generate_fingerprint
from numpy.typing import ArrayLike, NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor
from typing_extensions import Self

from st_xlret.columns import Role
from st_xlret.data import beir
from st_xlret.data.reading import DataError, read_jsonl
from st_xlret.encoding import KeptVectors, fingerprint
from st_xlret.evaluation.base import (
    BenchmarkEvaluator,
    BenchmarkResult,
    chosen_names,
    name_file_in_errors,
)
from st_xlret.files import PathLike
from st_xlret.languages import check_language, languages_of_labels
from st_xlret.search import top_k, unit_rows

logger = logging.getLogger(__name__)

CorpusVectors = Tensor | KeptVectors
Values = NDArray[np.float64]
TEXT_COLUMNS = dict.fromkeys(("id", "title", "text", "language"), "string")


def mrr_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> Values:
    """Reciprocal rank of the first hit of each query among its k best results, 0 if there is none: (Q,).

    Args:
        hits: Boolean (Q, K), whether the result at each rank is relevant, best first. Ranks beyond K are no hits.
        relevant: (Q,), the number of documents that are relevant to each query, found or not; at least 1.
        k: Results per query that are considered.
    """
    best = np.asarray(hits, dtype=bool)[:, :k]
    return np.where(best.any(axis=1), 1.0 / (best.argmax(axis=1) + 1), 0.0)


def recall_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> Values:
    """Fraction of the relevant documents of each query that are among its k best results; see `mrr_at_k`."""
    return np.divide(np.asarray(hits, dtype=bool)[:, :k].sum(axis=1), np.asarray(relevant))


def success_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> Values:
    """Whether a relevant document is among the k best results of each query; see `mrr_at_k`."""
    return np.where(np.asarray(hits, dtype=bool)[:, :k].any(axis=1), 1.0, 0.0)


def map_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> Values:
    """Average precision of the k best results of each query, whose mean is mAP@k; see `mrr_at_k`.

    `AP@k = sum_{r<=k} hit_r * (hits among the first r) / r / min(R, k)` with R relevant documents. (trec_eval's
    `map_cut` divides by R.)

    Example:
        >>> map_at_k([[True, False, True], [False, True, True]], [2, 5], k=2).tolist()
        [0.5, 0.25]
    """
    best = np.asarray(hits, dtype=bool)[:, :k]
    ranks = np.arange(1, best.shape[1] + 1)
    return (best * best.cumsum(axis=1) / ranks).sum(axis=1) / np.minimum(np.asarray(relevant), k)


def ndcg_at_k(hits: ArrayLike, relevant: ArrayLike, k: int) -> Values:
    """Normalised discounted cumulative gain of the k best results of each query; see `mrr_at_k`."""
    best, discounts = np.asarray(hits, dtype=bool)[:, :k], 1 / np.log2(np.arange(2, k + 2))
    ideal = discounts.cumsum()[np.minimum(np.asarray(relevant), k) - 1]
    return (best * discounts[: best.shape[1]]).sum(axis=1) / ideal


METRICS = {
    "mrr": mrr_at_k,
    "recall": recall_at_k,
    "success": success_at_k,
    "map": map_at_k,
    "ndcg": ndcg_at_k,
}


def language_metrics(
    ranking: NDArray[np.int64],
    relevant: Sequence[NDArray[np.int64]],
    query_languages: Sequence[str],
    document_languages: Sequence[str],
) -> dict[str, Values]:
    """What a search finds in the query's language and in others, each (Q,), NaN for queries without a value.

    `ranking` has corpus rows (Q, K), best first, and `relevant` those relevant to each query, which are taken to be
    translations of each other, as in LAReQA; negative ones are not in the corpus. Some names are those of MLAIRE
    ([arXiv:2605.07249](https://arxiv.org/abs/2605.07249)); the definitions are these:

    - `recall_at_10_same_language`, `recall_at_10_other_languages`: Recall@10 of the relevant documents in the query's
      language, and of those in other languages.
    - `same_language_at_10`: The share of the first ten results that is in the query's language.
    - `language_preference`: How much more often the first min(R, 20) results share the query's language than the R
      relevant documents do, from -1 to 1: 0 for a perfect ranking.
    - `language_preference_rate`: Whether the first relevant result is in the query's language, for queries with
      relevant documents in it and in others, of which the ranking has one.
    - `language_ndcg_at_10`: nDCG@10 with a gain of 2 for a relevant document in the query's language, else of 1.
    - `right_same_language`, `right_other_language`, `wrong_same_language`, `wrong_other_language`: The first result.
    """
    of_documents, discounts = (
        np.array(languages_of_labels(document_languages)),
        1 / np.log2(np.arange(2, 12)),
    )
    kinds = [
        f"{what}_{which}_language" for what in ("right", "wrong") for which in ("same", "other")
    ]
    rows: list[dict[str, Any]] = []
    for ranked, judged, language in zip(
        ranking, relevant, languages_of_labels(query_languages), strict=True
    ):
        if not len(gold := judged[judged >= 0]) or not language:
            rows.append({})
            continue
        is_own, is_found = of_documents[gold] == language, np.isin(gold, ranked[:10])
        is_right, is_same = np.isin(ranked, gold), of_documents[ranked] == language
        gains, ideal = (is_right * (1 + is_same))[:10], np.sort(1 + is_own)[::-1][:10]
        has_both = is_own.any() and not is_own.all()
        first = (
            f"{'right' if is_right[0] else 'wrong'}_{'same' if is_same[0] else 'other'}_language"
        )
        rows.append(
            {
                "recall_at_10_same_language": is_found[is_own].mean() if is_own.any() else np.nan,
                "recall_at_10_other_languages": is_found[~is_own].mean()
                if not is_own.all()
                else np.nan,
                "same_language_at_10": is_same[:10].mean(),
                "language_preference_rate": is_same[is_right.argmax()]
                if has_both and is_right.any()
                else np.nan,
                "language_ndcg_at_10": gains
                @ discounts[: len(gains)]
                / (ideal @ discounts[: len(ideal)]),
                **{kind: kind == first for kind in kinds},
                "language_preference": is_same[: min(len(gold), 20)].mean() - is_own.mean(),
            }
        )
    names = next(filter(None, rows), {})
    return {
        name: np.array([row.get(name, np.nan) for row in rows], dtype=np.float64) for name in names
    }


def texts_table(rows: Iterable[tuple[str, str, str, str]]) -> Dataset:
    """Rows (id, title, text, language) as a table, without titles if all are empty; a missing language is ""."""
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    columns[3] = languages_of_labels(columns[3])
    table = dict(zip(TEXT_COLUMNS, columns, strict=True))
    return Dataset.from_dict(
        {name: column for name, column in table.items() if name != "title" or any(column)}
    )


def full_texts(table: Dataset) -> list[str]:
    """What is encoded: title and text, joined with a space as in BEIR and mteb."""
    if "title" not in table.column_names:
        return list(table["text"][:])  # as it stands: XQuAD-R's candidates begin with spaces
    return [
        f"{title} {text}".strip()
        for title, text in zip(table["title"][:], table["text"][:], strict=True)
    ]


@dataclass(frozen=True)
class RetrievalData:
    """A corpus and queries, as `texts_table` makes them, and judgements, whose file messages name.

    Those queries count that have a relevant document, found or not.

    Raises:
        DataError: If no query has a relevant document, a judged query is not there, or a judged id stands twice.
    """

    corpus: Dataset
    queries: Dataset
    qrels: Mapping[
        str, Mapping[str, int]
    ]  # query id to document id to judgement; relevant are those above 0
    file: str = "qrels"

    def __post_init__(self) -> None:
        _ = self._relevant_rows

    @cached_property
    def _relevant_rows(self) -> dict[int, NDArray[np.int64]]:
        """Row of each query that counts to its relevant corpus rows, -1 for a missing one; raises a DataError."""
        judged = sorted({document for judgements in self.qrels.values() for document in judgements})
        query_rows, document_rows = (
            _rows_by_id(self.queries, self.qrels),
            _rows_by_id(self.corpus, judged),
        )
        missing = [name for name, rows in document_rows.items() if not rows]
        document_rows |= dict.fromkeys(missing, [-1])
        every = [*query_rows.items(), *document_rows.items()]
        problems = [
            f"{name!r} stands {len(rows)} times in the texts"
            for name, rows in every
            if len(rows) != 1
        ]
        relevant = {}
        for query, judgements in self.qrels.items():
            rows = sorted(document_rows[name][0] for name, value in judgements.items() if value > 0)
            if rows and query_rows[query]:
                relevant[query_rows[query][0]] = np.array(rows)
        if all(rows[-1] < 0 for rows in relevant.values()):
            problems.append("no query has a relevant document")
        if problems:
            raise DataError(problems[0], file=self.file)
        if missing:
            problem = (
                f"{len(missing)} judged documents are not in the corpus and count as not found"
            )
            logger.warning("%s: %s, such as %r", self.file, problem, missing[0])
        return dict(sorted(relevant.items()))

    @property
    def relevant(self) -> list[NDArray[np.int64]]:
        """The corpus rows relevant to each of the `judged` queries, and -1 for each document that is missing."""
        return list(self._relevant_rows.values())

    @cached_property
    def judged(self) -> Dataset:
        """The queries that count, in their order."""
        return Dataset.from_dict(self.queries[list(self._relevant_rows)])

    def select_languages(
        self, languages: Sequence[str] | None, *, corpus: bool = False
    ) -> RetrievalData:
        """The data with the queries of some languages (None: all) and, with `corpus`, their documents alone."""
        if languages is None:
            return self
        chosen = set(chosen_names(languages, self.queries.unique("language"), self.file))

        def select_rows(table: Dataset) -> Dataset:
            return Dataset.from_dict(
                table[[row for row, code in enumerate(table["language"][:]) if code in chosen]]
            )

        queries, documents = (
            select_rows(self.queries),
            select_rows(self.corpus) if corpus else self.corpus,
        )
        asked, left = set(queries["id"][:]), set(documents["id"][:]) if corpus else None
        qrels = {
            query: {
                name: value for name, value in judgements.items() if left is None or name in left
            }
            for query, judgements in self.qrels.items()
            if query in asked
        }
        return RetrievalData(documents, queries, qrels, self.file)


def _rows_by_id(table: Dataset, names: Iterable[str]) -> dict[str, list[int]]:
    """Each name to the rows whose id it is; of a large table, a part of the ids is in memory at a time."""
    batches = table.select_columns(["id"]).iter(batch_size=100_000)
    ids: Iterator[str] = (name for batch in batches for name in batch["id"])  # type: ignore[index]
    rows: dict[str, list[int]] = {name: [] for name in names}
    for row, name in enumerate(ids):
        if name in rows:
            rows[name].append(row)
    return rows


class RetrievalEvaluator(BenchmarkEvaluator):
    """Retrieval from one or more pools of documents, scored per language of the queries and averaged over languages.

    Its own files are a pool in BEIR's layout, see [`read_beir`][st_xlret.evaluation.read_beir]. A pool in several
    languages also gets `recall_at_10` and [`language_metrics`][st_xlret.evaluation.language_metrics].

    Args:
        pools: Name to data, or to a function that loads them: one pool is in memory at a time.
        split: Name of the split, for the result.
        similarity: `"cosine"` or `"dot"`. Default: that of the model.
        keep_vectors: Folder that keeps the vectors of the corpora on the disk: an interrupted run goes on from there.
        distributed: With `keep_vectors`, share the corpora among the processes of torchrun.
        notes: Further entries of the protocol.
        **options: Those of [`BenchmarkEvaluator`][st_xlret.evaluation.BenchmarkEvaluator].
    """

    benchmark = "retrieval"
    metrics: tuple[str, ...] = (
        "mrr_at_100",
        "recall_at_100",
        "mrr_at_10",
        "success_at_10",
    )  # the first is `primary`
    layout = "corpus.jsonl, queries.jsonl, qrels/test.tsv (BEIR)"
    splits: tuple[str, ...] = ("test", "dev", "train")
    task: str = "retrieval of relevant documents from one pool"  # this and the direction stand in the protocol
    direction: str = "queries to documents"

    def __init__(
        self,
        pools: Mapping[str, Any | Callable[[], Any]],
        *,
        split: str = "test",
        similarity: Literal["cosine", "dot"] | None = None,
        keep_vectors: PathLike | None = None,
        distributed: bool = False,
        notes: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.primary = self.primary or self.metrics[0]
        super().__init__(**options)
        self.pools, self.split, self.similarity, self.notes = (
            dict(pools),
            split,
            similarity,
            dict(notes or {}),
        )
        self.keep_vectors, self.distributed = keep_vectors, distributed

    @classmethod
    def from_files(
        cls, folder: Any, languages: Sequence[str] | None, *, split: str = "test", **options: Any
    ) -> Self:
        """The evaluator of one pool and a split's queries; the option `language` is that of texts that name none."""
        language = options.pop("language", None)
        data = read_beir(folder, split=split, language=language and check_language(language))
        return cls({"all": data.select_languages(languages)}, split=split, **options)

    def score(self, model: SentenceTransformer) -> dict[str, dict[str, float]]:
        """Language of the queries to metric to value."""
        scores: dict[str, dict[str, float]] = {}
        self.sizes = dict[str, int]()
        for name, pool in self.pools.items():
            data = pool() if callable(pool) else pool
            self.sizes[name] = len(data.corpus)
            scores |= self.score_pool(model, data)
        return scores

    def score_pool(self, model: SentenceTransformer, data: Any) -> dict[str, dict[str, float]]:
        """Language of the queries of one pool to metric to value."""
        queries, documents = self.embed_pool(model, data.judged, data.corpus)
        depth = max(10, *(int(name.rpartition("_")[2]) for name in self.metrics))
        return score_ranking(ranking_of(queries, documents, depth), data, self.metrics)

    def embed_pool(
        self, model: SentenceTransformer, queries: Dataset, corpus: Dataset
    ) -> tuple[Tensor, CorpusVectors]:
        """Vectors of queries and corpus, whose dot products are the similarity; the corpus's are kept if wanted."""

        def embed_table(table: Dataset, role: Role) -> Tensor:
            vectors = self.embed_texts(model, full_texts(table), table["language"][:], role)
            return unit_rows(vectors) if self._uses_cosine(model) else vectors

        if self.keep_vectors is None:
            return embed_table(queries, "query"), embed_table(corpus, "document")
        settings = (
            self.protocol(model),
            model.prompts,
            model.default_prompt_name,
            generate_fingerprint(corpus),
        )
        parts = [
            fingerprint(model),
            "" if self.calibration is None else fingerprint(self.calibration),
            repr(settings),
        ]
        folder = Path(self.keep_vectors, hashlib.sha256(" ".join(parts).encode()).hexdigest()[:32])
        vectors = KeptVectors(folder, distributed=self.distributed)
        vectors.write(
            corpus,
            lambda rows: embed_table(corpus.select(range(rows.start, rows.stop)), "document"),
        )
        return embed_table(queries, "query"), vectors

    def _uses_cosine(self, model: SentenceTransformer) -> bool:
        return {"cosine": True, "dot": False}[self.similarity or str(model.similarity_fn_name)]

    def evaluate(self, model: SentenceTransformer) -> BenchmarkResult:
        """Scores per query language, their averages, and the protocol with the sizes of the pools."""
        result = super().evaluate(model)
        sizes = [
            f"{name} {size}" if len(self.sizes) > 1 else str(size)
            for name, size in self.sizes.items()
        ]
        result.protocol.update(languages=str(len(result.scores)), corpus_size=", ".join(sizes))
        return result

    def protocol(self, model: SentenceTransformer) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        entries = {
            "task": self.task,
            "split": self.split,
            "direction": self.direction,
            **super().protocol(model),
        }
        return {
            **entries,
            "similarity": "cosine" if self._uses_cosine(model) else "dot",
            **self.notes,
        }


def ranking_of(queries: Tensor, documents: CorpusVectors, k: int) -> NDArray[np.int64]:
    """The corpus rows of the k best documents of each query, best first; of equal scores, the lower row comes first."""
    depth = min(k, len(documents))
    best = (
        top_k(queries, documents, depth)
        if isinstance(documents, Tensor)
        else documents.top_k(queries, depth)
    )
    return best[1].cpu().numpy()


def score_ranking(
    ranking: NDArray[np.int64],
    data: RetrievalData,
    metrics: Sequence[str] = ("mrr_at_100", "recall_at_100"),
) -> dict[str, dict[str, float]]:
    """Language of the queries to metric to its mean over them; metrics by language only for a corpus in several.

    `ranking` has the corpus rows (Q, K) of the results of the queries `data.judged`, best first; a metric is `mrr`,
    `recall`, `success`, `map` or `ndcg` at some depth.
    """
    hits = np.array(
        [np.isin(ranked, gold) for ranked, gold in zip(ranking, data.relevant, strict=True)]
    )
    counts = np.array([len(gold) for gold in data.relevant])
    asked = np.array(languages_of_labels(data.judged["language"]))
    is_mixed = len({*languages_of_labels(data.corpus.unique("language"))} - {""}) > 1
    values = {}
    for name in (*metrics, "recall_at_10") if is_mixed else metrics:
        kind, _, k = name.partition("_at_")
        values[name] = METRICS[kind](hits, counts, int(k))
    if is_mixed:
        values |= language_metrics(
            ranking, data.relevant, asked.tolist(), data.corpus["language"][:]
        )
    scores = {}
    for code in dict.fromkeys(asked.tolist()):
        means = {name: of_queries[asked == code] for name, of_queries in values.items()}
        scores[code] = {
            name: float(np.nanmean(each))
            for name, each in means.items()
            if not np.isnan(each).all()
        }
    return scores


def read_beir(
    folder: PathLike, *, split: str = "test", language: str | None = None
) -> RetrievalData:
    """Read a pool in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/SPLIT.tsv`.

    `language` is that of texts without a field `language`, in the record or in its `metadata`.
    Documents may name there what they are translations of: `translation_of` is the id of the
    original. The judgement of a document holds for its translations too, unless they are judged.
    """
    files = beir.BeirFiles.of_folder(folder, split)
    translations = _Translations()
    documents = texts_table(_read_texts(files.corpus, language, translations))
    queries = texts_table(_read_texts(files.queries, language))
    judgements = beir.read_qrels(files.qrels)
    ids = set(documents["id"][:])
    for of_query in judgements.values():
        judged = dict(of_query)
        for name, value in judged.items():
            for other in translations.of(name) & ids - judged.keys():
                of_query[other] = max(value, of_query.get(other, value))
    return RetrievalData(documents, queries, judgements, str(files.qrels))


class _Translations:
    """Ids of texts that say the same."""

    def __init__(self) -> None:
        self._group_of: dict[str, set[str]] = {}

    def add(self, one: str, other: str) -> None:
        """Say that two texts are translations of each other."""
        group = self.of(one) | self.of(other)
        for name in group:
            self._group_of[name] = group

    def of(self, name: str) -> set[str]:
        """The translations of a text, and itself."""
        return self._group_of.get(name, {name})


def _read_texts(
    file: PathLike, language: str | None, translations: _Translations | None = None
) -> Iterator[tuple[str, str, str, str]]:
    """The rows of a table of texts."""
    for number, record in read_jsonl(file):
        with name_file_in_errors(file, number):
            text = beir.text_of_record(record)
            code = text.language
            if code is None:
                code = check_language(language or "", where="no language here, and no --language")
        if translations is not None and text.translation_of not in (None, text.id):
            translations.add(text.id, str(text.translation_of))
        yield text.id, text.title, text.text, code
