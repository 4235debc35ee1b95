"""The parts of a retrieval benchmark: a corpus, queries, and judgements of which document answers which query."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from st_xlret.data.reading.jsonl import DataError, read_lines
from st_xlret.data.retrieval.beir import find_beir, read_qrels, read_texts

Qrels = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class TextCollection:
    """Texts with ids and languages: a corpus or the queries of a benchmark.

    The columns may be lists or anything that is indexed and sliced like a list, such as memory-mapped columns of a data
    set, so that a corpus of millions of texts need not be in memory.

    Attributes:
        ids: The id of each text.
        texts: The texts.
        languages: ISO 639-1 code of each text, or one code for all.
        titles: Titles, which are put before the texts with a space. Default: none.
        source: Origin of the texts, for error messages.

    Raises:
        ValueError: If the columns differ in length, or there are no texts.

    Example:
        >>> corpus = TextCollection(["a", "b"], ["one", "two"], "en", titles=["Numbers", ""])
        >>> len(corpus), corpus.full_texts([0, 1]), corpus.language_of(1)
        (2, ['Numbers one', 'two'], 'en')
    """

    ids: Sequence[str]
    texts: Sequence[str]
    languages: str | Sequence[str]
    titles: Sequence[str] | None = None
    source: str = "collection"

    def __post_init__(self) -> None:
        columns = {"ids": self.ids, "texts": self.texts}
        columns |= {"titles": self.titles} if self.titles is not None else {}
        columns |= {"languages": self.languages} if not isinstance(self.languages, str) else {}
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{self.source}: the columns differ in length: {lengths}.")
        if not len(self.ids):
            raise ValueError(f"{self.source}: there are no texts.")

    def __len__(self) -> int:
        return len(self.ids)

    def language_of(self, row: int) -> str:
        """The language of one row."""
        return self.languages if isinstance(self.languages, str) else self.languages[row]

    def full_texts(self, rows: Sequence[int] | NDArray[np.int64] | slice) -> list[str]:
        """What is encoded: title and text of some rows, joined with a space as in BEIR and mteb."""
        if isinstance(rows, slice):
            texts = list(self.texts[rows])
            titles = list(self.titles[rows]) if self.titles is not None else None
        else:
            texts = [self.texts[int(row)] for row in rows]
            titles = [self.titles[int(row)] for row in rows] if self.titles is not None else None
        if titles is None:
            return texts
        return [f"{title} {text}".strip() for title, text in zip(titles, texts, strict=True)]

    def languages_of(self, rows: slice) -> str | list[str]:
        """The languages of some rows; one code if all rows of the collection share it."""
        return self.languages if isinstance(self.languages, str) else list(self.languages[rows])

    def language_set(self) -> list[str]:
        """The distinct languages, in order of appearance."""
        return [self.languages] if isinstance(self.languages, str) else list(dict.fromkeys(self.languages))

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> TextCollection:
        """A collection of the given rows, in memory."""

        def pick(column: Sequence[str]) -> list[str]:
            return [column[int(row)] for row in rows]

        return replace(
            self,
            ids=pick(self.ids),
            texts=pick(self.texts),
            titles=None if self.titles is None else pick(self.titles),
            languages=self.languages if isinstance(self.languages, str) else pick(self.languages),
        )

    def require_distinct_ids(self) -> None:
        """Raise a ValueError that names the first id that occurs twice. Needs 8 bytes of memory per id."""
        hashes = np.fromiter((hash(name) for name in self.ids), dtype=np.int64, count=len(self.ids))
        ordered = np.sort(hashes)
        suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
        seen: dict[str, int] = {}
        for row in np.isin(hashes, list(suspects)).nonzero()[0].tolist() if suspects else []:
            name = self.ids[row]
            if name in seen:
                raise ValueError(
                    f"{self.source}: id {name!r} occurs twice, as texts {seen[name] + 1} and {row + 1}: "
                    "ids must be distinct."
                )
            seen[name] = row


@dataclass(frozen=True)
class RetrievalData:
    """A corpus, queries and relevance judgements, checked.

    A document is relevant if its judgement is above 0. Queries without a relevant document have no score and are left
    out; `judged` has the others, which all count, whether a relevant document is found or not.

    Attributes:
        corpus: The documents.
        queries: The queries.
        qrels: Query id to document id to judgement.
        qrels_file: File of the judgements, of which error messages name the line.

    Raises:
        ValueError: If a query is empty, an id occurs twice, a judgement names an unknown id, or no query has a relevant
            document.

    Example:
        >>> corpus = TextCollection(["a", "b"], ["one", "two"], "en")
        >>> queries = TextCollection(["q", "r"], ["un ?", "trois ?"], "fr")
        >>> data = RetrievalData(corpus, queries, {"q": {"a": 1}})
        >>> data.judged.ids, [rows.tolist() for rows in data.relevant]
        (['q'], [[0]])
    """

    corpus: TextCollection
    queries: TextCollection
    qrels: Qrels
    qrels_file: str | None = field(default=None)

    def __post_init__(self) -> None:
        self.corpus.require_distinct_ids()
        self.queries.require_distinct_ids()
        for row, text in enumerate(self.queries.texts):
            if not text.strip():
                raise ValueError(f"{self.queries.source}: query {self.queries.ids[row]!r} is empty.")
        if not self.relevant:
            raise ValueError(f"{self._where()} no query has a relevant document.")

    @cached_property
    def _judged_rows(self) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
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
        in_order = sorted(relevant)
        return np.array(in_order, dtype=np.int64), [relevant[row] for row in in_order]

    @property
    def relevant(self) -> list[NDArray[np.int64]]:
        """The corpus rows relevant to each of the `judged` queries."""
        return self._judged_rows[1]

    @cached_property
    def judged(self) -> TextCollection:
        """The queries that count, which are those with a relevant document, in their order."""
        return self.queries.take(self._judged_rows[0])

    def of_languages(self, languages: Sequence[str]) -> RetrievalData:
        """The same corpus with the queries of some languages only.

        Raises:
            ValueError: If one of them has no query.
        """
        there = self.queries.language_set()
        unknown = [language for language in languages if language not in there]
        if unknown:
            raise ValueError(f"{self.queries.source} has no {unknown}; it has {sorted(there)}.")
        rows = [row for row in range(len(self.queries)) if self.queries.language_of(row) in languages]
        queries = self.queries.take(rows)
        kept = set(queries.ids)
        return replace(self, queries=queries, qrels={q: found for q, found in self.qrels.items() if q in kept})

    def _where(self) -> str:
        return f"{self.qrels_file}:" if self.qrels_file else "qrels:"

    def _unknown_id(self, query: str, document: str, *, query_is_known: bool) -> str:
        unknown = f"document {document!r}" if query_is_known else f"query {query!r}"
        source = self.corpus.source if query_is_known else self.queries.source
        where = self._where()
        if self.qrels_file:
            for number, line in read_lines(self.qrels_file):
                fields = set(line.split())
                if all(name in fields or f'"{name}"' in line for name in (query, document)):
                    where = f"{self.qrels_file}, line {number}:"
                    break
        return f"{where} {unknown} is not in {source}. Give the queries, corpus and qrels of one split and version."


def read_beir(
    folder: str | os.PathLike[str],
    *,
    split: str = "test",
    language: str | None = None,
    languages: Sequence[str] | None = None,
) -> RetrievalData:
    """Read a retrieval benchmark in BEIR's layout: `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`.

    Each file may be gzipped.

    Args:
        folder: The folder of these files.
        split: Name of the judgements. Queries without a judgement are left out.
        language: Language of the texts that have no `metadata.language` and no field `language`.
        languages: Languages of the queries to keep; the corpus stays whole. Default: all.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a line is malformed, an id occurs twice, a text has no language, or a judgement names an
            unknown id. The message names the file and the line.
    """
    files = find_beir(folder, split)
    corpus, queries = (_read_collection(file, language) for file in (files.corpus, files.queries))
    data = RetrievalData(corpus, queries, read_qrels(files.qrels), str(files.qrels))
    return data if languages is None else data.of_languages(languages)


def find_file(folder: str | os.PathLike[str], name: str, *, instead: str = "") -> Path:
    """Find the file `name` or `name.gz` in a folder.

    Args:
        folder: The folder.
        name: Name of the file.
        instead: What the file belongs to, for the message.

    Raises:
        FileNotFoundError: If there is neither. The message says what was expected where.
    """
    for candidate in (Path(folder) / name, Path(folder) / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    there = sorted(entry.name for entry in Path(folder).iterdir())[:12] if Path(folder).is_dir() else None
    found = f"the folder holds {there}" if there is not None else "there is no such folder"
    raise FileNotFoundError(f"expected {Path(folder) / name} (or {name}.gz){instead}; {found}.")


def _read_collection(path: Path, language: str | None) -> TextCollection:
    line_of: dict[str, int] = {}
    texts, titles, languages = [], [], []
    for record in read_texts(path):
        of_record = record.language or language
        if of_record is None:
            reason = "the text has no language: give metadata.language, or one language for all texts"
            raise DataError(reason, file=str(path), line=record.line)
        if record.id in line_of:
            reason = f"the id {record.id!r} occurs in line {line_of[record.id]} too"
            raise DataError(reason, file=str(path), line=record.line)
        line_of[record.id] = record.line
        texts.append(record.text)
        titles.append(record.title)
        languages.append(of_record)
    return TextCollection(list(line_of), texts, languages, titles if any(titles) else None, source=str(path))
