"""Reading XTREME's tasks on pairs of sentences: XNLI and PAWS-X, as they are published."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from st_xlret.data.reading.jsonl import DataError, read_lines


class LabelledPair(NamedTuple):
    """Two sentences and the number of their label."""

    first: str
    second: str
    label: int


@dataclass(frozen=True)
class PairTask:
    """A task on pairs of sentences: its labels, its languages, and how its files are read.

    Attributes:
        name: Its name in results, under which its published rows are.
        labels: Names of the labels, by their numbers.
        languages: The languages of its test sets.
        layout: The published files, for messages.
    """

    name: str
    labels: tuple[str, ...]
    languages: tuple[str, ...]
    layout: str


XNLI = PairTask(
    "xnli",
    ("contradiction", "entailment", "neutral"),
    ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh"),
    "multinli.train.en.tsv (XNLI-MT-1.0), xnli.dev.tsv and xnli.test.tsv (XNLI-1.0)",
)
PAWS_X = PairTask(
    "paws-x",
    ("0", "1"),
    ("de", "en", "es", "fr", "ja", "ko", "zh"),
    "en/train.tsv, en/dev_2k.tsv and de/test_2k.tsv and so on (x-final)",
)
PAIR_TASKS = {task.name: task for task in (XNLI, PAWS_X)}

_CONTRADICTION = "contradictory"  # in the training file of XNLI-MT


def read_training_pairs(task: PairTask, folder: str | os.PathLike[str]) -> list[LabelledPair]:
    """The English training pairs.

    Args:
        task: `XNLI` or `PAWS_X`.
        folder: The folder of the published files, or one above it.

    Raises:
        FileNotFoundError: If the file is missing.
        DataError: If a line is malformed. The message names file and line.
    """
    if task is XNLI:
        return _read(task, _find(task, folder, "multinli.train.en.tsv"), ("premise", "hypo", "label"))
    return _read(task, _find(task, folder, "en/train.tsv"), ("sentence1", "sentence2", "label"))


def read_evaluation_pairs(
    task: PairTask, folder: str | os.PathLike[str], split: str, languages: Sequence[str] | None = None
) -> dict[str, list[LabelledPair]]:
    """The pairs of one split in each language.

    Args:
        task: `XNLI` or `PAWS_X`.
        folder: The folder of the published files, or one above it.
        split: `"dev"` or `"test"`.
        languages: Default: all of the task.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a split or a language is not there, or a line is malformed.
    """
    if split not in ("dev", "test"):
        raise ValueError(f"split must be dev or test, got {split!r}.")
    wanted = list(task.languages if languages is None else languages)
    unknown = [language for language in wanted if language not in task.languages]
    if unknown or not wanted:
        raise ValueError(f"{task.name} has no {unknown}; it has {list(task.languages)}.")
    if task is PAWS_X:
        columns = ("sentence1", "sentence2", "label")
        return {code: _read(task, _find(task, folder, f"{code}/{split}_2k.tsv"), columns) for code in wanted}
    file = _find(task, folder, f"xnli.{split}.tsv")
    found: dict[str, list[LabelledPair]] = {code: [] for code in wanted}
    for number, row in _rows(file, ("language", "gold_label", "sentence1", "sentence2")):
        language, label, first, second = row
        if language in found:
            found[language].append(_pair(task, file, number, first, second, label))
    empty = [code for code, pairs in found.items() if not pairs]
    if empty:
        raise ValueError(f"{file} has no pairs in {', '.join(empty)}.")
    return found


def _read(task: PairTask, file: Path, columns: tuple[str, ...]) -> list[LabelledPair]:
    pairs = [_pair(task, file, number, *row) for number, row in _rows(file, columns)]
    if not pairs:
        raise DataError("there are no pairs", file=str(file), line=1)
    return pairs


def _pair(task: PairTask, file: Path, number: int, first: str, second: str, label: str) -> LabelledPair:
    label = "contradiction" if label == _CONTRADICTION else label
    if label not in task.labels:
        reason = f"the label {label!r} is none of {', '.join(task.labels)}"
        raise DataError(reason, file=str(file), line=number)
    return LabelledPair(first, second, task.labels.index(label))


def _rows(file: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The wanted columns of a table with a header; quotation marks are part of the text."""
    places: list[int] = []
    width = 0
    for number, line in read_lines(file):
        cells = line.split("\t")
        if not places:
            missing = [column for column in columns if column not in cells]
            if missing:
                reason = f"the header has no column {', '.join(missing)}; it has {', '.join(cells)[:200]}"
                raise DataError(reason, file=str(file), line=number)
            places, width = [cells.index(column) for column in columns], len(cells)
        elif len(cells) != width:
            raise DataError(f"expected {width} columns, got {len(cells)}", file=str(file), line=number)
        else:
            yield number, [cells[place] for place in places]


def _find(task: PairTask, folder: str | os.PathLike[str], name: str) -> Path:
    """A file of the task in the folder, or in one of those inside it, plain or gzip."""
    for pattern in ("", "*/", "*/*/"):
        for ending in ("", ".gz"):
            found = sorted(Path(folder).glob(f"{pattern}{name}{ending}"))
            if found:
                return found[0]
    raise FileNotFoundError(f"{folder} has no {name}, nor has a folder in it. Expected {task.layout}.")
