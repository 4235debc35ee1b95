"""Documents: one stream of all sources, and the table of sentences that training reads."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import datasets
from tqdm.auto import tqdm

from st_xlret.data import beir
from st_xlret.data.document_files import (
    FORMATS,
    PARAGRAPHS,
    TEXT_FIELDS,
    Records,
    field_names,
    is_text_file,
    language_in_name_or_none,
    read_records,
)
from st_xlret.data.kept import Counts, Loader
from st_xlret.data.reading import BadLines, DataError
from st_xlret.data.sources import records_identity, source_files, split_sources
from st_xlret.data.texts import clean_text, join_sentences, split_sentences
from st_xlret.field_names import find_fields, unique_fields
from st_xlret.files import PathLike
from st_xlret.folders import columns_of_folders
from st_xlret.languages import (
    LABEL_FIELDS,
    UNKNOWN,
    LanguageIdentifier,
    check_language,
    check_languages,
    is_missing,
    labelled_language,
    match_language,
    metadata_of,
    warn_of_unread_labels,
)

Unit: TypeAlias = Literal["sentence", "text", "document"]
"""What is read: sentences; texts as they stand (a line of a text file, an element of a list); or
whole documents."""

COLUMNS = {"sentence": "string", "language": "string", "document": "int64", "position": "int32"}

_logger = logging.getLogger(__name__)
_IDENTIFIED_BY = 1_000  # characters


class Document(NamedTuple):
    """A document as read: its cleaned texts, what tells it from others, and its (last) line.

    `in_rows` is true where records name it as their `document`.
    """

    language: str
    sentences: list[str]
    id: str
    file: str
    line: int
    in_rows: bool = False


class _Row(NamedTuple):
    """What a record has of a document, and its place there."""

    part: Document
    position: float


def load_documents(
    sources: Any,
    *,
    languages: Iterable[str] | None = None,
    exclude: Sequence[PathLike] = (),
    skip_bad_lines: bool = False,
    counts: Counts | None = None,
    cache_dir: PathLike | None = None,
) -> datasets.Dataset:
    """Read documents into one memory-mapped data set with a row per sentence.

    Its columns are `sentence`, `language`, `document` (from 0, by the sorted paths, then other
    sources; its rows are contiguous) and `position` (from 0 in the document). The table is kept,
    and a second call with the same unchanged sources and options uses it again.

    Args:
        sources: One or several of: a file or a folder of them, as `FORMATS` says; a Hugging Face
            data set `NAME[:CONFIG[:SPLIT]][=LANGUAGE]`, streamed; a `datasets.Dataset`, its folder,
            a data frame (pandas, Polars, Arrow), or another iterable of records. Records that
            follow each other with one `document` are one, in the order of `position`. The language
            of a text that names none is identified, which needs the extra `langid`.
        languages: Codes to keep. `"pt"` also takes `"pt-br"`, as `"pt"`, unless `"pt-br"` is named
            too.
        exclude: Text files of sentences to leave out, whatever their case, punctuation and white
            space, one per line.
        skip_bad_lines: Skip and count bad lines instead of raising a `DataError` that names file
            and line.
        counts: Filled with the `documents`, `sentences` and `excluded` sentences of each language.
        cache_dir: Folder of the table. By default `st_xlret` inside the cache of `datasets`.

    Example:
        >>> import tempfile
        >>> records = [{"language": "en", "text": "It rained. We stayed in."}]
        >>> load_documents(records, cache_dir=tempfile.mkdtemp())["sentence"][:]
        ['It rained.', 'We stayed in.']
    """
    opened = _DocumentSources(sources, languages)
    loader = Loader(languages, exclude, skip_bad_lines, counts)
    rows = _sentence_rows(opened, loader)
    table = loader.cached_table(
        "documents", COLUMNS, rows, opened.identities, opened.files, cache_dir
    )
    found = {code for code, _ in loader.counts}
    missing = sorted((opened.languages or frozenset()) - found)
    if missing:
        _logger.warning("no documents are in %s", ", ".join(missing))
    return table


def _sentence_rows(opened: "_DocumentSources", loader: Loader) -> Iterator[tuple[Any, ...]]:
    """The rows of the table: sentence, language, number of the document from 0, and place in it.

    The counts of the loader are filled on the way. Documents without a sentence left have no
    number.
    """
    number = 0
    counts = loader.counts
    seen: set[tuple[str, str, str]] = set()
    for document in opened.documents("sentence", loader.bad_lines):
        if document.in_rows:
            _refuse_scattered(document, seen)
        texts = list(filter(None, document.sentences))
        sentences = [text for text in texts if not loader.excludes(text)]
        language = document.language
        counts[language, "documents"] += bool(sentences)
        counts[language, "sentences"] += len(sentences)
        counts[language, "excluded"] += len(texts) - len(sentences)
        for position, sentence in enumerate(sentences):
            yield sentence, language, number, position
        if sentences:
            number += 1


def _refuse_scattered(document: Document, seen: set[tuple[str, str, str]]) -> None:
    """Refuse a document whose rows began before; else add it to those seen."""
    key = (document.file, document.language, document.id)
    if key in seen:
        problem = f"document {document.id!r} has rows before: put them together, as sorting does"
        raise DataError(problem, document.file, document.line)
    seen.add(key)


def read_documents(
    sources: Any,
    *,
    languages: Iterable[str] | None = None,
    language: str | None = None,
    unit: Unit | None = None,
    column: str | None = None,
    bad_lines: BadLines | None = None,
) -> Iterator[Document]:
    """Stream documents, without keeping anything.

    Args:
        sources: As for [`load_documents`][st_xlret.load_documents], and so `languages`.
        languages: Codes to keep.
        language: Language of texts that name none; "und" if it does not matter. By default it is
            identified, and text files of a folder are read only if they are named after one, or it
            has nothing else.
        unit: What the texts of a document are. By default documents of BEIR folders, which are
            title and text, and sentences of other sources.
        column: Field of the text, if it is not one of `TEXT_FIELDS`; of a table without names, its
            number from 1.
        bad_lines: What to do about bad lines.
    """
    opened = _DocumentSources(sources, languages, language, column)
    yield from opened.documents(unit, bad_lines or BadLines())


class _DocumentSources:
    """The files, and the collections of records, that the arguments of `read_documents` name."""

    def __init__(
        self,
        listed: Any,
        languages: Iterable[str] | None,
        language: str | None = None,
        column: str | None = None,
    ) -> None:
        self.languages = check_languages(languages)
        self.language = language
        self.column = column
        self.identities: list[str] = []
        self._collections: dict[str, Iterable[Any]] = {}
        paths, collections = split_sources(listed)
        files = []
        for path in paths:
            place = Path(path).expanduser()
            if (place / "dataset_info.json").is_file():
                collections.append(datasets.load_from_disk(path))
            elif not place.exists() and re.search("[:=]", str(path)):
                self._add_hub_dataset(str(path))
            else:
                files.append(path)
        # Before `source_files`, which asks `_holds_documents`, which reads it.
        self._given = {Path(path).expanduser().resolve(): Path(path) for path in files}
        self.files = source_files(
            files,
            self._holds_documents,
            f"documents: {FORMATS}",
            alone=is_text_file,
            is_of_others=beir.is_of_beir_folder,
        )
        for number, records in enumerate(collections, start=1):
            self.identities.append(records_identity(records))
            self._collections[f"<source {number}>"] = records

    @cached_property
    def _identifier(self) -> LanguageIdentifier:
        """Made where a text names no language, as it needs an extra."""
        return LanguageIdentifier()

    def _add_hub_dataset(self, name: str) -> None:
        """Add a data set of the Hub to what is read, and its identity."""
        rows, identity = _hub_rows_and_identity(name)
        self._collections[name] = rows
        self.identities.append(identity)

    def _holds_documents(self, file: Path) -> bool:
        """Whether a file of a folder is one of documents."""
        if beir.is_beir_folder(file.parent):
            return beir.is_corpus(file)
        if is_text_file(file):
            has_language = self.language or language_in_name_or_none(file)
            return bool(has_language or self._languages_of_folders(file))
        fields = [self.column or "", *TEXT_FIELDS]
        return bool(find_fields(field_names(file), fields))

    def documents(self, unit: Unit | None, bad_lines: BadLines) -> Iterator[Document]:
        """Stream the documents of all sources that are in the languages to keep."""
        streams = {}
        for file in self.files:
            streams[str(file)] = read_records(file, self.column, bad_lines)
        for name, collection in self._collections.items():
            streams[name] = enumerate(collection, start=1)
        for name, records in tqdm(streams.items(), desc="Reading", unit=" files", disable=None):
            rows = self._rows_of(name, records, unit, bad_lines)
            yield from _documents_of_rows(rows, in_one_text=unit == "document")

    def _rows_of(
        self, source: str, records: Records, unit: Unit | None, bad_lines: BadLines
    ) -> Iterator[_Row]:
        """The documents, or parts of them, of a source, with their place; bad records are counted.

        Those in languages that are not wanted are left out.
        """
        is_corpus = beir.is_corpus(Path(source))
        unit = unit or ("document" if is_corpus else "sentence")
        is_one_of_several = len(self.files) + len(self._collections) > 1
        labelled = _with_labels(records, self._languages_of_folders(Path(source)))
        if self.language in (None, UNKNOWN):
            labelled = warn_of_unread_labels(labelled, source, "languages are identified")
        for line, record in labelled:
            try:
                if is_corpus:
                    record = beir.with_title(record, is_whole=unit == "document")
                code, texts = self._language_and_texts(record, unit)
            except ValueError as error:
                bad_lines(str(error), source, line)
                continue
            if code is not None:
                place = f"{source}:{line}" if is_one_of_several else str(line)
                named = self._document_of(record)
                in_rows = bool(named) and not is_corpus
                id = named or _id_of(record, place)
                part = Document(code, texts, id, source, line, in_rows)
                yield _Row(part, _position_of(record))

    def _language_and_texts(self, record: Any, unit: Unit) -> tuple[str | None, list[str]]:
        """The language and the texts of a record; None and none for a language left out.

        Texts may be empty: who reads documents leaves these out. A `ValueError` refuses a record
        without fields or without a text, and a language that is no code.
        """
        if not isinstance(record, Mapping):
            found = f"{type(record).__name__} {record!r:.40}"
            raise ValueError(f"a record must have fields, such as 'text'; found {found}")
        field = self._text_field(record)
        value = record.get(field)
        if not isinstance(value, str | list):
            names = ", ".join(record) or "none"
            found = f"{type(value).__name__} {value!r:.40}" if field in record else "no such field"
            raise ValueError(f"no text in the field {field!r}: {found}; the record has {names}")
        code = match_language(self._language_of(record, value), self.languages)
        if code is None:
            return None, []
        return code, _split_into_units(value, code, unit, is_text_file=field == PARAGRAPHS)

    def _text_field(self, record: Mapping[str, Any]) -> str:
        """The first field that has a text, else the first that may have one."""
        if self.column in record:
            return str(self.column)
        fields = [self.column] if self.column else [PARAGRAPHS, *TEXT_FIELDS]
        present = [name for name in unique_fields(record, fields) if record[name] is not None]
        for name in present:
            if record[name]:
                return name
        return present[0] if present else self.column or "text"

    def _language_of(self, record: Mapping[str, Any], value: str | list[Any]) -> str:
        """The language that a record names, that of all such texts, or else what is identified."""
        code = labelled_language(record) or self.language
        if not code:
            text = value if isinstance(value, str) else " ".join(map(str, value))
            code = self._identifier.identify(text[:_IDENTIFIED_BY], self.languages or ())
        return code if code == UNKNOWN else check_language(code)

    def _languages_of_folders(self, file: Path) -> dict[str, str | None]:
        """The languages that folders in the given path of a file are named, as `language=fr`.

        The file is one of `files`, resolved. Names of other sources have none.
        """
        columns: dict[str, str | None] = {}
        for place, given in self._given.items():
            if place == file or place in file.parents:
                columns |= columns_of_folders(given / file.relative_to(place))
        return {name: columns[name] for name in find_fields(columns, LABEL_FIELDS)}

    def _document_of(self, record: Mapping[str, Any]) -> str:
        """The document that a record says it is of; "" for none."""
        for values in (record, metadata_of(record)):
            for field in unique_fields(values, ["document"]):
                if field != self.column and not is_missing(values[field]):
                    return str(values[field])
        return ""


def _with_labels(records: Records, labels: Mapping[str, str | None]) -> Iterator[tuple[int, Any]]:
    """Records with labels for the fields that they lack."""
    for line, record in records:
        if labels and isinstance(record, Mapping):
            record = dict(record)
            for name, label in labels.items():
                own_name = next(iter(find_fields(record, [name])), name)
                if record.get(own_name) is None:
                    record[own_name] = label
        yield line, record


def _position_of(record: Mapping[str, Any]) -> float:
    """The place in its document; rows without any stay in their order."""
    for field in unique_fields(record, ["position"]):
        if not is_missing(record[field]):
            with suppress(TypeError, ValueError):
                return float(record[field])
    return 0.0


def _id_of(record: Mapping[str, Any], place: str) -> str:
    """What tells a document from others: the id that it has, or its place.

    Several documents may have one title.
    """
    for value in (record.get("id"), record.get("_id")):
        if not is_missing(value):
            return str(value)
    return place


def _documents_of_rows(rows: Iterable[_Row], *, in_one_text: bool) -> Iterator[Document]:
    """The documents of rows: rows of one `document` that follow each other are one."""
    for (_, in_rows), group in groupby(rows, key=lambda row: (row.part.id, row.part.in_rows)):
        if in_rows:
            in_order = sorted(group, key=lambda row: row.position)
            yield from _by_language([row.part for row in in_order], in_one_text)
        else:
            yield from (row.part for row in group)


def _by_language(parts: Sequence[Document], in_one_text: bool) -> Iterator[Document]:
    """A document in several languages is one in each, in the order in which they come first.

    Its place is that of the last part.
    """
    texts: dict[str, list[str]] = {}
    for part in parts:
        texts.setdefault(part.language, []).extend(filter(None, part.sentences))
    for language, of_language in texts.items():
        sentences = of_language
        if in_one_text:
            sentences = [join_sentences(of_language, language)]
        yield parts[-1]._replace(language=language, sentences=sentences)


def _split_into_units(
    value: str | list[Any], language: str, unit: Unit, *, is_text_file: bool
) -> list[str]:
    """Split a document: a list holds sentences.

    Lines of a text file are texts, and stay apart as documents, too.
    """
    if isinstance(value, str):
        return split_sentences(value, language) if unit == "sentence" else [clean_text(value)]
    texts = [clean_text(text) for text in value]
    if is_text_file and unit == "sentence":
        sentences = []
        for text in texts:
            sentences += split_sentences(text, language)
        return sentences
    if unit == "document" and not is_text_file:
        return [join_sentences([text for text in texts if text], language)]
    return texts


def _hub_rows_and_identity(name: str) -> tuple[Iterable[Any], str]:
    """The rows of the data set `NAME[:CONFIG[:SPLIT]][=LANGUAGE]`, and their identity.

    Each iteration reads them anew.
    """
    place, equals, language = name.rpartition("=")
    if not equals:
        place = name
        language = ""
    path, _, rest = place.partition(":")
    config, _, split = rest.partition(":")
    builder = datasets.load_dataset_builder(path, config or None)
    if datasets.config.HF_HUB_OFFLINE:  # what is not streamed is in the local cache
        builder.download_and_prepare()
        rows = builder.as_dataset(split=split or "train")
    else:
        rows = builder.as_streaming_dataset(split=split or "train")
    if language:
        rows = rows.map(lambda row: {**row, "language": language})
    return rows, f"{builder.cache_dir} {split} {language}"
