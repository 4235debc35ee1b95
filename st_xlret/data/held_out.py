"""Rows that are held out for measuring; none of their texts is trained on."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from st_xlret.columns import text_name
from st_xlret.data.rows import Group, rows_by_value


def hold_out_pairs(pairs: Dataset, per_language: int, *, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Split pairs into rows to train on and, of each language pair, at most a tenth held out.

    No text is in both: rows that share a text with one that is held out are in neither part. Where
    these would be more than a tenth of all, as where all languages translate the same sentences,
    the same sentences are held out of all languages, and fewer of them.
    """
    generator = np.random.default_rng([seed, 11])
    groups = []
    chosen = []
    for group in rows_by_value(pairs, ["source_language", "target_language"]):
        shuffled = generator.permutation(group.rows).tolist()
        groups.append(shuffled)
        chosen += shuffled[: _count_to_hold_out(shuffled, per_language)]
    held_out = pairs.select(sorted(chosen))
    texts = [*held_out["source"], *held_out["target"]]
    rest = _rows_without_texts(pairs, ["source", "target"], texts)
    most = len(pairs) // 10
    if len(pairs) - len(rest) <= most:
        return rest, held_out
    return _hold_out_same_texts(pairs, groups, per_language, most)


def _count_to_hold_out(rows: Sequence[int], per_language: int) -> int:
    """How many of the rows of a group are held out: a tenth at most."""
    return min(per_language, len(rows) // 10)


def _hold_out_same_texts(
    pairs: Dataset, groups: list[list[int]], per_language: int, most: int
) -> tuple[Dataset, Dataset]:
    """Split into the rest and rows held out of each group, in its order.

    No text is in both, so further rows are in neither: `most` rows at most are not trained on.
    """
    rows_of_text: dict[str, set[int]] = {}
    of_row = list(zip(pairs["source"], pairs["target"], strict=True))
    for row, texts in enumerate(of_row):
        for text in texts:
            rows_of_text.setdefault(text, set()).add(row)
    left_out: set[int] = set()
    chosen = set()
    for rows in groups:
        count = _count_to_hold_out(rows, per_language)
        # Those that are left out by now cost the least.
        ordered = sorted(rows, key=lambda row: row not in left_out)
        for row in ordered:
            if count == 0:
                break
            source, target = of_row[row]
            further = (rows_of_text[source] | rows_of_text[target]) - left_out
            if len(left_out) + len(further) <= most:
                chosen.add(row)
                left_out |= further
                count -= 1
    rest = [row for row in range(len(pairs)) if row not in left_out]
    return pairs.select(rest), pairs.select(sorted(chosen))


def hold_out_questions(
    retrieval: Dataset, questions: int, *, seed: int = 0
) -> tuple[Dataset, Dataset]:
    """Split questions into rows to train on and others that are held out with their passages.

    About so many are held out, at most a tenth. Rows (`query`, `positive`, `negative_1` ...) with a
    held-out passage as a negative, or a held-out query, are in neither part. Where all these would
    be more than a tenth, fewer are held out.
    """
    generator = np.random.default_rng([seed, 13])
    tenth = len(retrieval) // 10
    count = min(questions, tenth)
    of_passages = rows_by_value(retrieval, ["positive"])
    order = generator.permutation(len(of_passages))
    columns = ["positive"]
    columns += [name for name in retrieval.column_names if text_name(name) == "negative"]
    while True:
        held_out = retrieval.select(_rows_of_first(of_passages, order, count))
        rest = _rows_without_texts(retrieval, columns, held_out["positive"][:])
        rest = _rows_without_texts(rest, ["query"], held_out["query"][:])
        if count <= 1 or len(retrieval) - len(rest) <= tenth:
            return rest, held_out
        count //= 2


def _rows_of_first(groups: Sequence[Group], order: np.ndarray, count: int) -> list[int]:
    """The rows of the first groups of an order that have so many together."""
    rows: list[int] = []
    for place in order:
        if len(rows) >= count:
            break
        rows += groups[place].rows.tolist()
    return sorted(rows)


def _rows_without_texts(dataset: Dataset, columns: list[str], texts: Sequence[str]) -> Dataset:
    """The rows of which no column has one of these texts, in their order."""
    mapped = dataset.with_format("arrow", columns=columns)
    table = mapped[:]
    held_out = pa.array(texts, pa.string())
    is_held_out = np.zeros(len(dataset), dtype=bool)
    for name in columns:
        found = pc.is_in(table[name], value_set=held_out)
        is_held_out |= found.to_numpy()
    rest = np.flatnonzero(~is_held_out)
    return dataset.select(rest)
