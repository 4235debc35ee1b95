"""What judged queries find among stored vectors, calibrated in several ways."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from st_xlret.calibration.calibration import Role, VectorCalibration, strict_unit_rows
from st_xlret.data.reading import read_qrels

Batch = tuple[Sequence[str], NDArray[Any], Sequence[str]]
"""Names, vectors (n, d) and languages of rows."""
_Row = tuple[str, NDArray[Any], str]


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
    documents: Iterable[Batch], queries: Iterable[Batch], qrels: str, calibrations: Mapping[float, VectorCalibration]
) -> dict[float, tuple[Recall, Recall]]:
    r"""Search all documents by judged queries, exactly, in one pass over the documents.

    Batches hold names, vectors (n, d) and languages of rows that have both, as they are stored; those in languages
    without a map are left out. `qrels` is a file of judgements, of BEIR or TREC, by these names: its queries have to be
    there; documents that are not are left out with a warning. `calibrations` go by their strength.

    Returns strength -> the recall of every second judged query, and of the others.

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
    judged = {query: grades for query, grades in read_qrels(qrels).items() if max(grades.values()) > 0}
    mapped = {code for each in calibrations.values() for code in each.languages}

    def rows_with_map(batch: Batch) -> list[_Row]:
        return [row for row in zip(*batch, strict=True) if not mapped or row[2] in mapped]

    asked = [row for batch in queries for row in rows_with_map(batch) if row[0] in judged]
    questions = {strength: _mapped_unit_rows(each, asked, "query") for strength, each in calibrations.items()}
    scores = {strength: np.empty((len(asked), 0), np.float32) for strength in calibrations}
    best = {strength: np.empty((len(asked), 0), np.int64) for strength in calibrations}
    candidates, first = {name for grades in judged.values() for name in grades}, 0
    place_of: dict[str, tuple[int, str]] = {}
    for batch in documents:
        rows = rows_with_map(batch)
        numbers = np.broadcast_to(np.arange(first, first + len(rows)), (len(asked), len(rows)))
        for strength, calibration in calibrations.items():
            cosines = questions[strength] @ _mapped_unit_rows(calibration, rows, "document").T
            cosines = np.concatenate([scores[strength], cosines], axis=1)
            top = np.argsort(-cosines, axis=1, kind="stable")[:, :10]
            scores[strength] = np.take_along_axis(cosines, top, 1)
            best[strength] = np.take_along_axis(np.concatenate([best[strength], numbers], axis=1), top, 1)
        place_of |= {name: (first + i, code) for i, (name, _, code) in enumerate(rows) if name in candidates}
        first += len(rows)
    lost = [f"query {name!r}" for name in sorted(judged.keys() - {name for name, *_ in asked})]
    missing = sorted(candidates - place_of.keys())
    lost += [] if place_of else [f"document {name!r}" for name in missing]
    if lost or len(judged) < 2:
        needed = "two halves of them, and each query and some documents among rows with vector, language and map"
        raise ValueError(f"{qrels} has {len(judged)} queries with an answer: needed are {needed}, not so: {lost[:1]}")
    if missing:
        what = f"{len(missing)} judged documents are not among the rows and left out, such as {missing[0]!r}"
        warnings.warn(f"{qrels}: {what}", stacklevel=2)
    grades_of = [[name for name, grade in judged[query].items() if grade > 0] for query, *_ in asked]
    answers = [[place_of[name] for name in names if name in place_of] for names in grades_of]
    languages = [code for *_, code in asked]
    return {
        strength: (_recall_of_half(languages, answers, nearest, 0), _recall_of_half(languages, answers, nearest, 1))
        for strength, nearest in best.items()
    }


def _mapped_unit_rows(calibration: VectorCalibration, rows: Sequence[_Row], role: Role) -> NDArray[Any]:
    vectors = np.reshape([vector for _, vector, _ in rows], (len(rows), calibration.dimension))
    return strict_unit_rows(calibration.transform(vectors, role, [code for *_, code in rows]))


def _recall_of_half(
    languages: Sequence[str], answers: Sequence[Sequence[tuple[int, str]]], best: NDArray[np.int64], half: int
) -> Recall:
    """The recall of every second query; `answers` are the numbers and languages of each query's."""
    means = []
    for kinds in ((True, False), (True,), (False,)):  # in the query's language, or not
        by_language: dict[str, list[float]] = {}
        for query in range(half, len(languages), 2):
            counted = [number for number, code in answers[query] if (code == languages[query]) in kinds]
            if counted:
                by_language.setdefault(languages[query], []).append(float(np.isin(counted, best[query]).mean()))
        means.append(float(np.mean([np.mean(each) for each in by_language.values()])) if by_language else np.nan)
    return Recall(*means)
