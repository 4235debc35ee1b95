"""Reading parallel sentences from pair files, verse-aligned documents and word lists."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import datasets

from st_xlret.data.documents.loading import Document, LoadReport, is_document, read_documents
from st_xlret.data.languages import check_language, check_languages, match_language
from st_xlret.data.pairs.selection import (
    Pair,
    PairCounts,
    PairReport,
    PairSelection,
    collect_pairs,
    normalise_text,
)
from st_xlret.data.reading.jsonl import BadLines, DataError, read_lines
from st_xlret.data.reading.records import clean_text, required_field
from st_xlret.data.reading.sources import Sources

__all__ = [
    "PairCounts",
    "PairReport",
    "load_pairs",
    "load_pairs_with_report",
    "normalise_text",
    "pairs_from_dictionary",
    "pairs_from_parallel_documents",
]

_SIDES = ("source", "target")


def load_pairs(
    sources: Any,
    *,
    languages: Iterable[str] | None = None,
    per_language: int | None = None,
    seed: int = 0,
    exclude: Collection[str] | None = None,
    alternatives: bool = False,
    skip_bad_lines: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> datasets.Dataset:
    """Read parallel sentences into one memory-mapped dataset.

    White space becomes single spaces. Pairs with an empty side, pairs whose sides are identical, and exact
    duplicates are left out and counted. As for documents, a second call with the same unchanged files and
    options takes the earlier Arrow file.

    Args:
        sources: One or several of: a ``.jsonl`` or ``.jsonl.gz`` file; a directory, searched recursively for
            such files whose first record is a pair; a ``datasets.Dataset`` or other iterable of records. A
            record has ``source_language``, ``target_language``, ``source`` and ``target``.
        languages: Codes to keep; *both* sides must be among them (so name the pivot too). Variants are taken
            as :func:`~st_xlret.data.languages.match_language` says. Default: all.
        per_language: Keep at most so many pairs of each (source language, target language), chosen by a
            seeded hash of the pair: the 500 are a subset of the 5 000 and their first rows, and neither the
            order of the files nor what else they hold matters. Default: all, in file order.
        seed: Seed of that choice.
        exclude: Texts as :func:`normalise_text` gives them; a pair with a side among them is left out
            (to keep test sentences out of the training data).
        alternatives: Also take each text in the record's list ``alternative_sources`` as a source.
        skip_bad_lines: Count bad lines and go on, instead of raising.
        cache_dir: Folder for the Arrow files. Default: ``st_xlret`` inside the cache of ``datasets``.
        show_progress: Show a progress bar.

    Returns:
        Dataset with the string columns ``source``, ``target``, ``source_language``, ``target_language``.
        What the readers in this module return can be put together by ``datasets.concatenate_datasets``.

    Raises:
        DataError: For a bad line (file and line are named), a source that does not exist, or no pair left.
        ValueError: For an unknown code in ``languages`` or ``per_language`` below 1.

    Example:
        >>> import tempfile
        >>> record = {"source_language": "en", "target_language": "fr", "source": "Yes.", "target": "Oui."}
        >>> pairs = load_pairs([record], cache_dir=tempfile.mkdtemp(), show_progress=False)
        >>> pairs[0]["target"], pairs[0]["target_language"]
        ('Oui.', 'fr')
    """
    return load_pairs_with_report(
        sources,
        languages=languages,
        per_language=per_language,
        seed=seed,
        exclude=exclude,
        alternatives=alternatives,
        skip_bad_lines=skip_bad_lines,
        cache_dir=cache_dir,
        show_progress=show_progress,
    )[0]


def load_pairs_with_report(
    sources: Any,
    *,
    languages: Iterable[str] | None = None,
    per_language: int | None = None,
    seed: int = 0,
    exclude: Collection[str] | None = None,
    alternatives: bool = False,
    skip_bad_lines: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> tuple[datasets.Dataset, PairReport]:
    """Like :func:`load_pairs`, and also return a :class:`PairReport` of what was kept and left out."""
    wanted = check_languages(languages)
    found = Sources.find(sources, lambda record: "source" in record and "target" in record)

    def read(report: PairReport, bad_lines: BadLines) -> Iterator[Pair]:
        other_languages: Counter[str] = Counter()
        records = found.records(bad_lines, show_progress=show_progress, description="Reading pairs")
        for file, line, record in records:
            try:
                codes = [check_language(required_field(record, f"{side}_language", str)) for side in _SIDES]
                kept = [match_language(code, wanted) for code in codes]
                target = clean_text(required_field(record, "target", str))
                texts = [clean_text(required_field(record, "source", str))]
                if alternatives:
                    texts.extend(clean_text(text) for text in record.get("alternative_sources") or ())
            except ValueError as error:
                bad_lines(DataError(str(error), file=file, line=line))
                continue
            if kept[0] is None or kept[1] is None:
                other_languages[">".join(codes)] += len(texts)
            else:
                for text in texts:
                    yield text, target, kept[0], kept[1]
        report.other_languages = dict(other_languages)

    selection = PairSelection(per_language, seed, exclude)
    options = {"languages": None if wanted is None else sorted(wanted), "alternatives": alternatives}
    return collect_pairs(found, "pairs", read, selection, options, skip_bad_lines, cache_dir)


def pairs_from_parallel_documents(
    sources: Any,
    pivot: str = "en",
    languages: Iterable[str] | None = None,
    *,
    per_language: int | None = None,
    seed: int = 0,
    exclude: Collection[str] | None = None,
    skip_bad_lines: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> datasets.Dataset:
    """Pair the sentences of documents that carry verse references, such as Bible texts.

    A record has ``language``, ``sentences`` and ``verses``, a list of as many references; sentences of
    different languages with the same reference are translations. The pivot's sentences are held in memory.

    Args:
        sources: As for :func:`~st_xlret.data.documents.loading.load_documents`; all hold one text, since references
            are compared across sources. In a directory, documents without ``verses`` are passed over.
        pivot: Source language of every pair.
        languages: Target languages to keep, default all.
        per_language: As in :func:`load_pairs`.
        seed: As in :func:`load_pairs`.
        exclude: As in :func:`load_pairs`.
        skip_bad_lines: As in :func:`load_pairs`.
        cache_dir: As in :func:`load_pairs`.
        show_progress: As in :func:`load_pairs`.

    Returns:
        The same four columns as :func:`load_pairs`.

    Raises:
        DataError: For a bad line, a source that does not exist, or no pair left.

    Example:
        >>> import tempfile
        >>> english = {"language": "en", "sentences": ["Let there be light."], "verses": ["GEN 1:3"]}
        >>> german = {"language": "de", "sentences": ["Es werde Licht."], "verses": ["GEN 1:3"]}
        >>> options = {"cache_dir": tempfile.mkdtemp(), "show_progress": False}
        >>> pairs_from_parallel_documents([english, german], **options)["target"][:]
        ['Es werde Licht.']
    """
    pivot = check_language(pivot, where="pivot")
    wanted = check_languages(languages)
    found = Sources.find(sources, lambda record: is_document(record) and "verses" in record)
    # The documents are read twice, which a generator does not allow.
    found.collections = [list(c) if isinstance(c, Iterator) else c for c in found.collections]

    def read(report: PairReport, bad_lines: BadLines) -> Iterator[Pair]:
        pivot_sentences: dict[str, str] = {}
        first_reading = BadLines(skip=skip_bad_lines)
        pivot_documents = read_documents(
            found, frozenset({pivot}), LoadReport(), first_reading, show_progress=show_progress
        )
        for document in pivot_documents:
            for verse, sentence in _verses(document, first_reading):
                pivot_sentences.setdefault(verse, sentence)
        if not pivot_sentences:
            raise DataError(f"no documents in the pivot language {pivot!r}; pass another pivot")
        document_report = LoadReport()
        documents = read_documents(found, wanted, document_report, bad_lines, show_progress=show_progress)
        for document in documents:
            if document.language != pivot:
                for verse, sentence in _verses(document, bad_lines):
                    if verse in pivot_sentences:
                        yield pivot_sentences[verse], sentence, pivot, document.language
        report.other_languages = document_report.other_languages

    selection = PairSelection(per_language, seed, exclude)
    options = {"languages": None if wanted is None else sorted(wanted), "pivot": pivot}
    return collect_pairs(found, "verses", read, selection, options, skip_bad_lines, cache_dir)[0]


def pairs_from_dictionary(
    paths: Any,
    source_language: str,
    target_language: str,
    *,
    per_language: int | None = None,
    seed: int = 0,
    exclude: Collection[str] | None = None,
    skip_bad_lines: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = False,
) -> datasets.Dataset:
    r"""Read word lists as short pairs.

    Args:
        paths: One or several ``.tsv`` or ``.tsv.gz`` files, ``source<TAB>target`` a line.
        source_language: Language of the first column.
        target_language: Language of the second column.
        per_language: As in :func:`load_pairs`.
        seed: As in :func:`load_pairs`.
        exclude: As in :func:`load_pairs`.
        skip_bad_lines: As in :func:`load_pairs`.
        cache_dir: As in :func:`load_pairs`.
        show_progress: As in :func:`load_pairs`.

    Returns:
        The same four columns as :func:`load_pairs`; no entry stands twice.

    Raises:
        DataError: For a line that has not two columns, a file that does not exist, or no pair left.
        ValueError: For an unknown language code.

    Example:
        >>> import tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "en-de.tsv").write_text("dog\tHund\ndog\tHund\n", encoding="utf-8")
        >>> pairs_from_dictionary(folder / "en-de.tsv", "en", "de", cache_dir=folder)["target"][:]
        ['Hund']
    """
    source_language = check_language(source_language, where="source_language")
    target_language = check_language(target_language, where="target_language")
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        if os.path.isdir(path):
            raise DataError(f"{str(path)!r} is a directory; pass the word lists of one language pair by name")
    found = Sources.find(paths, lambda record: True, suffixes=(".tsv", ".tsv.gz"))

    def read(report: PairReport, bad_lines: BadLines) -> Iterator[Pair]:
        files = found.opened(read_lines, bad_lines, show_progress=show_progress, description="Reading word lists")
        for file, lines in files:
            for number, line in lines:
                columns = line.split("\t")
                if len(columns) == 2:
                    yield clean_text(columns[0]), clean_text(columns[1]), source_language, target_language
                else:
                    reason = f"expected 2 columns with a tab between them, found {len(columns)}"
                    bad_lines(DataError(reason, file=file, line=number))

    selection = PairSelection(per_language, seed, exclude)
    options = {"languages": [source_language, target_language]}
    return collect_pairs(found, "words", read, selection, options, skip_bad_lines, cache_dir)[0]


def _verses(document: Document, bad_lines: BadLines) -> Iterable[tuple[str, str]]:
    verses = document.record.get("verses")
    if isinstance(verses, list) and len(verses) == len(document.sentences):
        return zip(map(str, verses), document.sentences, strict=True)
    found = f"{len(verses)} verses" if isinstance(verses, list) else "no list 'verses'"
    reason = f"expected a reference for each of the {len(document.sentences)} sentences, found {found}"
    bad_lines(DataError(reason, file=document.file, line=document.line))
    return ()
