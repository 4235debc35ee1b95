"""The data of a retrieval task: tables of texts, judgements, and their reader in BEIR's layout."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

from st_xlret.columns import holds_strings
from st_xlret.data import beir
from st_xlret.data.beir import Qrels
from st_xlret.data.reading import DataError
from st_xlret.evaluation.base import chosen_names
from st_xlret.files import PathLike
from st_xlret.languages import check_language, languages_of_labels

logger = logging.getLogger(__name__)

TEXT_COLUMNS = dict.fromkeys(("id", "title", "text", "language"), "string")
RowNumbers: TypeAlias = NDArray[np.int64]
"""Numbers of rows of a corpus; `NOT_IN_CORPUS` is in place of a document that is not there."""

NOT_IN_CORPUS = -1


class TextRow(NamedTuple):
    """A row of a table of texts, in the order of its columns."""

    id: str
    title: str
    text: str
    language: str


def text_row(name: str, title: str, text: str, language: str) -> TextRow:
    """A row of a table, checked: a `TypeError` or `ValueError` for what is no text."""
    for value in (name, title, text, language):
        if not isinstance(value, str):
            raise TypeError(f"expected a string, found {type(value).__name__} {value!r:.40}")
    return TextRow(name, title, text, _checked_language(language))


@cache
def _checked_language(code: str) -> str:
    return check_language(code)


def texts_table(rows: Iterable[TextRow | tuple[str, str, str, str]]) -> Dataset:
    """Rows (id, title, text, language) as a table, without titles if all are empty.

    A missing language is "".
    """
    listed = list(rows)
    columns = {}
    for place, name in enumerate(TEXT_COLUMNS):
        columns[name] = [row[place] for row in listed]
    columns["language"] = languages_of_labels(columns["language"])
    if not any(columns["title"]):
        del columns["title"]
    return Dataset.from_dict(columns)


def full_texts(table: Dataset) -> list[str]:
    """The text of each row that is encoded: after its title, if the table has titles."""
    if "title" not in table.column_names:
        return list(table["text"][:])  # as it stands: XQuAD-R's candidates begin with spaces
    titles = table["title"][:]
    texts = table["text"][:]
    return list(map(beir.whole_text, titles, texts))


@dataclass(frozen=True)
class RetrievalData:
    """A corpus and queries, as `texts_table` makes them, and judgements, whose file messages name.

    Those queries count that have a relevant document, found or not; relevant are those that are
    judged above 0.

    Raises:
        DataError: If a text is missing, no query has a relevant document, a judged query is not
            there, or a judged id stands twice.
    """

    corpus: Dataset
    queries: Dataset
    qrels: Qrels
    file: str = "qrels"
    _relevant_rows: dict[int, RowNumbers] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _refuse_missing_texts(self.corpus, "the corpus")
        _refuse_missing_texts(self.queries, "the queries")
        relevant = _find_relevant_rows(self.corpus, self.queries, self.qrels, self.file)
        object.__setattr__(self, "_relevant_rows", relevant)

    @property
    def relevant(self) -> list[RowNumbers]:
        """The corpus rows relevant to each of the `judged` queries; -1 for one that is missing."""
        return list(self._relevant_rows.values())

    @cached_property
    def judged(self) -> Dataset:
        """The queries that count, in their order."""
        rows = list(self._relevant_rows)
        return Dataset.from_dict(self.queries[rows])

    def select_languages(
        self, languages: Sequence[str] | None, *, corpus: bool = False
    ) -> RetrievalData:
        """The data with the queries of some languages (None: all).

        With `corpus`, it has their documents alone.
        """
        if languages is None:
            return self
        chosen = chosen_names(languages, self.queries.unique("language"), self.file)
        queries = _rows_in_languages(self.queries, chosen)
        asked = set(queries["id"][:])
        qrels: Qrels = {query: grades for query, grades in self.qrels.items() if query in asked}
        documents = self.corpus
        if corpus:
            documents = _rows_in_languages(self.corpus, chosen)
            qrels = _judgements_of(documents, qrels)
        selected = RetrievalData(documents, queries, qrels, self.file)
        chosen_names(chosen, selected.judged.unique("language"), f"{self.file} (judged)")
        return selected


def _refuse_missing_texts(table: Dataset, what: str) -> None:
    """Refuse, by a `DataError`, a missing text, which would be embedded as the word None."""
    for name in ("id", "title", "text"):
        if name not in table.column_names or not len(table):
            continue
        missing = table.data.column(name).null_count
        if missing or not holds_strings(table, name):
            raise DataError(f"{what}: {name!r} has {missing} missing values, or no texts")


def _rows_in_languages(table: Dataset, languages: Sequence[str]) -> Dataset:
    """The rows in some languages, in the order of these; in memory."""
    codes = np.array(table["language"][:])
    rows = []
    for language in languages:
        rows += np.flatnonzero(codes == language).tolist()
    return Dataset.from_dict(table[rows])


def _judgements_of(documents: Dataset, qrels: Qrels) -> Qrels:
    """The judgements of some documents alone."""
    names = set(documents["id"][:])
    judgements = {}
    for query, grades in qrels.items():
        judgements[query] = {name: grade for name, grade in grades.items() if name in names}
    return judgements


def _find_relevant_rows(
    corpus: Dataset, queries: Dataset, qrels: Qrels, file: str
) -> dict[int, RowNumbers]:
    """Row of each query that counts to its relevant corpus rows, in the order of the queries.

    Corpus rows are in ascending order, those that are `NOT_IN_CORPUS` first. A `DataError` refuses
    an id that is not there once, and judgements of which no query can find any.
    """
    query_rows = _rows_by_id(queries, qrels)
    judged: set[str] = set()
    for grades in qrels.values():
        judged.update(grades)
    document_rows = _rows_by_id(corpus, sorted(judged))
    missing = [name for name, rows in document_rows.items() if not rows]
    for name in missing:
        document_rows[name] = [NOT_IN_CORPUS]
    row_of_query = _only_row_by_id(query_rows, file)
    row_of_document = _only_row_by_id(document_rows, file)

    relevant = {}
    for query, grades in qrels.items():
        rows = [row_of_document[name] for name, grade in grades.items() if grade > 0]
        if rows:
            relevant[row_of_query[query]] = np.sort(rows)
    if all(rows[-1] == NOT_IN_CORPUS for rows in relevant.values()):
        raise DataError("no query has a relevant document", file=file)
    if missing:
        problem = f"{len(missing)} judged documents are not in the corpus and count as not found"
        logger.warning("%s: %s, such as %r", file, problem, missing[0])
    return {row: relevant[row] for row in sorted(relevant)}


def _rows_by_id(table: Dataset, names: Iterable[str]) -> dict[str, list[int]]:
    """Each name to the rows whose id it is; of a large table, part of the ids is in memory."""
    rows: dict[str, list[int]] = {name: [] for name in names}
    row = 0
    for batch in table.select_columns(["id"]).iter(batch_size=100_000):
        for name in batch["id"]:  # type: ignore[index]
            if name in rows:
                rows[name].append(row)
            row += 1
    return rows


def _only_row_by_id(rows_of: Mapping[str, Sequence[int]], file: str) -> dict[str, int]:
    """The row of each id; a `DataError` refuses one that does not stand once."""
    only = {}
    for name, rows in rows_of.items():
        count = len(rows)
        if count != 1:
            raise DataError(f"{name!r} stands {count} times in the texts", file=file)
        only[name] = rows[0]
    return only


def read_beir(
    folder: PathLike, *, split: str = "test", language: str | None = None
) -> RetrievalData:
    """Read a pool in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/SPLIT.tsv`.

    `language` is that of texts without a field `language`, in the record or in its `metadata`.
    Documents may name there what they are translations of: `translation_of` is the id of the
    original. The judgement of a document holds for its translations too, unless they are judged.
    """
    files = beir.BeirFiles.of_folder(folder, split)
    if language is not None:
        language = check_language(language)
    translations = _Translations()
    documents = texts_table(_read_texts(files.corpus, language, translations))
    queries = texts_table(_read_texts(files.queries, language))
    judgements = beir.read_qrels(files.qrels)
    ids = set(documents["id"][:])
    for of_query in judgements.values():
        judged = dict(of_query)
        for name, grade in judged.items():
            unjudged = translations.of(name) & ids - judged.keys()
            for other in unjudged:
                of_query[other] = max(grade, of_query.get(other, grade))
    return RetrievalData(documents, queries, judgements, str(files.qrels))


class _Translations:
    """Ids of texts that say the same."""

    def __init__(self) -> None:
        self._group_of: dict[str, AbstractSet[str]] = {}

    def add(self, one: str, other: str) -> None:
        """Say that two texts are translations of each other."""
        group = self.of(one) | self.of(other)
        for name in group:
            self._group_of[name] = group

    def of(self, name: str) -> AbstractSet[str]:
        """The translations of a text, and itself."""
        return self._group_of.get(name, {name})


def _read_texts(
    file: PathLike, language: str | None, translations: _Translations | None = None
) -> Iterator[TextRow]:
    """The rows of a table of texts, in the order of the file; they are added to `translations`.

    A `DataError` refuses a text without a language where `language` is None.
    """
    for line, text in beir.read_texts(file):
        code = text.language or language
        if code is None:
            raise DataError("no language here, and no --language", file, line)
        original = text.translation_of
        if translations is not None and original is not None and original != text.id:
            translations.add(text.id, original)
        yield TextRow(text.id, text.title, text.text, code)
