"""The texts of a run's data sets: which columns they are, and as many of each language."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from datasets import Dataset

from st_xlret.columns import language_column
from st_xlret.data.rows import rows_by_value


class TextColumn(NamedTuple):
    """A column of texts of a data set, and the one of their languages."""

    dataset: Dataset
    text: str
    language: str


TextColumns: TypeAlias = Iterable[TextColumn]


def text_and_language_columns(
    *,
    sentences: Dataset | None = None,
    questions: Dataset | None = None,
    pairs: Dataset | None = None,
    others: Dataset | None = None,
) -> list[TextColumn]:
    """Every column of texts of some data sets, with that of its languages."""
    known = [
        (sentences, "sentence", "language"),
        (questions, "query", "language"),
        (questions, "positive", "language"),
        (pairs, "source", language_column("source")),
        (pairs, "target", language_column("target")),
        (others, "sentence", "language"),
    ]
    columns = []
    for rows, text, language in known:
        if rows is not None:
            columns.append(TextColumn(rows, text, language))
    return columns


def data_entries(**datasets: Dataset | None) -> dict[str, Any]:
    """The languages of data sets, and how many rows each has, for `results.json`.

    They are those that `text_and_language_columns` takes.
    """
    languages: set[str] = set()
    for dataset, _, column in text_and_language_columns(**datasets):
        languages.update(dataset.unique(column))
    entries: dict[str, Any] = {"languages": sorted(languages)}
    for kind, rows in datasets.items():
        entries[kind] = 0 if rows is None else len(rows)
    return entries


class _Source(NamedTuple):
    """The texts of one language in a column of a data set, in a drawn order."""

    dataset: Dataset
    column: str
    rows: np.ndarray

    def texts(self) -> Iterator[str]:
        """The texts of `rows`, in their order."""
        ordered = self.dataset.select_columns(self.column).select(self.rows)
        for batch in ordered.iter(1000):
            yield from batch[self.column]


def balanced_texts(columns: TextColumns, characters: int, *, seed: int = 0) -> Iterator[str]:
    """Texts with as many characters of each language, as far as they go.

    They come language by language, in a drawn order.
    """
    generator = np.random.default_rng([seed, 7])
    by_language: dict[str, list[_Source]] = {}
    for column in columns:
        for rows, (language,) in rows_by_value(column.dataset, [column.language]):
            order = generator.permutation(len(rows))
            source = _Source(column.dataset, column.text, rows[order])
            by_language.setdefault(language, []).append(source)
    for language in sorted(by_language):
        yield from _texts_of_language(by_language[language], characters / len(by_language))


def _texts_of_language(sources: list[_Source], characters: float) -> Iterator[str]:
    """Texts of about so many characters, evenly from the sources."""
    left = characters
    # Small sources first, whole: what they lack is filled from the larger ones.
    ordered = sorted(sources, key=lambda source: len(source.rows))
    for number, source in enumerate(ordered):
        budget = left / (len(ordered) - number)
        for text in source.texts():
            if budget <= 0:
                break
            yield text
            budget -= len(text)
            left -= len(text)
