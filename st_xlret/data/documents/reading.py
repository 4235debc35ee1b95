"""Finding documents in files, folders, memory and the Hugging Face Hub, and streaming them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from st_xlret.data.documents.hub import HubDocuments
from st_xlret.data.documents.plain_text import PLAIN_TEXT, language_of_text, read_plain_text
from st_xlret.data.documents.splitting import split_sentences
from st_xlret.data.languages import check_language, match_language
from st_xlret.data.reading.jsonl import DAMAGED, BadLines, DataError, open_bytes, read_jsonl, required_field
from st_xlret.data.reading.report import Report
from st_xlret.data.reading.sources import BEGINNING, JSONL, Place, Sources, first_record, split_sources
from st_xlret.data.reading.text import check_characters, clean_text

DOCUMENTS = (
    "documents are read from JSON lines (.jsonl or .json, also .gz and .xz), a document per line: "
    '{"language": "fr", "sentences": [...]} or {"language": "fr", "text": "..."} (CCNet: "raw_content"); and from text '
    "files that are named after their language (fr.txt.xz), with a blank line between documents"
)
JSON = (".json", ".json.gz", ".json.xz")


def find_documents(sources: Any) -> Sources:
    """The files, Hugging Face data sets and in-memory records of a `sources` argument that contain documents.

    Args:
        sources: As for [`load_documents`][st_xlret.load_documents].

    Raises:
        DataError: If a source does not exist, is no file of documents, or a folder contains none.
    """

    def choose(file: Path, is_named: bool) -> bool | None:
        if file.name.endswith(PLAIN_TEXT):
            return _is_named_after_a_language(file, must_be=is_named)
        if file.name.endswith(JSON):
            if is_named and not _begins_with_a_document(file):
                raise DataError(f"{str(file)!r} does not begin with a document; {DOCUMENTS}")
            return _begins_with_a_document(file) or None
        if not file.name.endswith(JSONL):
            if is_named:
                raise DataError(f"{str(file)!r} is not in a format of documents; {DOCUMENTS}")
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


def _is_named_after_a_language(file: Path, *, must_be: bool) -> bool | None:
    try:
        language_of_text(file)
    except DataError:
        if must_be:
            raise
        return None
    return True


def _begins_with_a_document(file: Path) -> bool:
    """Whether the first line of a file is a document; JSON files of other kinds are one object or list."""
    try:
        with open_bytes(file) as stream:
            record = json.loads(stream.readline(1 << 26))
    except (ValueError, RecursionError, *DAMAGED):
        return False
    return isinstance(record, dict) and is_document(record)


def read_records(file: str, **options: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Stream (number of the last line, record) of a file of documents; the options are those of `read_jsonl`."""
    return read_plain_text(file, **options) if file.endswith(PLAIN_TEXT) else read_jsonl(file, **options)


def _names_hub_dataset(path: str) -> bool:
    return (":" in path or "=" in path) and not os.path.exists(os.path.expanduser(path))


def is_document(record: Mapping[str, Any]) -> bool:
    """Whether a record looks like a document: a language, and sentences or text."""
    return "language" in record and not {"sentences", "text", "raw_content"}.isdisjoint(record)


class Document(NamedTuple):
    """A document as read: its cleaned sentences (`""` where one is empty), and the whole record."""

    language: str
    sentences: list[str]
    record: Mapping[str, Any]
    file: str
    place: Place

    @property
    def line(self) -> int:
        """Its line in the file; its last one, where it has several."""
        return self.place.record


def read_documents(
    found: Sources,
    wanted: frozenset[str] | None,
    report: Report[Any],
    bad_lines: BadLines,
    *,
    split_text: bool = True,
    show_progress: bool = True,
    start: Place = BEGINNING,
) -> Iterator[Document]:
    """Stream the documents in wanted languages, after the place at which reading stopped."""
    records = found.records(
        bad_lines, show_progress=show_progress, description="Reading documents", reader=read_records, start=start
    )
    for file, place, record in records:
        try:
            code = check_language(required_field(record, "language", str))
            language = match_language(code, wanted)
            sentences = [] if language is None else _sentences(record, language, split_text)
        except ValueError as error:
            bad_lines(DataError(str(error), file=file, line=place.record))
            continue
        if language is None:
            report.leave_out(code)
        else:
            cut = [bad_lines.cut(text, file, place.record) for text in sentences]
            yield Document(language, cut, record, file, place)


def _sentences(record: Mapping[str, Any], language: str, split_text: bool) -> list[str]:
    if record.get("sentences") is not None:
        return [clean_text(sentence) for sentence in required_field(record, "sentences", list)]
    name = "raw_content" if "raw_content" in record and "text" not in record else "text"
    if name not in record:
        raise ValueError(f"no field 'sentences' or 'text' (the record has {', '.join(map(repr, record))})")
    text = required_field(record, name, str)
    check_characters(text)
    if not split_text:
        return [clean_text(line) for line in text.splitlines()]
    # A line of CCNet is a paragraph.
    return split_sentences(text.replace("\n", "\n\n") if name == "raw_content" else text, language)
