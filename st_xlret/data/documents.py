"""Documents: loading them into one memory-mapped data set with a row per sentence, and a reader for each format."""

from __future__ import annotations

import csv
import logging
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
from datasets.fingerprint import generate_fingerprint

from st_xlret.data.beir import is_beir
from st_xlret.data.cache import cached_dataset
from st_xlret.data.lines import BadLines, DataError, Limits, PathLike, Report, read_jsonl, read_lines, read_table
from st_xlret.data.sources import Sources, first_record, split_sources, texts_to_exclude
from st_xlret.data.text import check_characters, clean_text, join_sentences, normalise_text, split_sentences
from st_xlret.languages import UNKNOWN, LanguageIdentifier, check_language, check_languages, match_language

logger = logging.getLogger(__name__)

Records: TypeAlias = Iterator[tuple[int, Mapping[str, Any]]]
Unit: TypeAlias = Literal["sentence", "text", "document"]
"""What is read: sentences; texts as they stand (a line of a text file, an element of a list); or whole documents."""

FORMATS = (
    'documents are read from JSON lines (.jsonl, .json) such as {"language": "fr", "sentences": [...]} or {"language": '
    '"fr", "text": "..."} (CCNet: "raw_content"), with the same names from Parquet files and from tables whose first '
    "line has them (.tsv, .csv), from folders in BEIR's layout, and from text (.txt: a line is a paragraph, a blank "
    "line ends a document) and Markdown files (.md); a folder gives its text files only if they are named after their "
    "language, as fr.txt is, the language is given, or it has nothing else. All but Parquet may be compressed (.gz, "
    ".xz)"
)
TEXT_FIELDS = ("sentences", "text", "sentence", "raw_content", "content")
_ENDING = re.compile(r"\.(jsonl|json|parquet|tsv|csv|txt|md)(\.gz|\.xz)?$")
_PARAGRAPHS = "paragraphs"  # of text files
_ROMANISED = "_rom"  # CC-100's hi_rom.txt.xz and others
_ROWS_AT_A_TIME = 1_000


FEATURES = {"sentence": "string", "language": "string", "document": "int64", "position": "int32"}
_IDENTIFIED_BY = 1_000  # characters
_ON_DISK = ("info", "dict")  # what save_to_disk writes: dataset_info.json or dataset_dict.json


class LoadReport(Report):
    """What [`load_documents`][st_xlret.load_documents] kept and what it left out, by language.

    It counts `documents` and `sentences` that were kept, of these the `one_sentence` documents; documents left out as
    `empty`; and sentences that were `excluded`.
    """

    counted = ("documents", "sentences", "one_sentence", "empty", "excluded")


