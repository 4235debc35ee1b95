"""Finding documents in files, folders, memory and the Hugging Face Hub, and streaming them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import datasets

from st_xlret.data.documents.splitting import split_sentences
from st_xlret.data.languages import check_language, match_language
from st_xlret.data.reading.jsonl import BadLines, DataError, required_field
from st_xlret.data.reading.report import Report
from st_xlret.data.reading.sources import JSONL, Sources, first_record, split_sources
from st_xlret.data.reading.text import clean_text

DOCUMENTS = (
    "documents are read from .jsonl or .jsonl.gz files, a document per line: "
    '{"language": "fr", "sentences": [...]} or {"language": "fr", "text": "..."}'
)


class HubDocuments:
    """Records `{"language", "text"}` (or `"sentences"`) of a data set with a text column, read anew by each iteration.

    Args:
        dataset: Rows with `text`, `content` or `sentences`.
        language: Language of all of them. By default the rows' own `language` column.

    Raises:
        ValueError: If the data set has none of the text columns, or no language is known.
    """

    def __init__(self, dataset: datasets.Dataset, language: str | None = None) -> None:
        names = ("sentences", "text", "content")
        column = next((name for name in names if name in dataset.column_names), None)
        if column is None:
            raise ValueError(f"the data set needs a column out of {', '.join(names)}; it has {dataset.column_names}")
        if language is None and "language" not in dataset.column_names:
            raise ValueError("the data set has no 'language' column: name the language as NAME:CONFIG=LANGUAGE")
        self.dataset, self.column = dataset, column
        self.language = None if language is None else check_language(language)
        self._fingerprint = f"{dataset._fingerprint} {column} {self.language}"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        key = "sentences" if self.column == "sentences" else "text"
        for row in self.dataset:
            yield {"language": self.language or row["language"], key: row[self.column]}

    @classmethod
    def load(cls, name: str) -> HubDocuments:
        """Load the `train` split of a data set from the Hugging Face Hub, or from its local cache when offline.

        Args:
            name: `NAME=LANGUAGE`, `NAME:CONFIG=LANGUAGE` or, if the rows have a `language` column, `NAME:CONFIG`.
        """
        path, _, language = name.partition("=")
        path, _, config = path.partition(":")
        return cls(datasets.load_dataset(path, config or None, split="train"), language or None)


def find_documents(sources: Any) -> Sources:
    """The files, Hugging Face data sets and in-memory records of a `sources` argument that contain documents.

    Args:
        sources: As for [`load_documents`][st_xlret.load_documents].

    Raises:
        DataError: If a source does not exist, is not JSON lines, or a folder contains no documents.
    """

    def choose(file: Path, is_named: bool) -> bool | None:
        if not file.name.endswith(JSONL):
            if is_named:
                raise DataError(f"{str(file)!r} does not end in {' or '.join(JSONL)}; {DOCUMENTS}")
            return None
        if is_named:
            return True
        record = first_record(file)
        # A file whose lines are all bad is taken: reading it then reports them.
        return record is not None and (not record or is_document(record))

    paths, collections = split_sources(sources)
    hub = [path for path in paths if _names_hub_dataset(path)]
    rest = [path for path in paths if path not in hub]
    for path in rest:
        if not os.path.exists(os.path.expanduser(path)):
            hint = "Hugging Face data sets are named NAME:CONFIG=LANGUAGE"
            raise DataError(f"no such file or directory: {path!r}; {hint}")
    nothing = f"contains no documents; {DOCUMENTS}"
    return Sources.find([*rest, *map(HubDocuments.load, hub), *collections], choose, nothing=nothing)


def _names_hub_dataset(path: str) -> bool:
    return (":" in path or "=" in path) and not os.path.exists(os.path.expanduser(path))


def is_document(record: Mapping[str, Any]) -> bool:
    """Whether a record looks like a document: a language, and sentences or text."""
    return "language" in record and ("sentences" in record or "text" in record)


class Document(NamedTuple):
    """A document as read: its cleaned sentences (`""` where one is empty), and the whole record."""

    language: str
    sentences: list[str]
    record: Mapping[str, Any]
    file: str
    line: int


def read_documents(
    found: Sources,
    wanted: frozenset[str] | None,
    report: Report[Any],
    bad_lines: BadLines,
    *,
    split_text: bool = True,
    show_progress: bool = True,
) -> Iterator[Document]:
    """Stream the documents in wanted languages."""
    for file, line, record in found.records(bad_lines, show_progress=show_progress, description="Reading documents"):
        try:
            code = check_language(required_field(record, "language", str))
            language = match_language(code, wanted)
            sentences = [] if language is None else _sentences(record, language, split_text)
        except ValueError as error:
            bad_lines(DataError(str(error), file=file, line=line))
            continue
        if language is None:
            report.leave_out(code)
        else:
            yield Document(language, [bad_lines.cut(text, file, line) for text in sentences], record, file, line)


def _sentences(record: Mapping[str, Any], language: str, split_text: bool) -> list[str]:
    if record.get("sentences") is not None:
        return [clean_text(sentence) for sentence in required_field(record, "sentences", list)]
    if "text" not in record:
        raise ValueError(f"no field 'sentences' or 'text' (the record has {', '.join(map(repr, record))})")
    text = required_field(record, "text", str)
    clean_text(text)
    return split_sentences(text, language) if split_text else [clean_text(line) for line in text.splitlines()]
