"""Retrieval data: a corpus, queries and judgements of which document is relevant to which query."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from st_xlret.data.beir import find_beir, line_of_judgement, read_qrels, read_texts
from st_xlret.data.lines import DataError

Qrels = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class TextCollection:
    """Texts with ids and languages: a corpus or the queries of a benchmark.

    The columns may be anything that is indexed and sliced like a list, such as memory-mapped columns of a data set.

    Attributes:
        ids: The id of each text.
        texts: The texts.
        languages: ISO 639-1 code of each text, or one code for all.
        titles: Titles, which are put before the texts with a space. Default: none.
        source: Origin of the texts, for error messages.

    Raises:
        ValueError: If the columns differ in length, or there are no texts.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    languages: str | Sequence[str]
    titles: Sequence[str] | None = None
    source: str = "collection"

    def __post_init__(self) -> None:
        columns = {"ids": self.ids, "texts": self.texts, "titles": self.titles, "languages": self.languages}
        lengths = {name: len(column) for name, column in columns.items() if not isinstance(column, str | None)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{self.source}: the columns differ in length: {lengths}.")
        if not len(self.ids):
            raise ValueError(f"{self.source}: there are no texts.")

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """What is encoded of each row, and its language; read slice by slice."""
        for start in range(0, len(self), 1_024):
            rows = slice(start, start + 1_024)
            yield from zip(self.full_texts(rows), self.languages_of(rows), strict=True)

    def language_of(self, row: int) -> str:
        """The language of one row."""
        return self.languages if isinstance(self.languages, str) else self.languages[row]

    def full_texts(self, rows: slice = slice(None)) -> list[str]:
        """What is encoded: title and text of some rows, joined with a space as in BEIR and mteb."""
        if self.titles is None:
            return list(self.texts[rows])
        return [f"{title} {text}".strip() for title, text in zip(self.titles[rows], self.texts[rows], strict=True)]

    def languages_of(self, rows: slice = slice(None)) -> list[str]:
        """The languages of some rows."""
        if isinstance(self.languages, str):
            return [self.languages] * len(range(*rows.indices(len(self))))
        return list(self.languages[rows])

    def language_set(self) -> list[str]:
        """The distinct languages, in order of appearance."""
        return [self.languages] if isinstance(self.languages, str) else list(dict.fromkeys(self.languages))

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> TextCollection:
        """A collection of the given rows, in memory."""

        def pick(column: Sequence[str]) -> list[str]:
            return [column[int(row)] for row in rows]

        languages = self.languages if isinstance(self.languages, str) else pick(self.languages)
        titles = None if self.titles is None else pick(self.titles)
        return replace(self, ids=pick(self.ids), texts=pick(self.texts), titles=titles, languages=languages)

    def require_distinct_ids(self) -> None:
        """Raise a ValueError that names the first id that occurs twice. Needs 8 bytes of memory per id."""
        hashes = np.fromiter((hash(name) for name in self.ids), dtype=np.int64, count=len(self.ids))
        ordered = np.sort(hashes)
        suspects = ordered[1:][ordered[1:] == ordered[:-1]]
        seen: dict[str, int] = {}
        for row in np.isin(hashes, suspects).nonzero()[0].tolist() if len(suspects) else []:
            name = self.ids[row]
            if name in seen:
                raise ValueError(
                    f"{self.source}: id {name!r} occurs twice, as texts {seen[name] + 1} and {row + 1}: "
                    "ids must be distinct."
                )
            seen[name] = row

    def require_texts(self) -> None:
        """Raise a ValueError that names the first empty text."""
        for row, text in enumerate(self.texts):
            if not text.strip():
                raise ValueError(f"{self.source}: query {self.ids[row]!r} is empty.")


@dataclass(frozen=True)
class RetrievalData:
    """A corpus, queries and relevance judgements, checked.

    A document is relevant if its judgement is above 0. Queries without a relevant document have no score; `judged` has
    the others, which all count, whether a relevant document is found or not.

    Attributes:
        corpus: The documents.
        queries: The queries.
        qrels: Query id to document id to judgement.
        qrels_file: File of the judgements, of which error messages name the line.

    Raises:
        ValueError: If a query is empty, an id occurs twice, a judgement names an unknown id, or no query has a relevant
            document.
    """

    corpus: TextCollection
    queries: TextCollection
    qrels: Qrels
    qrels_file: str | None = field(default=None)

    def __post_init__(self) -> None:
        self.corpus.require_distinct_ids()
        self.queries.require_distinct_ids()
        self.queries.require_texts()
        if not self.relevant:
            raise ValueError(f"{self._where()} no query has a relevant document.")

    @cached_property
    def _judged_rows(self) -> tuple[list[int], list[NDArray[np.int64]]]:
        """Rows of the queries that count, and the corpus rows relevant to each."""
        row_of_query = {name: row for row, name in enumerate(self.queries.ids)}
        judged_documents = {document for judgements in self.qrels.values() for document in judgements}
        row_of_document = {name: row for row, name in enumerate(self.corpus.ids) if name in judged_documents}
        relevant: dict[int, NDArray[np.int64]] = {}
        for query, judgements in self.qrels.items():
            for document in judgements:
                if query not in row_of_query or document not in row_of_document:
                    raise ValueError(self._unknown_id(query, document, query_is_known=query in row_of_query))
            rows = [row_of_document[document] for document, judgement in judgements.items() if judgement > 0]
            if rows:
                relevant[row_of_query[query]] = np.array(sorted(rows), dtype=np.int64)
        return sorted(relevant), [relevant[row] for row in sorted(relevant)]

    @property
    def relevant(self) -> list[NDArray[np.int64]]:
        """The corpus rows relevant to each of the `judged` queries."""
        return self._judged_rows[1]

    @cached_property
    def judged(self) -> TextCollection:
        """The queries that count, which are those with a relevant document, in their order."""
        return self.queries.take(self._judged_rows[0])

    def of_languages(self, languages: str | Sequence[str]) -> RetrievalData:
        """The same corpus with the queries of some languages only.

        Raises:
            ValueError: If one of them has no query.
        """
        queries = self.queries.take(rows_in_languages(self.queries, languages))
        kept = set(queries.ids)
        return replace(self, queries=queries, qrels={q: found for q, found in self.qrels.items() if q in kept})

    def _where(self) -> str:
        return f"{self.qrels_file}:" if self.qrels_file else "qrels:"

    def _unknown_id(self, query: str, document: str, *, query_is_known: bool) -> str:
        unknown = f"document {document!r}" if query_is_known else f"query {query!r}"
        source = self.corpus.source if query_is_known else self.queries.source
        line = line_of_judgement(self.qrels_file, query, document) if self.qrels_file else 0
        where = f"{self.qrels_file}, line {line}:" if line else self._where()
        return f"{where} {unknown} is not in {source}. Give the queries, corpus and qrels of one split and version."


def rows_in_languages(texts: TextCollection, languages: str | Sequence[str]) -> list[int]:
    """The rows of the texts in some languages."""
    chosen = [languages] if isinstance(languages, str) else list(languages)
    there = texts.language_set()
    unknown = [language for language in chosen if language not in there]
    if unknown or not chosen:
        raise ValueError(f"{texts.source} has no {unknown}; it has {sorted(there)}.")
    return [row for row in range(len(texts)) if texts.language_of(row) in chosen]


def read_beir(
    folder: str | os.PathLike[str],
    *,
    split: str = "test",
    language: str | None = None,
) -> RetrievalData:
    """Read a retrieval benchmark in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/SPLIT.tsv`, plain or gzip.

    Documents may name what they are translations of: `translation_of`, or `metadata.translation_of`, is the id of the
    original, which names none. The judgement of a document holds for its translations too, unless they are judged.

    Args:
        folder: The folder of these files.
        split: Name of the judgements. Queries without a judgement are left out.
        language: Language of the texts that have no `metadata.language` and no field `language`.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is malformed (file and line are named).
    """
    files = find_beir(folder, split)
    corpus, translations = _read_collection(files.corpus, language)
    queries, _ = _read_collection(files.queries, language)
    qrels = {query: _with_translations(found, translations) for query, found in read_qrels(files.qrels).items()}
    return RetrievalData(corpus, queries, qrels, str(files.qrels))


def _with_translations(judgements: Mapping[str, int], translations: Mapping[str, list[str]]) -> dict[str, int]:
    """The judgements, and for translations without one the best judgement of a text that says the same."""
    found = dict(judgements)
    for name, value in judgements.items():
        for other in translations.get(name, ()):
            if other not in judgements:
                found[other] = max(value, found.get(other, value))
    return found


def _read_collection(path: Path, language: str | None) -> tuple[TextCollection, dict[str, list[str]]]:
    """The texts, and for each that has translations its id -> the ids of all that say the same."""
    columns = Columns(str(path))
    original_of: dict[str, str] = {}
    titles = []
    for record in read_texts(path):
        of_record = record.language or language
        if of_record is None:
            reason = "the text has no language: give metadata.language, or one language for all texts"
            raise DataError(reason, file=str(path), line=record.line)
        columns.add(record.id, record.text, of_record, record.line)
        titles.append(record.title)
        if record.translation_of not in (None, record.id):
            original_of[record.id] = record.translation_of
    same: dict[str, list[str]] = {}
    for name, original in original_of.items():
        if original in original_of:
            reason = f"it is a translation of {original!r}, which is one of {original_of[original]!r}: name the latter"
            raise DataError(reason, file=str(path), line=columns.line_of[name])
        same.setdefault(original, [original] if original in columns.line_of else []).append(name)
    translations = {name: names for names in same.values() for name in names}
    return replace(columns.collection(), titles=titles if any(titles) else None), translations


class Columns:
    """Collects the columns of a `TextCollection` from a file, and refuses an id that stands twice."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.line_of: dict[str, int] = {}
        self.texts: list[str] = []
        self.languages: list[str] = []

    def add(self, name: str, text: str, language: str, line: int) -> None:
        """Add a text; its id must be new."""
        if name in self.line_of:
            reason = f"the id {name!r} occurs in line {self.line_of[name]} too"
            raise DataError(reason, file=self.source, line=line)
        self.line_of[name] = line
        self.texts.append(text)
        self.languages.append(language)

    def collection(self) -> TextCollection:
        """The texts."""
        return TextCollection(list(self.line_of), self.texts, self.languages, source=self.source)


def find_file(folder: str | os.PathLike[str], *patterns: str, layout: str = "") -> Path:
    """The only file that matches the first of several names or patterns that any file matches, plain or gzipped.

    Raises:
        FileNotFoundError: If there is none, or more than one. The message says what is there.
    """
    root = Path(folder)
    for pattern in patterns:
        found = sorted({*root.glob(pattern), *root.glob(f"{pattern}.gz")})
        if len(found) > 1 and "*" in pattern:
            raise FileNotFoundError(f"{root}: {[file.name for file in found]} all match {pattern}: leave one there.")
        if found:
            return found[0]
    there = f"the folder holds {listing(root)}" if root.is_dir() else "there is no such folder"
    raise FileNotFoundError(f"expected {root / patterns[0]} (or {patterns[0]}.gz){layout}; {there}.")


def listing(folder: Path) -> list[str]:
    """The first names in a folder, for error messages."""
    return sorted(entry.name for entry in folder.iterdir())[:12]
