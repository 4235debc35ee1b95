"""Loading documents into one memory-mapped data set with a row per sentence."""

from __future__ import annotations

import logging
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import datasets
from datasets.fingerprint import generate_fingerprint

from st_xlret.data.cache import cached_dataset
from st_xlret.data.document_formats import (
    FORMATS,
    TEXT_FIELDS,
    Unit,
    ending,
    is_in_folder,
    language_of_record,
    read_records,
    text_field,
    texts_of,
)
from st_xlret.data.language_identification import LanguageIdentifier
from st_xlret.data.languages import UNKNOWN, check_language, check_languages, match_language
from st_xlret.data.lines import BadLines, DataError, Limits, PathLike, Report
from st_xlret.data.sources import Sources, split_sources, texts_to_exclude
from st_xlret.data.text import normalise_text

logger = logging.getLogger(__name__)

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
    unit: Unit = "sentence",
    column: str | None = None,
    bad_lines: BadLines | None = None,
    show_progress_bar: bool = True,
) -> Iterator[Document]:
    """Stream documents, without keeping anything: the one reader of all commands.

    Args:
        sources: As for [`load_documents`][st_xlret.load_documents].
        languages: As for `load_documents`.
        language: Language of texts that name none; "und" if it does not matter. Text files of a folder that are not
            named after a language are read only then. By default it is identified.
        unit: What the texts of a document are: its sentences; what is there, as it stands ("text"): `text`, an element
            of `sentences`, a line of a text file, a block of a Markdown file; or the same with the elements of
            `sentences` joined ("document").
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
    return Sources.find([*found, *collections], choose, nothing=f"contains no documents; {FORMATS}")


def documents_of(
    found: Sources,
    wanted: frozenset[str] | None,
    bad_lines: BadLines,
    left_out: Counter[str] | None = None,
    *,
    language: str | None = None,
    unit: Unit = "sentence",
    column: str | None = None,
    show_progress_bar: bool = True,
) -> Iterator[Document]:
    """Stream the documents in wanted languages; `left_out` counts the others."""
    shown: dict[str, Any] = {"show_progress_bar": show_progress_bar, "description": "Reading documents"}
    default = language if language in (None, UNKNOWN) else check_language(language)
    identifier: LanguageIdentifier | None = None

    def read(file: str, *options: Any) -> Any:
        return read_records(file, column, *options)

    for records in (found.in_files(read, bad_lines, **shown), found.in_collections(bad_lines, **shown)):
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
                texts = [] if kept_as is None else texts_of(record, kept_as, unit, column)
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
