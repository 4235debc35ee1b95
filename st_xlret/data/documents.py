"""Loading documents into one memory-mapped data set with a row per sentence."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

import datasets
from datasets.fingerprint import generate_fingerprint

from st_xlret.data.cache import cached_dataset
from st_xlret.data.languages import check_language, check_languages, match_language
from st_xlret.data.lines import (
    DAMAGED,
    BadLines,
    DataError,
    Limits,
    OnBytesRead,
    PathLike,
    Report,
    open_bytes,
    read_jsonl,
    read_lines,
    required_field,
)
from st_xlret.data.sources import JSONL, Sources, first_record, split_sources, texts_to_exclude
from st_xlret.data.text import check_characters, clean_text, normalise_text, split_sentences

logger = logging.getLogger(__name__)

FEATURES = {"sentence": "string", "language": "string", "document": "int64", "position": "int32"}
FORMATS = (
    "documents are read from JSON lines (.jsonl or .json, also .gz and .xz), a document per line: "
    '{"language": "fr", "sentences": [...]} or {"language": "fr", "text": "..."} (CCNet: "raw_content"); and from text '
    "files that are named after their language (fr.txt.xz), with a blank line between documents"
)
_JSON = (".json", ".json.gz", ".json.xz")
_PLAIN_TEXT = (".txt", ".txt.gz", ".txt.xz")
_ROMANISED = "_rom"  # CC-100's hi_rom.txt.xz and others
_TEXT_COLUMNS = ("sentences", "text", "raw_content", "content")


class LoadReport(Report):
    """What [`load_documents`][st_xlret.load_documents] kept and what it left out, by language.

    It counts `documents` and `sentences` that were kept, of these the `one_sentence` documents; documents left out as
    `empty`, `too_short` (`min_sentences`) or `over_limit`; and sentences that were `excluded`.
    """

    counted = ("documents", "sentences", "one_sentence", "empty", "too_short", "over_limit", "excluded")


def load_documents(
    sources: Any,
    *,
    languages: Iterable[str] | None = None,
    exclude: Sequence[PathLike] = (),
    skip_bad_lines: bool = False,
    split_text: bool = True,
    min_sentences: int = 1,
    max_documents_per_language: int | None = None,
    limits: Limits | None = None,
    report: LoadReport | None = None,
    cache_dir: PathLike | None = None,
    show_progress_bar: bool = True,
) -> datasets.Dataset:
    """Read documents into one memory-mapped data set with a row per sentence.

    The text is streamed to an Arrow file, which a second call with the same unchanged files and options uses again.
    Documents are numbered from 0 in the order of the sorted file paths, then other sources; the rows of a document are
    contiguous. White space becomes single spaces; sentences that are empty or excluded do not count in positions.

    Args:
        sources: One or several of: a file of JSON lines; a text file with a paragraph per line and a blank line between
            documents, named after its language (CC-100's `fr.txt.xz`); a folder, searched recursively; a Hugging Face
            data set `NAME:CONFIG=LANGUAGE` (its `train` split, streamed); a `datasets.Dataset` or another iterable of
            records. A record has `language` and one of `sentences` (list of strings), `text`, or CCNet's `raw_content`.
            Files may be compressed (`.gz`, `.xz`).
        languages: Language codes to keep. All by default. `"pt"` also takes `"pt-br"` and stores it as `"pt"`, unless
            `"pt-br"` is named too; `"zh"` does not take `"zh-tw"`, which is in another script.
        exclude: Text files, one sentence per line, such as a test set. Sentences that occur in them are left out,
            whatever their case, punctuation and white space.
        skip_bad_lines: Skip and count bad lines instead of raising an error.
        split_text: Split `text` into sentences; otherwise each line is one.
        min_sentences: Documents with fewer sentences are left out; 1 keeps one-sentence documents.
        max_documents_per_language: The first documents of each language to keep. No limit by default.
        limits: Longest line and sentence; longer sentences are cut and counted.
        report: Filled with counts of what was kept and left out.
        cache_dir: Folder for the Arrow files. By default `st_xlret` inside the cache of `datasets`.
        show_progress_bar: Show a progress bar.

    Returns:
        Columns `sentence`, `language`, `document` (unique over all sources) and `position` (from 0 within the
        document).

    Raises:
        DataError: For a bad line (file and line are named), a source that does not exist, or if no document is left.
        ValueError: For an unknown language, a limit below 1, or a Hugging Face data set without text or language.

    Example:
        >>> import tempfile
        >>> records = [{"language": "en", "text": "It rained. We stayed in."}]
        >>> load_documents(records, cache_dir=tempfile.mkdtemp(), show_progress_bar=False)["sentence"][:]
        ['It rained.', 'We stayed in.']
    """
    for name, value in (("min_sentences", min_sentences), ("max_documents_per_language", max_documents_per_language)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    wanted, limits = check_languages(languages), limits or Limits()
    excluded, found = texts_to_exclude(exclude), find_documents(sources)
    options = [wanted and sorted(wanted), sorted(excluded), skip_bad_lines, split_text, min_sentences]
    key = found.cache_key([*options, max_documents_per_language, astuple(limits)])
    made = LoadReport(skip_bad_lines, limits, skipped_files=found.skipped)

    def rows() -> Iterator[tuple[Any, ...]]:
        number = 0
        for document in documents_of(
            found, wanted, made, made.other_languages, split_text=split_text, show_progress_bar=show_progress_bar
        ):
            counts = made.languages[document.language]
            sentences = [sentence for sentence in document.sentences if sentence]
            if excluded:
                kept = [sentence for sentence in sentences if normalise_text(sentence) not in excluded]
                counts["excluded"] += len(sentences) - len(kept)
                sentences = kept
            if not sentences:
                counts["empty"] += 1
            elif len(sentences) < min_sentences:
                counts["too_short"] += 1
            elif max_documents_per_language is not None and counts["documents"] >= max_documents_per_language:
                counts["over_limit"] += 1
            else:
                counts["documents"] += 1
                counts["sentences"] += len(sentences)
                counts["one_sentence"] += len(sentences) == 1
                for position, sentence in enumerate(sentences):
                    yield sentence, document.language, number, position
                number += 1
        if not number:
            raise DataError(f"no documents left to train on{found.named()}:\n{made}")

    dataset = cached_dataset("documents", FEATURES, rows(), key=key, report=made, cache_dir=cache_dir)
    made.publish(report, logger)
    for code in sorted((wanted or frozenset()) - made.languages.keys()):
        warnings.warn(f"no documents in language {code!r}", stacklevel=2)
    return dataset


class Document(NamedTuple):
    """A document as read: its cleaned sentences (`""` where one is empty), its record, and its (last) line."""

    language: str
    sentences: list[str]
    record: Mapping[str, Any]
    file: str
    line: int


def read_documents(
    sources: Any,
    *,
    languages: Iterable[str] | None = None,
    bad_lines: BadLines | None = None,
    show_progress_bar: bool = True,
) -> Iterator[Document]:
    """Stream documents, without keeping anything.

    Args:
        sources: As for [`load_documents`][st_xlret.load_documents].
        languages: As for `load_documents`.
        bad_lines: What to do about bad lines and too long sentences; `bad_lines.warn` says what was lost.
        show_progress_bar: Show a progress bar.

    Raises:
        DataError: As for `load_documents`.
    """
    bad_lines, wanted = bad_lines or BadLines(), check_languages(languages)
    yield from documents_of(find_documents(sources), wanted, bad_lines, show_progress_bar=show_progress_bar)


def find_documents(sources: Any) -> Sources:
    """The files, Hugging Face data sets and in-memory records of a `sources` argument that contain documents."""

    def choose(file: Path, is_named: bool) -> bool | None:
        if file.name.endswith(JSONL):
            record = {} if is_named else first_record(file)
            # A file whose lines are all bad is taken: reading it then reports them.
            return record is not None and (not record or _is_document(record))
        problem = "is not in a format of documents"
        if file.name.endswith(_PLAIN_TEXT):
            try:
                return bool(_language_of_text(file))
            except DataError:
                if is_named:
                    raise
        elif file.name.endswith(_JSON):
            if _begins_with_a_document(file):
                return True
            problem = "does not begin with a document"
        if is_named:
            raise DataError(f"{str(file)!r} {problem}; {FORMATS}")
        return None

    paths, collections = split_sources(sources)
    hub = [path for path in paths if (":" in path or "=" in path) and not os.path.lexists(os.path.expanduser(path))]
    there = [path for path in paths if path not in hub]
    nothing = f"contains no documents; {FORMATS}"
    return Sources.find([*there, *map(HubDocuments.load, hub), *collections], choose, nothing=nothing)


def documents_of(
    found: Sources,
    wanted: frozenset[str] | None,
    bad_lines: BadLines,
    left_out: Counter[str] | None = None,
    *,
    split_text: bool = True,
    show_progress_bar: bool = True,
) -> Iterator[Document]:
    """Stream the documents in wanted languages; `left_out` counts the others."""
    shown: dict[str, Any] = {"show_progress_bar": show_progress_bar, "description": "Reading documents"}
    for records in (found.in_files(_read_file, bad_lines, **shown), found.in_collections(bad_lines, **shown)):
        for file, (line, record) in records:
            try:
                code = check_language(required_field(record, "language", str))
                language = match_language(code, wanted)
                sentences = [] if language is None else _sentences(record, language, split_text)
            except ValueError as error:
                bad_lines(str(error), file, line)
                continue
            if language is not None:
                yield Document(language, [bad_lines.cut(text, file, line) for text in sentences], record, file, line)
            elif left_out is not None:
                left_out[code] += 1


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


def _is_document(record: Mapping[str, Any]) -> bool:
    return "language" in record and not {"sentences", "text", "raw_content"}.isdisjoint(record)


def _begins_with_a_document(file: Path) -> bool:
    """Whether the first line of a file is a document; JSON files of other kinds are one object or list."""
    try:
        with open_bytes(file) as stream:
            record = json.loads(stream.readline(1 << 26))
    except (ValueError, RecursionError, *DAMAGED):
        return False
    return isinstance(record, dict) and _is_document(record)


def _read_file(file: str, bad_lines: BadLines, on_bytes_read: OnBytesRead) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(number of the last line, record) of each document of a file."""
    if not file.endswith(_PLAIN_TEXT):
        yield from read_jsonl(file, bad_lines, on_bytes_read)
        return
    language, limit = _language_of_text(file), bad_lines.limits.line_bytes
    paragraphs: list[str] = []
    size = last = 0
    for number, line in read_lines(file, bad_lines, on_bytes_read):
        # A document longer than the limit is cut into several: a file without blank lines does not fill the memory.
        if paragraphs and (number > last + 1 or size > limit):
            yield last, {"language": language, "text": "\n\n".join(paragraphs)}
            paragraphs, size = [], 0
        paragraphs.append(line)
        size += len(line)
        last = number
    if paragraphs:
        yield last, {"language": language, "text": "\n\n".join(paragraphs)}


def _language_of_text(path: PathLike) -> str:
    """The language that a text file is named after: `zh-Hans.txt.xz`, `hi_rom.txt` (`hi-latn`)."""
    name = Path(path).name.partition(".")[0]
    code = f"{name.removesuffix(_ROMANISED)}-latn" if name.endswith(_ROMANISED) else name
    try:
        return check_language(code)
    except ValueError as error:
        raise DataError(
            f"{os.fspath(path)!r} is not named after its language, as fr.txt.xz is ({error}); rename it"
        ) from error


class HubDocuments:
    """Records `{"language", "text"}` (or `"sentences"`) of a data set with a text column, read anew by each iteration.

    Args:
        dataset: Rows with `text`, `content`, `raw_content` or `sentences`; one that is streamed will do.
        language: Language of all of them. By default the rows' own `language` column.
        identity: What tells this version from others. By default the fingerprint of a `datasets.Dataset`.
        total: Number of rows, for the progress bar.

    Raises:
        ValueError: If the data set has none of the text columns, or no language is known.
    """

    def __init__(
        self,
        dataset: datasets.Dataset | datasets.IterableDataset,
        language: str | None = None,
        *,
        identity: str | None = None,
        total: int | None = None,
    ) -> None:
        names = dataset.column_names or list(next(iter(dataset), {}))
        column = next((name for name in _TEXT_COLUMNS if name in names), None)
        if column is None:
            raise ValueError(f"the data set needs a column out of {', '.join(_TEXT_COLUMNS)}; it has {names}")
        if language is None and "language" not in names:
            raise ValueError("the data set has no 'language' column: name the language as NAME:CONFIG=LANGUAGE")
        self.dataset, self.column = dataset, column
        self.language = None if language is None else check_language(language)
        self.total = len(dataset) if total is None and isinstance(dataset, datasets.Dataset) else total
        if identity is None and isinstance(dataset, datasets.Dataset):
            identity = generate_fingerprint(dataset)
        self.identity = identity and f"{identity} {column} {self.language}"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        key = "text" if self.column == "content" else self.column
        for row in self.dataset:
            yield {"language": self.language or row["language"], key: row[self.column]}

    @classmethod
    def load(cls, name: str) -> HubDocuments:
        """Find the `train` split of `NAME=LANGUAGE`, `NAME:CONFIG=LANGUAGE` or `NAME:CONFIG`, to be streamed.

        When offline (`HF_HUB_OFFLINE`), the local cache has it. A folder of Parquet files will do as the name.
        """
        path, _, language = name.rpartition("=") if "=" in name else (name, "", "")
        path, _, config = path.partition(":")
        if datasets.config.HF_HUB_OFFLINE and not os.path.isdir(path):
            return cls(datasets.load_dataset(path, config or None, split="train"), language or None)
        builder = datasets.load_dataset_builder(path, config or None)
        known = (builder.info.splits or {}).get("train")
        total = None if known is None else known.num_examples
        rows = builder.as_streaming_dataset(split="train")
        return cls(rows, language or None, identity=builder.cache_dir, total=total)
