"""Parallel sentences of documents that carry verse references, such as Bible texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from st_xlret.data.documents.loading import LoadReport
from st_xlret.data.documents.reading import Document, read_documents
from st_xlret.data.pairs.selection import Pair, PairReport
from st_xlret.data.reading.jsonl import BadLines, DataError
from st_xlret.data.reading.sources import Sources

_PIVOT = "en"


def pairs_of_verses(
    found: Sources,
    wanted: frozenset[str] | None,
    report: PairReport,
    bad_lines: BadLines,
    *,
    show_progress: bool = True,
) -> Iterator[Pair]:
    """Stream the pairs of sentences that have the same reference, from the pivot language to every other one.

    References are compared across all documents, so these must be of one text. The pivot is English or, without
    English documents, the language with the most sentences. Its sentences are held in memory; the others are streamed.

    Args:
        found: Documents with `language`, `sentences` and `verses`, a list of as many references.
        wanted: Languages to keep; None for all.
        report: Counts documents in other languages.
        bad_lines: What to do about a bad document.
        show_progress: Show progress bars.

    Raises:
        DataError: For a bad document, unless `bad_lines` skips it.
    """

    def read(languages: frozenset[str] | None) -> Iterator[Document]:
        # A first reading, whose bad lines are counted by the last one.
        return read_documents(
            found, languages, LoadReport(), BadLines(bad_lines.skip, bad_lines.limits), show_progress=show_progress
        )

    pivot, sentences = _PIVOT, {}
    if wanted is None or pivot in wanted:
        sentences = _by_verse(read(frozenset({pivot})), bad_lines.skip)
    if not sentences:
        sizes: Counter[str] = Counter()
        for document in read(wanted):
            sizes[document.language] += len(document.sentences)
        if not sizes:
            return
        pivot = min(sizes, key=lambda language: (-sizes[language], language))
        sentences = _by_verse((document for document in read(wanted) if document.language == pivot), bad_lines.skip)
    for document in read_documents(found, wanted, report, bad_lines, show_progress=show_progress):
        if document.language != pivot:
            for verse, sentence in _verses(document, bad_lines):
                if verse in sentences:
                    yield sentences[verse], sentence, pivot, document.language


def _by_verse(documents: Iterable[Document], skip_bad_lines: bool | None) -> dict[str, str]:
    sentences: dict[str, str] = {}
    bad_lines = BadLines(skip=skip_bad_lines)
    for document in documents:
        for verse, sentence in _verses(document, bad_lines):
            sentences.setdefault(verse, sentence)
    return sentences


def _verses(document: Document, bad_lines: BadLines) -> Iterable[tuple[str, str]]:
    verses = document.record.get("verses")
    if isinstance(verses, list) and len(verses) == len(document.sentences):
        return zip(map(str, verses), document.sentences, strict=True)
    found = f"{len(verses)} verses" if isinstance(verses, list) else "no list 'verses'"
    reason = f"expected a reference for each of the {len(document.sentences)} sentences, found {found}"
    bad_lines(DataError(reason, file=document.file, line=document.line))
    return ()
