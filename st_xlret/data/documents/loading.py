"""Reading documents into one memory-mapped dataset with a row per sentence."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import datasets

from st_xlret.data.documents.splitting import split_sentences
from st_xlret.data.languages import check_language, check_languages, match_language
from st_xlret.data.reading.arrow_cache import ArrowCache
from st_xlret.data.reading.jsonl import BadLines, DataError
from st_xlret.data.reading.records import clean_text, format_report, required_field
from st_xlret.data.reading.sources import Sources

DOCUMENT_FEATURES = datasets.Features(
    {
        "sentence": datasets.Value("string"),
        "language": datasets.Value("string"),
        "document": datasets.Value("int64"),
        "position": datasets.Value("int32"),
    }
)


@dataclass
class LanguageCounts:
    """What was found in one language.

    Attributes:
        documents: Documents kept.
        sentences: Sentences kept.
        one_sentence_documents: Kept documents that have a single sentence, so no context to predict.
        empty_documents: Documents skipped because no sentence was left.
        short_documents: Documents skipped because they have fewer than ``min_sentences``.
        documents_over_limit: Documents skipped because of ``max_documents_per_language``.
    """

    documents: int = 0
    sentences: int = 0
    one_sentence_documents: int = 0
    empty_documents: int = 0
    short_documents: int = 0
    documents_over_limit: int = 0


@dataclass
class LoadReport:
    """What :func:`load_documents` kept and what it left out; ``str(report)`` is a small table.

    Attributes:
        languages: Counts by language code.
        other_languages: Documents left out by the language filter, by language code.
        bad_lines: (file, line, reason) of the first 1 000 lines that were skipped.
        bad_line_count: How many lines were skipped.
        skipped_files: Files found in directories that hold other kinds of records.
        reused: Whether an earlier result for the same unchanged files was taken.
    """

    languages: dict[str, LanguageCounts] = field(default_factory=dict)
    other_languages: dict[str, int] = field(default_factory=dict)
    bad_lines: list[tuple[str, int, str]] = field(default_factory=list)
    bad_line_count: int = 0
    skipped_files: list[str] = field(default_factory=list)
    reused: bool = False

    @property
    def documents(self) -> int:
        """Documents kept, over all languages."""
        return sum(counts.documents for counts in self.languages.values())

    @property
    def sentences(self) -> int:
        """Sentences kept, over all languages."""
        return sum(counts.sentences for counts in self.languages.values())

    def __str__(self) -> str:
        header = ["language", "documents", "sentences", "one-sentence", "empty", "too short", "over limit"]
        return format_report(header, self)


def load_documents(
    sources: Any,
    *,
    languages: Iterable[str] | None = None,
    skip_bad_lines: bool = False,
    split_text: bool = True,
    min_sentences: int = 1,
    max_documents_per_language: int | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> datasets.Dataset:
    """Read documents into one memory-mapped dataset with a row per sentence.

    The text is streamed to an Arrow file in ``cache_dir`` and mapped from there, so that a corpus need not
    fit into memory. A second call with the same unchanged files (path, size, time of change) and options
    takes the earlier file.

    Documents are numbered from 0 in the order of the sorted file paths (in-memory sources last), whatever the
    order of ``sources``. Rows of one document are contiguous and in order. White space inside a sentence
    becomes single spaces; empty sentences are dropped before positions are counted.

    Args:
        sources: One or several of: a ``.jsonl`` or ``.jsonl.gz`` file; a directory, searched recursively for
            such files whose first record is a document; a ``datasets.Dataset`` or other iterable of records.
            A record has ``language`` and either ``sentences`` (list of strings) or ``text``; the other fields
            are ignored.
        languages: Language codes to keep, default all. ``"pt"`` also takes ``"pt-br"`` and stores it as
            ``"pt"`` unless ``"pt-br"`` is named too; ``"zh"`` does not take ``"zh-tw"``, which is in another
            script (see :func:`~st_xlret.data.languages.match_language`). Without a filter every code is kept
            as it is.
        skip_bad_lines: Count bad lines and go on, instead of raising.
        split_text: Split ``text`` into sentences by :func:`~st_xlret.data.documents.splitting.split_sentences`;
            otherwise each line of it is taken as one sentence.
        min_sentences: Documents with fewer sentences are left out; 1 keeps one-sentence documents.
        max_documents_per_language: Keep only the first so many documents of each language.
        cache_dir: Folder for the Arrow files. Default: ``st_xlret`` inside the cache of ``datasets``.
        show_progress: Show a progress bar.

    Returns:
        Dataset with the columns ``sentence`` (string), ``language`` (string), ``document`` (int64, unique
        over all sources) and ``position`` (int32, from 0 in its document).

    Raises:
        DataError: For a bad line (file and line are named), a source that does not exist, or nothing left.
        ValueError: For an unknown code in ``languages`` or a limit below 1.

    Example:
        >>> import tempfile
        >>> records = [{"language": "en", "text": "It rained. We stayed in."}]
        >>> documents = load_documents(records, cache_dir=tempfile.mkdtemp(), show_progress=False)
        >>> documents["sentence"][:], documents["position"][:]
        (['It rained.', 'We stayed in.'], [0, 1])
    """
    return load_documents_with_report(
        sources,
        languages=languages,
        skip_bad_lines=skip_bad_lines,
        split_text=split_text,
        min_sentences=min_sentences,
        max_documents_per_language=max_documents_per_language,
        cache_dir=cache_dir,
        show_progress=show_progress,
    )[0]


def load_documents_with_report(
    sources: Any,
    *,
    languages: Iterable[str] | None = None,
    skip_bad_lines: bool = False,
    split_text: bool = True,
    min_sentences: int = 1,
    max_documents_per_language: int | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> tuple[datasets.Dataset, LoadReport]:
    """Like :func:`load_documents`, and also return a :class:`LoadReport` of what was kept and left out."""
    if min_sentences < 1:
        raise ValueError(f"min_sentences must be at least 1, not {min_sentences}")
    if max_documents_per_language is not None and max_documents_per_language < 1:
        raise ValueError(
            f"max_documents_per_language must be at least 1 or None for all, not {max_documents_per_language}"
        )
    wanted = check_languages(languages)
    found = Sources.find(sources, is_document)
    cache = ArrowCache("documents", DOCUMENT_FEATURES, cache_dir)
    key = found.cache_key(
        {
            "languages": None if wanted is None else sorted(wanted),
            "skip_bad_lines": skip_bad_lines,
            "split_text": split_text,
            "min_sentences": min_sentences,
            "max_documents_per_language": max_documents_per_language,
        }
    )
    with cache.lock(key):
        stored = cache.load(key)
        if stored is not None:
            dataset, report = stored[0], _report_from_json(stored[1])
        else:
            report = LoadReport(skipped_files=found.skipped)
            bad_lines = BadLines(skip=skip_bad_lines)
            rows = _rows(
                read_documents(found, wanted, report, bad_lines, split_text=split_text, show_progress=show_progress),
                report,
                min_sentences,
                max_documents_per_language,
            )

            def finish() -> dict[str, Any]:
                report.bad_lines, report.bad_line_count = bad_lines.examples, bad_lines.count
                if not report.sentences:
                    raise DataError(f"no documents left to train on:\n{report}")
                return asdict(report)

            dataset = cache.store(key, rows, finish)
    for code in sorted((wanted or frozenset()) - report.languages.keys()):
        warnings.warn(f"no documents in language {code!r}", stacklevel=2)
    return dataset, report


def is_document(record: Mapping[str, Any]) -> bool:
    """Whether a record looks like a document: a language, and sentences or text."""
    return "language" in record and ("sentences" in record or "text" in record)


class Document(NamedTuple):
    """A document as read: cleaned sentences, ``""`` where one is empty, beside the whole record."""

    language: str
    sentences: list[str]
    record: Mapping[str, Any]
    file: str
    line: int


def read_documents(
    found: Sources,
    wanted: frozenset[str] | None,
    report: LoadReport,
    bad_lines: BadLines,
    *,
    split_text: bool = True,
    show_progress: bool = True,
) -> Iterator[Document]:
    """Stream the documents in wanted languages."""
    other_languages: Counter[str] = Counter()
    for file, line, record in found.records(bad_lines, show_progress=show_progress, description="Reading documents"):
        try:
            code = check_language(required_field(record, "language", str))
            language = match_language(code, wanted)
            sentences = [] if language is None else _sentences(record, language, split_text)
        except ValueError as error:
            bad_lines(DataError(str(error), file=file, line=line))
            continue
        if language is None:
            other_languages[code] += 1
        else:
            yield Document(language, sentences, record, file, line)
    report.other_languages = dict(other_languages)


def _sentences(record: Mapping[str, Any], language: str, split_text: bool) -> list[str]:
    if record.get("sentences") is not None:
        return [clean_text(sentence) for sentence in required_field(record, "sentences", list)]
    if "text" not in record:
        raise ValueError(f"no field 'sentences' or 'text' (the record has {', '.join(map(repr, record))})")
    text = required_field(record, "text", str)
    clean_text(text)
    return split_sentences(text, language) if split_text else [clean_text(line) for line in text.splitlines()]


def _rows(
    documents: Iterable[Document],
    report: LoadReport,
    min_sentences: int,
    limit: int | None,
) -> Iterator[tuple[str, str, int, int]]:
    number = 0
    for document in documents:
        language = document.language
        counts = report.languages.setdefault(language, LanguageCounts())
        sentences = [sentence for sentence in document.sentences if sentence]
        if not sentences:
            counts.empty_documents += 1
        elif len(sentences) < min_sentences:
            counts.short_documents += 1
        elif limit is not None and counts.documents >= limit:
            counts.documents_over_limit += 1
        else:
            counts.documents += 1
            counts.sentences += len(sentences)
            counts.one_sentence_documents += len(sentences) == 1
            for position, sentence in enumerate(sentences):
                yield sentence, language, number, position
            number += 1


def _report_from_json(stored: dict[str, Any]) -> LoadReport:
    languages = {code: LanguageCounts(**counts) for code, counts in stored.pop("languages").items()}
    bad_lines = [(file, line, reason) for file, line, reason in stored.pop("bad_lines")]
    return LoadReport(languages=languages, bad_lines=bad_lines, **{**stored, "reused": True})
