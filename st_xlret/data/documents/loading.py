"""Loading documents into one memory-mapped data set with a row per sentence."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import Any

import datasets

from st_xlret.data.documents.reading import Document, find_documents, read_documents
from st_xlret.data.languages import check_languages
from st_xlret.data.reading.arrow_cache import ArrowCache
from st_xlret.data.reading.jsonl import BadLines, DataError, Limits
from st_xlret.data.reading.report import Report

logger = logging.getLogger(__name__)

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
        short_documents: Documents skipped because they have fewer than `min_sentences`.
        documents_over_limit: Documents skipped because of `max_documents_per_language`.
    """

    documents: int = 0
    sentences: int = 0
    one_sentence_documents: int = 0
    empty_documents: int = 0
    short_documents: int = 0
    documents_over_limit: int = 0


@dataclass
class LoadReport(Report[LanguageCounts]):
    """What [`load_documents`][st_xlret.load_documents] kept and what it left out; `str(report)` is a small table.

    Attributes:
        languages: Counts by language code.
        other_languages: Documents left out by the language filter, by language code.
        bad_lines: (file, line, reason) of the first 1,000 lines that were skipped.
        bad_line_count: Number of lines that were skipped.
        skipped_files: Files found in folders that hold other kinds of records.
        reused: Whether an earlier result for the same unchanged files was taken.
    """

    counts_class = LanguageCounts
    header = ("language", "documents", "sentences", "one-sentence", "empty", "too short", "over limit")

    @property
    def documents(self) -> int:
        """Documents kept, over all languages."""
        return self.total("documents")

    @property
    def sentences(self) -> int:
        """Sentences kept, over all languages."""
        return self.total("sentences")


def load_documents(
    sources: Any,
    *,
    languages: Iterable[str] | None = None,
    skip_bad_lines: bool = False,
    split_text: bool = True,
    min_sentences: int = 1,
    max_documents_per_language: int | None = None,
    limits: Limits | None = None,
    report: LoadReport | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> datasets.Dataset:
    """Read documents into one memory-mapped data set with a row per sentence.

    The text is streamed to an Arrow file in `cache_dir` and memory-mapped, so a corpus need not fit into memory. A
    second call with the same unchanged files (path, size, modification time) and options reuses that file.

    Documents are numbered from 0 in the order of the sorted file paths (other sources last), whatever the order of
    `sources`. The rows of a document are contiguous and in order. White space inside a sentence becomes single
    spaces; empty sentences are dropped before positions are counted.

    Args:
        sources: One or several of: a `.jsonl` or `.jsonl.gz` file; a folder, searched recursively for such files
            whose first record is a document; the name of a Hugging Face data set as `NAME:CONFIG=LANGUAGE`, such as
            `"wikimedia/wikipedia:20231101.fr=fr"` (its `train` split; `NAME:default` if the rows have a `language`
            column); a `datasets.Dataset` or another iterable of records. A record has `language` and either
            `sentences` (list of strings) or `text`; other fields are ignored.
        languages: Language codes to keep. All by default. `"pt"` also takes `"pt-br"` and stores it as `"pt"`, unless
            `"pt-br"` is named too; `"zh"` does not take `"zh-tw"`, which is in another script. Without a filter every
            code is kept as it is.
        skip_bad_lines: Skip and count bad lines instead of raising an error.
        split_text: Split `text` into sentences by [`split_sentences`][st_xlret.data.split_sentences]; otherwise each
            line of it is one sentence.
        min_sentences: Documents with fewer sentences are left out; 1 keeps one-sentence documents.
        max_documents_per_language: Maximum documents per language: the first ones are kept. No limit by default.
        limits: Longest line and sentence; longer sentences are cut and counted. By default those of `Limits`.
        report: Filled with counts of what was kept and left out. They are logged as well, at the level INFO.
        cache_dir: Folder for the Arrow files. By default `st_xlret` inside the cache of `datasets`.
        show_progress: Show a progress bar.

    Returns:
        Data set with the columns `sentence` (string), `language` (string), `document` (int64, unique over all
        sources) and `position` (int32, from 0 within the document).

    Raises:
        DataError: For a bad line (file and line are named), a source that does not exist, or if no document is left.
        ValueError: For an unknown code in `languages`, a limit below 1, or a Hugging Face data set without text or
            language.

    Example:
        >>> import tempfile
        >>> records = [{"language": "en", "text": "It rained. We stayed in."}]
        >>> documents = load_documents(records, cache_dir=tempfile.mkdtemp(), show_progress=False)
        >>> documents["sentence"][:], documents["position"][:]
        (['It rained.', 'We stayed in.'], [0, 1])
    """
    if min_sentences < 1:
        raise ValueError(f"min_sentences must be at least 1, not {min_sentences}")
    if max_documents_per_language is not None and max_documents_per_language < 1:
        raise ValueError(
            f"max_documents_per_language must be at least 1 or None for all, not {max_documents_per_language}"
        )
    wanted, limits = check_languages(languages), limits or Limits()
    found = find_documents(sources)
    key = found.cache_key(
        {
            "languages": None if wanted is None else sorted(wanted),
            "skip_bad_lines": skip_bad_lines,
            "split_text": split_text,
            "min_sentences": min_sentences,
            "max_documents_per_language": max_documents_per_language,
            "limits": astuple(limits),
        }
    )
    made, bad_lines = LoadReport(skipped_files=found.skipped), BadLines(skip_bad_lines, limits)
    read = read_documents(found, wanted, made, bad_lines, split_text=split_text, show_progress=show_progress)

    def check() -> None:
        made.take_bad_lines(bad_lines)
        if not made.sentences:
            raise DataError(f"no documents left to train on{found.named()}:\n{made}")

    rows = _rows(read, made, min_sentences, max_documents_per_language)
    dataset, made = ArrowCache("documents", DOCUMENT_FEATURES, cache_dir).take_or_make(key, rows, made, check)
    made.publish(report, logger)
    for code in sorted((wanted or frozenset()) - made.languages.keys()):
        warnings.warn(f"no documents in language {code!r}", stacklevel=2)
    return dataset


def _rows(
    documents: Iterable[Document],
    report: LoadReport,
    min_sentences: int,
    limit: int | None,
) -> Iterator[tuple[str, str, int, int]]:
    number = 0
    for document in documents:
        language = document.language
        counts = report.counts(language)
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
