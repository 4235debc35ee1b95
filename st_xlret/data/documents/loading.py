"""Loading documents into one memory-mapped data set with a row per sentence."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

import datasets

from st_xlret.data.documents.reading import Document, find_documents, read_documents
from st_xlret.data.languages import check_languages
from st_xlret.data.reading.arrow_cache import ArrowCache, Columns
from st_xlret.data.reading.jsonl import BadLines, DataError, Limits
from st_xlret.data.reading.report import Report
from st_xlret.data.reading.sources import Place, Sources

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

    The text is streamed to Arrow files in `cache_dir` and memory-mapped, so a corpus need not fit into memory. A
    second call with the same unchanged files (path, size, modification time) and options reuses them. A call that was
    killed is continued by the next one, which repeats at most the last five million sentences.

    Documents are numbered from 0 in the order of the sorted file paths (other sources last), whatever the order of
    `sources`. The rows of a document are contiguous and in order. White space inside a sentence becomes single
    spaces; empty sentences are dropped before positions are counted.

    Args:
        sources: One or several of: a file of JSON lines (`.jsonl` or `.json`); a text file with a paragraph per line
            and a blank line between documents that is named after its language, such as CC-100's `fr.txt.xz`; a folder,
            searched recursively for such files; the name of a Hugging Face data set as `NAME:CONFIG=LANGUAGE`, such as
            `"wikimedia/wikipedia:20231101.fr=fr"` (its `train` split; `NAME:default` if the rows have a `language`
            column), which is streamed; a `datasets.Dataset` or another iterable of records. A record has `language`
            and one of `sentences` (list of strings), `text`, or CCNet's `raw_content`; other fields are ignored. Files
            may be compressed (`.gz`, `.xz`).
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
    progress = _Reading(found, made, bad_lines)

    def rows() -> Iterator[Columns]:
        read = read_documents(
            found, wanted, made, bad_lines, split_text=split_text, show_progress=show_progress, start=progress.place
        )
        return progress.follow(read, min_sentences, max_documents_per_language)

    def check() -> None:
        made.take_bad_lines(bad_lines)
        if not made.sentences:
            raise DataError(f"no documents left to train on{found.named()}:\n{made}")

    cache = ArrowCache("documents", DOCUMENT_FEATURES, cache_dir)
    dataset, made = cache.take_or_make(key, _Later(rows), made, check, progress)
    made.publish(report, logger)
    for code in sorted((wanted or frozenset()) - made.languages.keys()):
        warnings.warn(f"no documents in language {code!r}", stacklevel=2)
    return dataset


class _Later:
    """An iterable that is made when its first item is asked for."""

    def __init__(self, make: Callable[[], Iterator[Columns]]) -> None:
        self.make = make

    def __iter__(self) -> Iterator[Columns]:
        return self.make()


class _Reading:
    """How far the reading of documents has come: the place in the sources, and what was counted so far."""

    def __init__(self, found: Sources, report: LoadReport, bad_lines: BadLines) -> None:
        self.found, self.report, self.bad_lines = found, report, bad_lines
        self.place, self.documents = Place(), 0

    def follow(
        self, documents: Iterable[Document], min_sentences: int, limit: int | None
    ) -> Iterator[tuple[list[Any], ...]]:
        """Stream the columns of each document that is kept, and count all."""
        for document in documents:
            self.place = document.place
            counts = self.report.counts(document.language)
            sentences = [sentence for sentence in document.sentences if sentence]
            size = len(sentences)
            if not sentences:
                counts.empty_documents += 1
            elif size < min_sentences:
                counts.short_documents += 1
            elif limit is not None and counts.documents >= limit:
                counts.documents_over_limit += 1
            else:
                counts.documents += 1
                counts.sentences += size
                counts.one_sentence_documents += size == 1
                self.documents += 1
                yield sentences, [document.language] * size, [self.documents - 1] * size, list(range(size))

    def state(self) -> dict[str, Any]:
        """Where reading is and what it has counted, as JSON."""
        self.report.take_bad_lines(self.bad_lines)
        return {
            "place": self.found.state_at(self.place),
            "documents": self.documents,
            "report": asdict(self.report),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Read on after a state."""
        self.place, self.documents = Place(*state["place"]), state["documents"]
        kept = LoadReport.from_json(state["report"])
        self.report.restore(replace(kept, reused=False))
        self.bad_lines.examples, self.bad_lines.count = kept.bad_lines, kept.bad_line_count
        self.bad_lines.cut_examples, self.bad_lines.cut_count = kept.cut_sentences, kept.cut_sentence_count