def load_documents(
    sources: Any,
    *,
    languages: Iterable[str] | None = None,
    exclude: Sequence[PathLike] = (),
    skip_bad_lines: bool = False,
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
        sources: One or several of: a file of JSON lines, a Parquet file, a table (`.tsv`, `.csv`) with names in its
            first line; a text file with a paragraph per line and a blank line between documents, best named after its
            language (CC-100's `fr.txt.xz`), or a Markdown file; a folder, searched recursively, also one in BEIR's
            layout; a Hugging Face data set `NAME[:CONFIG[:SPLIT]][=LANGUAGE]`, streamed; a `datasets.Dataset` or
            another iterable of records. A record has one of `sentences` (list of strings), `text`, `sentence`,
            `raw_content` (CCNet) or `content`, and `language` or `lang`. The language of a text that names none is
            identified, among `languages` if they are given, which needs the extra `langid`. Files may be compressed.
        languages: Language codes to keep. All by default. `"pt"` also takes `"pt-br"` and stores it as `"pt"`, unless
            `"pt-br"` is named too; `"zh"` does not take `"zh-tw"`, which is in another script.
        exclude: Text files, one sentence per line, such as a test set. Sentences that occur in them are left out,
            whatever their case, punctuation and white space.
        skip_bad_lines: Skip and count bad lines instead of raising an error.
        limits: Longest line and sentence; longer sentences are cut and counted.
        report: Filled with counts of what was kept and left out.
        cache_dir: Folder for the Arrow files. By default `st_xlret` inside the cache of `datasets`.
        show_progress_bar: Show a progress bar.

    Returns:
        Columns `sentence`, `language`, `document` (unique over all sources) and `position` (from 0 within the
        document).

    Raises:
        DataError: For a bad line (file and line are named), a source that does not exist, or if no document is left.
        ValueError: For an unknown language, or a Hugging Face data set without text.

    Example:
        >>> import tempfile
        >>> records = [{"language": "en", "text": "It rained. We stayed in."}]
        >>> load_documents(records, cache_dir=tempfile.mkdtemp(), show_progress_bar=False)["sentence"][:]
        ['It rained.', 'We stayed in.']
    """
    wanted, limits = check_languages(languages), limits or Limits()
    excluded, found = texts_to_exclude(exclude), find_documents(sources)
    key = found.cache_key([wanted and sorted(wanted), sorted(excluded), skip_bad_lines, astuple(limits)])
    made = LoadReport(skip_bad_lines, limits, skipped_files=found.skipped)

    def rows() -> Iterator[tuple[Any, ...]]:
        number = 0
        for document in documents_of(found, wanted, made, made.other_languages, show_progress_bar=show_progress_bar):
            counts = made.languages[document.language]
            sentences = [sentence for sentence in document.sentences if sentence]
            if excluded:
                kept = [sentence for sentence in sentences if normalise_text(sentence) not in excluded]
                counts["excluded"] += len(sentences) - len(kept)
                sentences = kept
            if not sentences:
                counts["empty"] += 1
                continue
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
    """A document as read: its cleaned texts (`""` where one is empty), its record, and its (last) line."""

    language: str
    sentences: list[str]
    record: Mapping[str, Any]
    file: str
    line: int

    @property
    def name(self) -> str:
        """What the texts of one document have in common: `metadata.document`, the title, or the line."""
        metadata = self.record.get("metadata")
        named = metadata.get("document") if isinstance(metadata, Mapping) else None
        return str(named or self.record.get("title") or self.line)


def read_documents(
    sources: Any,
    *,
    languages: Iterable[str] | None = None,
    language: str | None = None,
    unit: Unit | None = None,
    column: str | None = None,
    bad_lines: BadLines | None = None,
    show_progress_bar: bool = True,
) -> Iterator[Document]:
    """Stream documents, without keeping anything: the one reader of all commands.

    Args:
        sources: As for [`load_documents`][st_xlret.load_documents].
        languages: As for `load_documents`.
        language: Language of texts that name none; "und" if it does not matter. By default it is identified, and text
            files that are not named after a language are read only of a folder that has nothing else: a README beside
            documents is none.
        unit: What the texts of a document are: its sentences; what is there, as it stands ("text"): `text`, an element
            of `sentences`, a line of a text file, a block of a Markdown file; or the same with the elements of
            `sentences` joined ("document"). By default documents of a folder in BEIR's layout, and sentences of other
            sources.
        column: Field of the text, by default the first of `sentences`, `text`, `sentence`, `raw_content` and `content`;
            of a table without names, the number of its column from 1.
        bad_lines: What to do about bad lines and too long texts; `bad_lines.warn` says what was lost.
        show_progress_bar: Show a progress bar.

    Raises:
        DataError: As for `load_documents`.

    Example:
        >>> record = {"language": "en", "text": "It rained. We stayed in."}
        >>> [document.sentences for document in read_documents([record], unit="document")]
        [['It rained. We stayed in.']]
    """
    bad_lines, wanted = bad_lines or BadLines(), check_languages(languages)
    found = find_documents(sources, language=language, column=column)
    how: dict[str, Any] = {"language": language, "unit": unit, "column": column}
    yield from documents_of(found, wanted, bad_lines, show_progress_bar=show_progress_bar, **how)


def find_documents(sources: Any, *, language: str | None = None, column: str | None = None) -> Sources:
    """The files, Hugging Face data sets and in-memory records of a `sources` argument that contain documents."""

    def choose(file: Path, is_named: bool) -> bool | None:
        if not is_named:
            return is_in_folder(file, column, language is not None)
        if not ending(file) or (ending(file) == "json" and not is_in_folder(file, column, False)):
            problem = "does not begin with a document" if ending(file) else "is not in a format of documents"
            raise DataError(f"{str(file)!r} {problem}; {FORMATS}")
        return True

    paths, collections = split_sources(sources)
    found: list[Any] = []
    for path in paths:
        there = os.path.lexists(os.path.expanduser(path))
        if not there and not (":" in path or "=" in path):
            hint = "a Hugging Face data set is named NAME:CONFIG, NAME:CONFIG:SPLIT or NAME=LANGUAGE"
            raise DataError(f"no such file or directory: {path!r}; {hint}")
        is_dataset = not there or any((Path(path).expanduser() / f"dataset_{n}.json").is_file() for n in _ON_DISK)
        found.append(HubDocuments.load(path, column) if is_dataset else path)
    return Sources.find(
        [*found, *collections],
        choose,
        alone=lambda file: ending(file) in ("txt", "md"),
        nothing=f"contains no documents; {FORMATS}",
    )


def documents_of(
    found: Sources,
    wanted: frozenset[str] | None,
    bad_lines: BadLines,
    left_out: Counter[str] | None = None,
    *,
    language: str | None = None,
    unit: Unit | None = "sentence",
    column: str | None = None,
    show_progress_bar: bool = True,
) -> Iterator[Document]:
    """Stream the documents in wanted languages; `left_out` counts the others."""
    shown: dict[str, Any] = {"show_progress_bar": show_progress_bar, "description": "Reading documents"}
    default = language if language in (None, UNKNOWN) else check_language(language)
    identifier: LanguageIdentifier | None = None
    whole = {file for file in found.files if is_beir(Path(file).parent)}

    in_files = found.in_files(partial(read_records, column=column), bad_lines, **shown)
    for records in (in_files, found.in_collections(bad_lines, **shown)):
        for file, (line, record) in records:
            try:
                code = language_of_record(record) or default
                if code is None:
                    value = record[text_field(record, column)]
                    identifier = identifier or _identifier(wanted, file, line)
                    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
                    code = identifier.identify(text[:_IDENTIFIED_BY])
                code = code if code == UNKNOWN else check_language(code)
                kept_as = match_language(code, wanted)
                own = unit or ("document" if file in whole else "sentence")
                texts = [] if kept_as is None else texts_of(record, kept_as, own, column)
            except ValueError as error:
                if isinstance(error, DataError):
                    raise
                bad_lines(str(error), file, line)
                continue
            if kept_as is not None:
                yield Document(kept_as, [bad_lines.cut(text, file, line) for text in texts], record, file, line)
            elif left_out is not None:
                left_out[code] += 1


def _identifier(languages: frozenset[str] | None, file: str, line: int) -> LanguageIdentifier:
    logger.info("the language of texts that name none, such as %s, line %d, is identified", file, line)
    try:
        return LanguageIdentifier(sorted(languages) if languages else None)
    except ImportError as error:
        reason = f"no field 'language': name the language of each text, or have it identified ({error})"
        raise DataError(reason, file=file, line=line) from error


class HubDocuments:
    """Records `{"language", "text"}` (or `"sentences"`) of a data set with a text column, read anew by each iteration.

    Args:
        dataset: Rows with `text`, `content`, `raw_content` or `sentences`; one that is streamed will do.
        language: Language of all of them. By default the rows' own `language`, if they have one.
        column: The text column, if it has another name.
        identity: What tells this version from others. By default the fingerprint of a `datasets.Dataset`.

    Raises:
        ValueError: If the data set has none of the text columns.
    """

    def __init__(
        self,
        dataset: datasets.Dataset | datasets.IterableDataset,
        language: str | None = None,
        *,
        column: str | None = None,
        identity: str | None = None,
    ) -> None:
        names = dataset.column_names or list(next(iter(dataset), {}))
        found = next((name for name in ([column] if column else TEXT_FIELDS) if name in names), None)
        if found is None:
            wanted = column or f"out of {', '.join(TEXT_FIELDS)}"
            raise DataError(f"the data set needs a text column {wanted}; it has: {', '.join(names)}")
        self.dataset, self.column = dataset, found
        self.language = None if language is None else check_language(language)
        if identity is None and isinstance(dataset, datasets.Dataset):
            identity = generate_fingerprint(dataset)
        self.identity = identity and f"{identity} {found} {self.language}"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self.dataset:
            yield {"language": self.language or language_of_record(row), self.column: row[self.column]}

    @classmethod
    def load(cls, name: str, column: str | None = None) -> HubDocuments:
        """Find the data set `NAME[:CONFIG[:SPLIT]][=LANGUAGE]`, to be streamed; by default its `train` split.

        When offline (`HF_HUB_OFFLINE`), the local cache has it. A folder of Parquet files will do as the name, and one
        that `save_to_disk` wrote.

        Raises:
            DataError: If it cannot be loaded, or has no text column.
        """
        path, _, language = name.rpartition("=") if "=" in name else (name, "", "")
        path, config, split = (*path.split(":", 2), "", "")[:3]
        make = partial(cls, language=language or None, column=column)
        split = split or "train"
        try:
            if os.path.isdir(path) and not config and any(Path(path, f"dataset_{n}.json").is_file() for n in _ON_DISK):
                stored = datasets.load_from_disk(path)
                return make(stored[split] if isinstance(stored, datasets.DatasetDict) else stored)
            if datasets.config.HF_HUB_OFFLINE and not os.path.isdir(path):
                return make(datasets.load_dataset(path, config or None, split=split))
            builder = datasets.load_dataset_builder(path, config or None)
            return make(builder.as_streaming_dataset(split=split), identity=builder.cache_dir)
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
        except (OSError, ValueError, KeyError, datasets.exceptions.DatasetsError) as error:
            reason = "there is no such file, and it cannot be loaded as a data set NAME[:CONFIG[:SPLIT]][=LANGUAGE]"
            raise DataError(f"{name}: {reason}: {error}") from error


def ending(file: str | Path) -> str:
    """The ending of a file in a format of documents, without that of the compression; empty for other files."""
    found = _ENDING.search(os.fspath(file))
    return found[1] if found else ""


def is_in_folder(file: Path, column: str | None, has_language: bool) -> bool | None:
    """Whether to read a file of a folder; None for one that is not worth a mention."""
    kind, names = ending(file), {column} if column else set(TEXT_FIELDS)
    if is_beir(file.parent) and not file.name.startswith("corpus.jsonl"):
        return False if kind == "jsonl" else None
    if kind in ("jsonl", "json"):
        record = first_record(file)
        # A file whose lines are all bad is taken: reading it then reports them. Other JSON has many lines.
        found = record is not None and (bool(names & record.keys()) or not record and kind == "jsonl")
        return found or (False if kind == "jsonl" else None)
    if kind == "parquet":
        return bool(names & set(_parquet(file).schema_arrow.names))
    if kind in ("tsv", "csv"):
        _, first = next(read_table(file, BadLines(skip=True), **_dialect(kind)), (0, list[str]()))
        return bool(names & set(first)) or None
    if kind in ("txt", "md"):
        return has_language or (kind == "txt" and language_of_text(file) is not None) or None
    return None


def read_records(file: str, bad_lines: BadLines, *, column: str | None) -> Records:
    """(number of the last line, record) of each document of a file."""
    kind = ending(file)
    if kind in ("jsonl", "json"):
        return read_jsonl(file, bad_lines)
    if kind == "parquet":
        return _rows_of_parquet(file, column)
    if kind in ("tsv", "csv"):
        return _rows_of_table(file, column, bad_lines)
    return _blocks(file, bad_lines)


def texts_of(record: Mapping[str, Any], language: str, unit: Unit, column: str | None) -> list[str]:
    """The texts in a record, by unit; a ValueError if it has none."""
    if _PARAGRAPHS in record:
        lines = record[_PARAGRAPHS]
        return [text for line in lines for text in (split_sentences(line, language) if unit == "sentence" else [line])]
    name = text_field(record, column)
    value = record[name]
    if isinstance(value, list):
        texts = [clean_text(text) for text in value]
        return [join_sentences([text for text in texts if text], language)] if unit == "document" else texts
    if not isinstance(value, str):
        raise ValueError(f"field {name!r} must be a text or a list of texts, found {type(value).__name__}")
    check_characters(value)
    if unit == "sentence":
        # A line of CCNet is a paragraph.
        return split_sentences(value.replace("\n", "\n\n") if name == "raw_content" else value, language)
    return [clean_text(value)]


def text_field(record: Mapping[str, Any], column: str | None) -> str:
    """The field of a record that holds its text; a ValueError if there is none."""
    there = [name for name in ([column] if column else [_PARAGRAPHS, *TEXT_FIELDS]) if record.get(name) is not None]
    if not there:
        wanted = repr(column) if column else "'sentences' or 'text'"
        raise ValueError(f"no field {wanted} (the record has {', '.join(map(repr, record)) or 'no fields'})")
    return next((name for name in there if record[name]), there[0])


def language_of_record(record: Mapping[str, Any]) -> Any:
    """What a record names as its language, in `language`, `lang` or, as in BEIR's layout, in `metadata`; else None."""
    metadata = record.get("metadata")
    named = metadata.get("language") if isinstance(metadata, Mapping) else None
    return record.get("language") or record.get("lang") or named


def language_of_text(file: str | Path) -> str | None:
    """The language that a text file is named after: `zh-Hans.txt.xz`, `hi_rom.txt` (`hi-latn`), or None."""
    name = Path(file).name.partition(".")[0]
    try:
        return check_language(f"{name.removesuffix(_ROMANISED)}-latn" if name.endswith(_ROMANISED) else name)
    except ValueError:
        return None


def _parquet(file: str | Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"no whole Parquet file: {error}", file=os.fspath(file)) from error


def _rows_of_parquet(file: str, column: str | None) -> Records:
    parquet = _parquet(file)
    names = parquet.schema_arrow.names
    wanted = [name for name in (column, *TEXT_FIELDS, "language", "lang", "metadata", "title") if name in names]
    number = 0
    try:
        for batch in parquet.iter_batches(_ROWS_AT_A_TIME, columns=wanted):
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"the Parquet file is damaged: {error}", file=file, line=number + 1, unit="row") from error


def _dialect(kind: str) -> dict[str, Any]:
    quoting = csv.QUOTE_NONE if kind == "tsv" else csv.QUOTE_MINIMAL
    return {"delimiter": "\t" if kind == "tsv" else ",", "quoting": quoting, "strict": True}


def _rows_of_table(file: str, column: str | None, bad_lines: BadLines) -> Records:
    """The rows of a table by the names in its first line or, if the column is a number, by their numbers from 1."""
    rows = read_table(file, bad_lines, **_dialect(ending(file)))
    number, names = (0, list[str]()) if column and column.isdecimal() else next(rows, (0, []))
    if names and not {column} & {*names} if column else not {*TEXT_FIELDS} & {*names}:
        wanted = repr(column) if column else "'text'"
        raise DataError(f"no column is named {wanted}; there are: {', '.join(names)}", file=file, line=number)
    for number, row in rows:
        yield number, dict(zip(names or map(str, range(1, len(row) + 1)), row, strict=False))


def _blocks(file: str, bad_lines: BadLines) -> Records:
    """The runs of lines between blank lines; those of Markdown are one paragraph each."""
    language, limit = language_of_text(file), bad_lines.limits.line_bytes
    lines: list[str] = []
    size = last = 0

    def block() -> tuple[int, Mapping[str, Any]]:
        return last, {"language": language, _PARAGRAPHS: [clean_text("\n".join(lines))] if is_markdown else lines}

    is_markdown = ending(file) == "md"
    for number, line in read_lines(file, bad_lines):
        # A document longer than the limit is cut into several: a file without blank lines does not fill the memory.
        if lines and (number > last + 1 or size > limit):
            yield block()
            lines, size = [], 0
        lines.append(clean_text(line))
        size += len(line)
        last = number
    if lines:
        yield block()
