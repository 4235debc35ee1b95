"""Questions with the strings that answer them, and Wikipedia's passages in which those are looked for, as in DPR."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from st_xlret.data.cache import cache_key, cached_dataset
from st_xlret.data.lines import DataError, read_lines
from st_xlret.evaluation.retrieval import TextCollection

Passage: TypeAlias = tuple[str, str, str]
"""Id, title and text."""

_LONGEST_FIELD = 2**27


@dataclass(frozen=True)
class AnsweredQuestions:
    """Passages (`corpus`), questions (`queries`), and the strings that answer each of them (`answers`).

    Raises:
        ValueError: If an id occurs twice, a question is empty, or the numbers of questions and answers differ.
    """

    corpus: TextCollection
    queries: TextCollection
    answers: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        if len(self.answers) != len(self.queries):
            counts = f"{len(self.queries)} questions, but answers to {len(self.answers)}"
            raise ValueError(f"{self.queries.source}: {counts}.")
        self.corpus.require_distinct_ids()
        self.queries.require_distinct_ids()
        self.queries.require_texts()

    @property
    def judged(self) -> TextCollection:
        """The questions that count, which are all of them."""
        return self.queries


def load_passages(
    file: Path,
    read: Callable[[Path], Iterator[Passage]],
    language: str,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
) -> TextCollection:
    """Load a file of passages as a collection that is memory-mapped."""
    key = cache_key(["passages", read.__qualname__], [file])
    columns = dict.fromkeys(("id", "title", "text"), "string")
    table = cached_dataset("passages", columns, read(file), key=key, cache_dir=cache_dir)
    if not len(table):
        raise DataError("there are no passages", file=str(file), line=1)
    return TextCollection(table["id"], table["text"], language, table["title"], source=str(file))


def read_dpr_passages(file: Path) -> Iterator[Passage]:
    """Id, title and text of DPR's `psgs_w100.tsv`: id, text, title, quoted as the csv module does, with a header."""
    last_line = 0

    def lines() -> Iterator[str]:
        nonlocal last_line
        for number, line in read_lines(file):
            last_line = number
            yield line + "\n"

    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    is_first = True
    try:
        for fields in csv.reader(lines(), delimiter="\t"):
            if len(fields) != 3:
                reason = f"expected three columns, id, text and title, got {len(fields)}: {fields[:1]}"
                raise DataError(reason, file=str(file), line=last_line)
            identifier, text, title = fields
            if not (is_first and identifier == "id"):
                yield identifier, title, text
            is_first = False
    except csv.Error as error:
        raise DataError(f"no tab-separated passage: {error}", file=str(file), line=last_line) from error
