"""Reading Natural Questions as DPR published them: questions with lists of answers, and Wikipedia's passages."""

from __future__ import annotations

import ast
import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from st_xlret.data.reading.jsonl import DataError, read_lines
from st_xlret.evaluation.readers.answered_questions import AnsweredQuestions
from st_xlret.evaluation.readers.passage_table import load_passages
from st_xlret.evaluation.readers.xor_retrieve import read_passages
from st_xlret.evaluation.retrieval.data import TextCollection

_SPLITS = ("dev", "test")


@dataclass(frozen=True)
class NQFiles:
    """The files of questions and passages."""

    questions: Path
    passages: Path


def find_nq(path: str | os.PathLike[str], split: str, passages: str | os.PathLike[str] | None = None) -> NQFiles:
    """The files of one split, see `NQEvaluator.from_directory`.

    Raises:
        ValueError: If there is no such split.
        FileNotFoundError: If a file is missing. The message says which was expected where.
    """
    if split not in _SPLITS:
        raise ValueError(f"split must be one of {_SPLITS}, got {split!r}.")
    folder = Path(path)
    names = (f"nq-{split}.csv", f"nq-{split}.qa.csv")
    tables = ("psgs_w100.tsv",) if passages is None else ()
    questions = _first_of(folder, names)
    if passages is None:
        return NQFiles(questions, _first_of(folder, tables))
    if not Path(passages).is_file():
        raise FileNotFoundError(f"{passages}: there is no such file of passages.")
    return NQFiles(questions, Path(passages))


def load_nq(
    files: NQFiles, *, cache_dir: str | os.PathLike[str] | None = None, show_progress_bar: bool = False
) -> AnsweredQuestions:
    """Load passages (memory-mapped), questions and answers.

    Raises:
        DataError: If a line is malformed. The message names file and line.
    """
    questions, answers = read_questions(files.questions)
    corpus = load_passages(
        files.passages, read_passages, "en", cache_dir=cache_dir, show_progress_bar=show_progress_bar
    )
    return AnsweredQuestions(corpus, questions, answers)


def read_questions(path: str | os.PathLike[str]) -> tuple[TextCollection, list[list[str]]]:
    """Read DPR's `nq-test.csv`: a question, a tab and a list of answers as Python writes it, on each line.

    The same question may occur twice; both count.

    Raises:
        DataError: If a line has other columns, a question is empty, or there are no answers.
    """
    name = os.fspath(path)
    texts: list[str] = []
    answers: list[list[str]] = []
    for number, (question, listed) in _rows(name):
        try:
            found = ast.literal_eval(listed)
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise DataError(f"no list of answers: {listed[:60]!r}", file=name, line=number) from error
        if not isinstance(found, list) or not found or not all(isinstance(answer, str) for answer in found):
            raise DataError(f"no list of answers: {listed[:60]!r}", file=name, line=number)
        if not question.strip():
            raise DataError("the question is empty", file=name, line=number)
        texts.append(question.replace("\u2019", "'"))  # as DPR does
        answers.append(found)
    if not texts:
        raise DataError("there are no questions", file=name, line=1)
    return TextCollection([str(row) for row in range(len(texts))], texts, "en", source=name), answers


def _rows(name: str) -> Iterator[tuple[int, tuple[str, str]]]:
    for number, line in read_lines(name):
        try:
            fields = next(csv.reader([line], delimiter="\t"))
        except csv.Error as error:
            raise DataError(f"no tab-separated line: {error}", file=name, line=number) from error
        if len(fields) != 2:
            reason = f"expected a question and its answers with a tab between them, got {len(fields)} columns"
            raise DataError(reason, file=name, line=number)
        yield number, (fields[0], fields[1])


def _first_of(folder: Path, names: Sequence[str]) -> Path:
    for name in names:
        for candidate in (folder / name, folder / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    there = sorted(entry.name for entry in folder.iterdir())[:12] if folder.is_dir() else "nothing: it does not exist"
    raise FileNotFoundError(f"expected {folder / names[0]} (or .gz); the folder holds {there}.")
