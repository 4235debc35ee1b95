"""What judged queries find among stored vectors, calibrated in several ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from st_xlret.calibration.calibration import VectorCalibration, unit
from st_xlret.data.reading import read_qrels

_K = 10

Rows = tuple[Sequence[str], NDArray[Any], Sequence[str]]
"""Names, vectors (n, d) and languages of rows."""


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


def judged_recall(
    documents: Iterable[Rows], queries: Iterable[Rows], qrels: str, calibrations: Mapping[float, VectorCalibration]
) -> dict[float, tuple[Recall, Recall]]:
    r"""Search all documents by judged queries, exactly, in one pass over the documents.

    Args:
        documents: Batches of the documents as they are stored: names, vectors (n, d) and languages of rows that have
            both. Rows in languages without a map are left out.
        queries: Batches of the queries, of the same model.
        qrels: File of judgements, of BEIR or TREC, by these names.
        calibrations: Strength -> the calibration to measure.

    Returns:
        Strength -> the recall of every second judged query, and of the others.

    Raises:
        ValueError: If there are fewer than two judged queries, or a judgement names a query or a document that is not
            there, or has no vector, language or map.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> rows = np.eye(4, dtype=np.float32)
        >>> vectors = ["a", "b", "c", "d"], rows, ["en", "en", "fr", "fr"]
        >>> with TemporaryDirectory() as folder:
        ...     _ = open(f"{folder}/qrels.tsv", "w").write("query-id\tcorpus-id\tscore\na\tc\t1\nc\ta\t1")
        ...     calibration = VectorCalibration.fit({"en": rows[:2], "fr": rows[2:]}, min_texts=2)
        ...     first, second = judged_recall([vectors], [vectors], f"{folder}/qrels.tsv", {1.0: calibration})[1.0]
        >>> first.overall
        1.0
    """
    answers = {
        name: judged for name, judged in read_qrels(qrels).items() if any(grade > 0 for grade in judged.values())
    }
    if len(answers) < 2:
        raise ValueError(f"{qrels} has {len(answers)} queries with an answer: two halves of them are needed")
    mapped = {code for each in calibrations.values() for code in each.languages}
    asked = _joined(queries, mapped, set(answers))
    searches = {strength: _Search(each, asked) for strength, each in calibrations.items()}
    named = {document for judged in answers.values() for document in judged}
    place_of: dict[str, tuple[int, str]] = {}  # number and language of each judged document
    first = 0
    for batch in documents:
        names, vectors, codes = _usable(batch, mapped)
        for search in searches.values():
            search.add(vectors, codes, first)
        rows = zip(names, codes, strict=True)
        place_of |= {name: (first + row, code) for row, (name, code) in enumerate(rows) if name in named}
        first += len(names)
    for kind, known, missing in (
        ("query", set(asked[0]), set(answers)),
        ("document", set(place_of), named),
    ):
        if lost := sorted(missing - known):
            raise ValueError(
                f"{qrels}: {kind} {lost[0]!r} is not among the rows that have a vector, a language and a map"
            )
    judged_queries = [(row, name) for row, name in enumerate(asked[0])]
    halves = [set(asked[0][half::2]) for half in (0, 1)]
    found: dict[float, tuple[Recall, Recall]] = {}
    for strength, search in searches.items():
        of_halves = [
            _recall(
                [
                    (asked[2][row], search.best[row], [place_of[d] for d, grade in answers[name].items() if grade > 0])
                    for row, name in judged_queries
                    if name in half
                ]
            )
            for half in halves
        ]
        found[strength] = of_halves[0], of_halves[1]
    return found


class _Search:
    """The numbers of the best documents so far, by one calibration."""

    def __init__(self, calibration: VectorCalibration, asked: Rows) -> None:
        self.calibration = calibration
        self.asked = unit(calibration.transform(asked[1], "query", list(asked[2])))
        self.scores = np.empty((len(self.asked), 0), np.float32)
        self.best = np.empty((len(self.asked), 0), np.int64)

    def add(self, vectors: NDArray[Any], codes: Sequence[str], first: int) -> None:
        """Search further documents, of which the first has this number."""
        if not len(vectors):
            return
        mapped = unit(self.calibration.transform(vectors, "document", list(codes)))
        numbers = np.broadcast_to(np.arange(first, first + len(mapped)), (len(self.asked), len(mapped)))
        scores = np.concatenate([self.scores, self.asked @ mapped.T], axis=1)
        best = np.concatenate([self.best, numbers], axis=1)
        top = np.argsort(-scores, axis=1, kind="stable")[:, :_K]
        self.scores, self.best = np.take_along_axis(scores, top, 1), np.take_along_axis(best, top, 1)


def _usable(rows: Rows, mapped: set[str], names: set[str] | None = None) -> Rows:
    """The rows in languages that have a map, and with these names."""
    kept = [
        row
        for row, (name, code) in enumerate(zip(rows[0], rows[2], strict=True))
        if (not mapped or code in mapped) and (names is None or name in names)
    ]
    return [rows[0][row] for row in kept], rows[1][kept], [rows[2][row] for row in kept]


def _joined(batches: Iterable[Rows], mapped: set[str], names: set[str]) -> Rows:
    parts = [_usable(batch, mapped, names) for batch in batches]
    return (
        [name for part in parts for name in part[0]],
        np.concatenate([part[1] for part in parts]),
        [code for part in parts for code in part[2]],
    )


def _recall(queries: Sequence[tuple[str, NDArray[np.int64], list[tuple[int, str]]]]) -> Recall:
    """The recall of queries: their language, what they found, and the places and languages of their answers."""
    means = []
    for which in ("overall", "same", "other"):
        by_language: dict[str, list[float]] = {}
        for language, best, answers in queries:
            counted = [
                place for place, code in answers if which == "overall" or (code == language) == (which == "same")
            ]
            if counted:
                by_language.setdefault(language, []).append(float(np.isin(counted, best).mean()))
        means.append(float(np.mean([np.mean(each) for each in by_language.values()])) if by_language else float("nan"))
    return Recall(*means)
