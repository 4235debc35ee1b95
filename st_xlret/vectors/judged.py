"""What judged queries find among stored vectors, calibrated in several ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from tqdm.auto import tqdm

from st_xlret.data.beir import read_qrels
from st_xlret.evaluation.retrieval import RetrievalData, score_ranking, texts_table
from st_xlret.search import merge_top_k, top_k, unit_rows
from st_xlret.stores import Store
from st_xlret.vectors.calibration import VectorCalibration

_K = 10


class Recall(NamedTuple):
    """Recall@10, the mean over the languages of the queries; NaN where none has such answers.

    Attributes:
        overall: Of all answers.
        same_language: Of those in the query's language.
        other_languages: Of those in other languages.
    """

    overall: float
    same_language: float
    other_languages: float


class _Rows(NamedTuple):
    """Rows that have a vector and a language; their names are those that judgements use."""

    names: list[str]
    languages: list[str]
    vectors: np.ndarray


def judged_recall(
    documents: Store,
    queries: Store,
    qrels: str,
    calibrations: Mapping[float, VectorCalibration],
    *,
    show_progress_bar: bool = False,
) -> dict[float, tuple[Recall, Recall]]:
    """Search all documents by judged queries, exactly, in one pass over the documents.

    Args:
        documents: The documents, as they are stored.
        queries: The vectors of the queries, of the same model, with their languages.
        qrels: File of judgements, of BEIR or TREC. It names queries and documents by their keys in the store, or in a
            file by their numbers from 0.
        calibrations: Strength -> the calibration to measure.
        show_progress_bar: Show a progress bar over the documents.

    Returns:
        Strength -> the recall of every second judged query, and of the others.

    Raises:
        ValueError: If the dimensions differ, there are fewer than two judged queries, or a judgement names a query or
            a document that is not there, or has no vector, language or map.
    """
    if queries.dimension != documents.dimension:
        raise ValueError(
            f"{queries.name} has {queries.dimension} dimensions, and {documents.name} {documents.dimension}: "
            "queries and documents are of one model"
        )
    judgements = {
        name: found for name, found in read_qrels(qrels).items() if any(value > 0 for value in found.values())
    }
    if len(judgements) < 2:
        raise ValueError(f"{qrels} has {len(judgements)} queries with an answer: two halves of them are needed")
    asked = _Rows([], [], np.empty((0, queries.dimension), np.float32))
    codes = next((each.languages for each in calibrations.values() if each.languages), None)
    for rows in _usable_rows(queries, codes, set(judgements)):
        asked = _Rows(asked.names + rows.names, asked.languages + rows.languages, np.concatenate([asked[2], rows[2]]))
    searches = {strength: _Search(each, asked) for strength, each in calibrations.items()}
    known = {name for found in judgements.values() for name in found}
    answers: dict[str, str] = {}  # the language of each document that is judged or found
    first = 0
    with tqdm(total=len(documents), desc="Searching", unit=" rows", disable=not show_progress_bar) as bar:
        for rows in _usable_rows(documents, codes):
            for search in searches.values():
                search.add(rows, first)
            answers |= {name: code for name, code in zip(rows.names, rows.languages, strict=True) if name in known}
            first += len(rows.names)
            bar.update(len(rows.names))
    for search in searches.values():
        answers |= dict(search.names.values())
    corpus = texts_table((name, "", name, code) for name, code in answers.items())
    row_of = {name: row for row, name in enumerate(answers)}
    found: dict[float, tuple[Recall, Recall]] = {}
    of_queries = texts_table((name, "", name, code) for name, code in zip(asked.names, asked.languages, strict=True))
    for strength, search in searches.items():
        ranking = np.array([[row_of[search.names[row][0]] for row in best] for best in search.best.tolist()])
        data = RetrievalData(corpus, of_queries, judgements, qrels)
        found[strength] = _recall(ranking, data, 0), _recall(ranking, data, 1)
    return found


class _Search:
    """The best documents so far by one calibration."""

    def __init__(self, calibration: VectorCalibration, asked: _Rows) -> None:
        self.calibration = calibration
        self.asked = unit_rows(calibration.transform(asked.vectors, "query", asked.languages))
        self.scores = torch.empty(len(self.asked), 0)
        self.best = torch.empty(len(self.asked), 0, dtype=torch.int64)
        self.names: dict[int, tuple[str, str]] = {}

    def add(self, rows: _Rows, first: int) -> None:
        """Search further documents, of which the first has this number."""
        mapped = unit_rows(self.calibration.transform(rows.vectors, "document", rows.languages))
        scores, places = top_k(self.asked, mapped, min(_K, len(mapped)))
        scores, best = torch.cat([self.scores, scores], 1), torch.cat([self.best, first + places], 1)
        self.scores, self.best = merge_top_k(scores, best, min(_K, best.shape[1]))
        for row in (kept := set(self.best.unique().tolist())) - set(self.names):
            self.names[row] = rows.names[row - first], rows.languages[row - first]
        self.names = {row: self.names[row] for row in kept}


def _usable_rows(source: Store, codes: Collection[str] | None, names: Collection[str] | None = None) -> Iterator[_Rows]:
    """The rows that have a vector and a language, in batches; those in these languages, with these names, or all."""
    for rows in source.batches():
        vectors, usable, languages = source.usable(rows, Counter())
        usable &= np.array([codes is None or code in codes for code in languages])
        ids = rows.column("id").to_pylist()
        if names is not None:
            usable &= np.array([name in names for name in ids])
        kept = np.flatnonzero(usable).tolist()
        if kept:
            yield _Rows([ids[row] for row in kept], [languages[row] for row in kept], vectors[kept])


def _recall(ranking: np.ndarray, data: RetrievalData, half: int) -> Recall:
    """The recall of every second query that is judged."""
    names = set(data.judged["id"][half::2])
    part = RetrievalData(data.corpus, data.queries, {q: d for q, d in data.qrels.items() if q in names}, data.file)
    rows = [row for row, name in enumerate(data.queries["id"][:]) if name in names]
    scores = score_ranking(ranking[rows], part, ["recall_at_10"]).values()
    columns = [
        [each[name] for each in scores if name in each]
        for name in ("recall_at_10", "recall_at_10_same_language", "recall_at_10_other_languages")
    ]
    return Recall(*(float(np.mean(each)) if each else float("nan") for each in columns))
