"""Rows of a table: by the values of columns, by language, and beside one another."""

from collections import Counter
from itertools import product
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
from datasets import Dataset, concatenate_datasets

from st_xlret.columns import language_column


class Group(NamedTuple):
    """The rows that have the same values in some columns, in ascending order."""

    rows: np.ndarray
    values: tuple[str, ...]


def rows_by_value(dataset: Dataset, columns: list[str]) -> list[Group]:
    """The rows of each combination of the values of some columns, ascending.

    Combinations come in the order in which the values of each column come first; those without rows
    are left out.
    """
    number = np.zeros(len(dataset), dtype=np.int64)  # of each row's combination
    lists = []
    for column in columns:
        mapped = dataset.with_format("arrow", columns=[column])
        values = mapped[:][column]
        distinct = values.unique()
        place = pc.index_in(values, value_set=distinct)
        number = number * len(distinct) + place.to_numpy()
        lists.append(distinct.to_pylist())
    combinations = list(product(*lists))
    # Small integers are sorted by their digits.
    if len(combinations) < 2**15:
        order = np.argsort(number.astype(np.int16), kind="stable")
    else:
        order = np.argsort(number, kind="stable")
    counts = np.bincount(number, minlength=len(combinations))
    groups = []
    start = 0
    for combination, count in zip(combinations, counts.tolist(), strict=True):
        if count:
            groups.append(Group(order[start : start + count], combination))
        start += count
    return groups


def by_language(pairs: Dataset, pivot: str | None = None) -> dict[str, tuple[list[str], list[str]]]:
    """Group pairs into language -> (its sentences, the pivot's), as `TatoebaEvaluator` takes them.

    The pivot is by default the language that occurs in the most rows; rows without it are left out.
    """
    pivot = pivot or _most_frequent_language(pairs)
    grouped: dict[str, tuple[list[str], list[str]]] = {}
    for row in pairs:
        side = "source"
        other = "target"
        if row["source_language"] == pivot:
            side = "target"
            other = "source"
        if row[language_column(other)] == pivot:
            language = row[language_column(side)]
            texts, translations = grouped.setdefault(language, ([], []))
            texts.append(row[side])
            translations.append(row[other])
    return grouped


def _most_frequent_language(pairs: Dataset) -> str | None:
    """The language that most pairs have on a side; None without pairs."""
    # Sources come first: of two languages in equally many rows, the source is the pivot.
    counts = Counter([*pairs["source_language"], *pairs["target_language"]])
    for language, _ in counts.most_common(1):
        return language
    return None


def pairs_and_others(pairs: Dataset, others: Dataset | None, seed: int = 0) -> Dataset:
    """Put a sentence without a translation beside each pair, for the language loss.

    (lang-contrastive, Hu et al. 2023.) They are the columns `other` and `other_language`, in random
    order, and again where they are fewer than the pairs.

    Args:
        pairs: `source`, `target`, `source_language` and `target_language`.
        others: `sentence` and `language`; None or empty for parallel sentences alone.
        seed: Seed of their order.
    """
    pairs = pairs.select_columns(["source", "target", "source_language", "target_language"])
    if others is None or not len(others):
        return pairs
    generator = np.random.default_rng(seed)
    passes = [np.empty(0, np.int64)]
    while sum(map(len, passes)) < len(pairs):
        passes.append(generator.permutation(len(others)))
    rows = np.concatenate(passes)
    chosen = others.select(rows[: len(pairs)])
    beside = chosen.select_columns(["sentence", "language"])
    beside = beside.rename_columns({"sentence": "other", "language": "other_language"})
    return concatenate_datasets([pairs, beside], axis=1)
