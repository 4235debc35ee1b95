"""Documents: a reader of each format, one stream of them all, and the table of sentences that training reads."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm.auto import tqdm

from st_xlret.data import beir, reading
from st_xlret.data.reading import BadLines, Counts, DataError, clean_text, split_sentences
from st_xlret.files import PathLike
from st_xlret.folders import columns_of_folders
from st_xlret.languages import (
    UNKNOWN,
    LanguageIdentifier,
    check_language,
    check_languages,
    language_of,
    match_language,
)

Unit: TypeAlias = Literal["sentence", "text", "document"]
"""What is read: sentences; texts as they stand (a line of a text file, an element of a list); or whole documents."""
Records: TypeAlias = Iterable[tuple[int, Any]]  # and the numbers of their last lines

TEXT_FIELDS = ("sentences", "text", "sentence", "content", "page_content")
COLUMNS = {"sentence": "string", "language": "string", "document": "int64", "position": "int32"}
FORMATS = (
    'JSON lines such as {"language": "fr", "sentences": [...]} or {"language": "fr", "text": "..."} (.jsonl, .json, '
    "WikiExtractor's wiki_00), the same columns in Parquet files and tables (.tsv, .csv), BEIR folders, text (.txt: a "
    "line is a paragraph, a blank line ends a document) and Markdown (.md); all but Parquet may be compressed"
)
_ENDING = re.compile(r"(?:\.(jsonl|json|parquet|tsv|csv|txt|md)|(?<=/wiki)_\d+)(?:\.gz|\.xz)?$")
_DIALECTS: dict[str, dict[str, Any]] = {
    "tsv": {"delimiter": "\t", "quoting": 3},
    "csv": {},
}  # 3: quotes are text
_PARAGRAPHS = "paragraphs"  # of text files
_IDENTIFIED_BY = 1_000  # characters


class Document(NamedTuple):
    """A document as read: its cleaned texts, what tells it from others, and its (last) line."""

    language: str
    sentences: list[str]
    name: str
    file: str
    line: int


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

    Its columns are `sentence`, `language`, `document` (from 0, by the sorted paths, then other sources; its rows are
    contiguous) and `position` (from 0 in the document). The table is kept, and a second call with the same unchanged
    sources and options uses it again.

    Args:
        sources: One or several of: a file or a folder of them, as `FORMATS` says; a Hugging Face data set
            `NAME[:CONFIG[:SPLIT]][=LANGUAGE]`, streamed; a `datasets.Dataset`, its folder, or another iterable of
            records. The language of a text that names none is identified, which needs the extra `langid`.
        languages: Codes to keep. `"pt"` also takes `"pt-br"`, as `"pt"`, unless `"pt-br"` is named too.
        exclude: Text files of sentences to leave out, whatever their case, punctuation and white space, one per line.
        skip_bad_lines: Skip and count bad lines instead of raising a `DataError` that names file and line.
        counts: Filled with counts of `documents`, `sentences` and `excluded` sentences by language.
        cache_dir: Folder of the table. By default `st_xlret` inside the cache of `datasets`.

    Example:
        >>> import tempfile
        >>> records = [{"language": "en", "text": "It rained. We stayed in."}]
        >>> load_documents(records, cache_dir=tempfile.mkdtemp())["sentence"][:]
        ['It rained.', 'We stayed in.']
    """
    opened, loader = (
        DocumentSources(sources, languages),
        reading.Loader(languages, exclude, skip_bad_lines, counts),
    )

    def table_rows() -> Iterator[tuple[Any, ...]]:
        number, counts = 0, loader.counts
        for document in opened.documents("sentence", loader.bad_lines):
            texts = [text for text in document.sentences if text]
            sentences = [text for text in texts if not loader.excludes(text)]
            counts[document.language, "documents"] += bool(sentences)
            counts[document.language, "sentences"] += len(sentences)
            counts[document.language, "excluded"] += len(texts) - len(sentences)
            for position, sentence in enumerate(sentences):
                yield sentence, document.language, number, position
            number += bool(sentences)

    table = loader.cached_table(
        "documents", COLUMNS, table_rows(), opened.identities, opened.files, cache_dir
    )
    if missing := sorted((opened.languages or frozenset()) - {code for code, _ in loader.counts}):
        reading.logger.warning("no documents are in %s", ", ".join(missing))
    return table


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
        language: Language of texts that name none; "und" if it does not matter. By default it is identified, and text
            files of a folder are read only if they are named after one, or it has nothing else.
        unit: What the texts of a document are. By default documents of BEIR folders, and sentences of other sources.
        column: Field of the text, if it is not one of `TEXT_FIELDS`; of a table without names, its number from 1.
        bad_lines: What to do about bad lines.
    """
    yield from DocumentSources(sources, languages, language, column).documents(
        unit, bad_lines or BadLines()
    )


class DocumentSources:
    """The files, and the collections of records, that the arguments of `read_documents` name."""

    _identifier = cached_property(
        lambda self: LanguageIdentifier()
    )  # where a text names no language

    def __init__(
        self, sources: Any, languages: Any, language: str | None = None, column: str | None = None
    ) -> None:
        self.languages, self.language, self.column = check_languages(languages), language, column
        paths, collections = reading.split_sources(sources)
        files, self.identities, self._collections = (
            list[PathLike](),
            list[str](),
            dict[str, Iterable[Any]](),
        )
        for path in paths:
            if Path(path, "dataset_info.json").expanduser().is_file():
                collections.append(datasets.load_from_disk(path))
            elif not Path(path).expanduser().exists() and re.search("[:=]", name := str(path)):
                self._collections[name], identity = _hub_rows_and_identity(name)
                self.identities.append(identity)
            else:
                files.append(path)
        self.files = reading.source_files(
            files, self._holds_documents, f"documents: {FORMATS}", alone=_is_text_file
        )
        self.identities += map(reading.records_identity, collections)
        self._collections |= {
            f"<source {number}>": rows for number, rows in enumerate(collections, start=1)
        }

    def _holds_documents(self, file: Path) -> bool:
        kind = _format_of(file)
        if beir.is_beir_folder(file.parent):
            return beir.is_corpus(file)
        if _is_text_file(file):
            names = {"language", "lang"} & columns_of_folders(file).keys()
            return bool(self.language or _language_in_name_or_none(file) or names)
        if kind == "parquet":
            fields: Iterable[str] = pq.read_schema(file).names
        elif kind in ("tsv", "csv"):
            fields = next(
                (
                    cells
                    for _, cells in reading.read_table(file, BadLines(skip=True), **_DIALECTS[kind])
                ),
                [],
            )
        else:
            fields = reading.first_record(file) if kind else []
            fields = fields or (
                TEXT_FIELDS if kind == "jsonl" else []
            )  # reading it says that all lines are bad
        return not {self.column, *TEXT_FIELDS}.isdisjoint(fields)

    def documents(self, unit: Unit | None, bad_lines: BadLines) -> Iterator[Document]:
        """Stream the documents of all sources that are in the languages to keep."""
        streams: dict[str, Records] = {
            str(file): self._read_records(file, bad_lines) for file in self.files
        }
        streams |= {
            name: enumerate(records, start=1) for name, records in self._collections.items()
        }
        for file, records in tqdm(streams.items(), desc="Reading", unit=" files", disable=None):
            default: Unit = "document" if beir.is_corpus(Path(file)) else "sentence"
            folders = {
                key: code
                for key, code in columns_of_folders(Path(file)).items()
                if key in ("language", "lang")
            }
            for line, record in records:
                try:
                    if folders and isinstance(record, Mapping):
                        record = {
                            **record,
                            **{name: folders[name] for name in folders if record.get(name) is None},
                        }
                    code, texts = self._language_and_texts(record, unit or default)
                except ValueError as error:
                    bad_lines(str(error), file, line)
                    continue
                if code is not None:
                    metadata = (
                        record.get("metadata")
                        if isinstance(record.get("metadata"), Mapping)
                        else {}
                    )
                    named = (metadata.get("document"), record.get("title"), record.get("id"))
                    place = line if len(streams) == 1 else f"{file}:{line}"
                    name = next(
                        (name for name in named if name == name and name not in (None, "")), place
                    )
                    yield Document(code, texts, str(name), file, line)

    def _language_and_texts(self, record: Any, unit: Unit) -> tuple[str | None, list[str]]:
        """The language and the texts of a record; None and none for a language left out, a ValueError for no text."""
        record = record if isinstance(record, Mapping) else {}
        fields = [self.column] if self.column else [_PARAGRAPHS, *TEXT_FIELDS]
        present = [name for name in fields if record.get(name) is not None] or [
            self.column or "text"
        ]
        field = next((name for name in present if record.get(name)), present[0])
        value = record.get(field)
        if not isinstance(value, str | list):
            raise ValueError(
                f"no text in the field {field!r}; the record has {', '.join(record) or 'none'}"
            )
        code = language_of(record) or self.language
        if not code:
            text = value if isinstance(value, str) else " ".join(map(str, value))
            code = self._identifier.identify(text[:_IDENTIFIED_BY], self.languages or ())
        code = match_language(code if code == UNKNOWN else check_language(code), self.languages)
        return code, [] if code is None else _split_into_units(
            value, code, unit, is_text_file=field == _PARAGRAPHS
        )

    def _read_records(self, file: Path, bad_lines: BadLines) -> Records:
        kind = _format_of(file)
        if kind == "parquet":
            try:
                batches = pq.ParquetFile(file).iter_batches(1_000)
                batches = (
                    batch.select([*dict.fromkeys(batch.schema.names)]) for batch in batches
                )  # not a name twice
                yield from enumerate(
                    (row for batch in batches for row in batch.to_pylist()), start=1
                )
            except (OSError, KeyError, pa.ArrowException) as error:
                raise DataError(f"no Parquet file that can be read ({error})", file) from error
        elif kind in ("tsv", "csv"):
            rows = reading.read_table(file, bad_lines, **_DIALECTS[kind])
            is_number = self.column is not None and self.column.isdecimal()
            names = [] if is_number else next(rows, (0, []))[1]
            twice = [
                name
                for name in (self.column, *TEXT_FIELDS, "language", "lang")
                if names.count(str(name)) > 1
            ]
            if twice:  # one of them would be lost
                raise DataError(
                    f"{names.count(str(twice[0]))} columns have the name {twice[0]!r}", file
                )
            for number, cells in rows:
                if names and len(cells) > len(names):
                    bad_lines(
                        f"{len(cells)} cells under {len(names)} names, so a text may be cut in two",
                        file,
                        number,
                    )
                    continue
                yield (
                    number,
                    dict(zip(names or map(str, range(1, len(cells) + 1)), cells, strict=False)),
                )
        elif _is_text_file(file):
            yield from _text_file_records(file, bad_lines)
        elif kind:
            for number, record in reading.read_jsonl(file, bad_lines):
                if (
                    beir.is_corpus(file)
                    and isinstance(text := record.get("text"), str)
                    and not text.strip()
                ):
                    record["text"] = record.get("title") or text  # as `evaluate` embeds both
                yield number, record
        else:
            raise DataError(f"in no format of documents, which are {FORMATS}", file)


def _split_into_units(
    value: str | list[str], language: str, unit: Unit, *, is_text_file: bool
) -> list[str]:
    """Split a document: a list holds sentences; lines of a text file are texts, and stay apart as documents, too."""
    if isinstance(value, str):
        return split_sentences(value, language) if unit == "sentence" else [clean_text(value)]
    texts = [clean_text(text) for text in value]
    if is_text_file and unit == "sentence":
        return [sentence for text in texts for sentence in split_sentences(text, language)]
    if unit == "document" and not is_text_file:
        return [reading.join_sentences([text for text in texts if text], language)]
    return texts


def _text_file_records(file: Path, bad_lines: BadLines) -> Records:
    """The runs of lines between blank lines; those of Markdown are one paragraph each."""
    language, lines, last = _language_in_name_or_none(file), list[str](), 0
    for number, line in chain(reading.read_lines(file, bad_lines), [(0, "")]):
        if lines and number != last + 1:
            yield (
                last,
                {
                    "language": language,
                    _PARAGRAPHS: [" ".join(lines)] if _format_of(file) == "md" else lines,
                },
            )
            lines = []
        lines.append(line)
        last = number


def _format_of(file: Path) -> str:
    """The kind of a file by its ending; empty if documents are not read from such files."""
    match = _ENDING.search(file.as_posix())
    return (match[1] or "jsonl") if match else ""


def _is_text_file(file: Path) -> bool:
    return _format_of(file) in ("txt", "md")


def _language_in_name_or_none(file: Path) -> str | None:
    """The language that a text file is named after: `zh-Hans.txt.xz`, `hi_rom.txt` (`hi-latn`), or None."""
    with suppress(ValueError):
        return check_language(re.sub(r"_rom$", "-latn", file.name.partition(".")[0]))
    return None


def _hub_rows_and_identity(name: str) -> tuple[Iterable[Any], str]:
    """The rows of the data set `NAME[:CONFIG[:SPLIT]][=LANGUAGE]`, read anew by each iteration, and their identity."""
    place, _, language = name.rpartition("=") if "=" in name else (name, "", "")
    path, config, split = (*place.split(":", 2), "", "")[:3]
    builder = datasets.load_dataset_builder(path, config or None)
    if datasets.config.HF_HUB_OFFLINE:  # what is not streamed is in the local cache
        builder.download_and_prepare()
    read = builder.as_dataset if datasets.config.HF_HUB_OFFLINE else builder.as_streaming_dataset
    rows = read(split=split or "train")
    named = rows.map(lambda row: {**row, "language": language}) if language else rows
    return named, f"{builder.cache_dir} {split} {language}"
