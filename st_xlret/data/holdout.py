"""Holding out parallel sentences and questions, for measuring a run and choosing its best checkpoint."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from st_xlret.data.columns import rows_by_value


def hold_out_pairs(pairs: Dataset, per_language: int, *, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Hold out some parallel sentences of each language pair, and remove their texts from the rest.

    At most a tenth of the rows of a language pair are held out. Returns the rows to train on, and those held out; no
    text is in both.

    Example:
        >>> rows = {"source": list("abcdefghij"), "target": list("klmnopqrst")}
        >>> languages = {"source_language": ["en"] * 10, "target_language": ["fr"] * 10}
        >>> [len(part) for part in hold_out_pairs(Dataset.from_dict({**rows, **languages}), 5)]
        [9, 1]
    """
    by_pair, _ = rows_by_value(pairs, ["source_language", "target_language"])
    generator = np.random.default_rng([seed, 11])
    groups = [generator.permutation(group) for group in by_pair]
    chosen = np.concatenate([group[: min(per_language, len(group) // 10)] for group in groups])
    held_out = pairs.select(np.sort(chosen))
    if not len(held_out):
        return pairs, held_out
    table = pairs.with_format("arrow", columns=["source", "target"])[:]
    columns = held_out.with_format("arrow", columns=["source", "target"])[:].columns
    texts = pa.concat_arrays([chunk for column in columns for chunk in column.chunks])
    known = pc.or_(*(pc.is_in(table[side], value_set=texts) for side in ("source", "target")))
    return pairs.select(np.flatnonzero(~known.to_numpy())), held_out


def hold_out_questions(retrieval: Dataset, questions: int, *, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Hold out some questions, together with all other questions about the same passages.

    Of rows with `query`, `positive` and `negative_1` ..., about `questions` and at most a tenth are held out. Rows
    with a held-out passage as a negative are in neither part. Returns the rows to train on, and those held out.

    Example:
        >>> rows = {"query": [str(i) for i in range(40)], "positive": [f"p{i // 2}" for i in range(40)]}
        >>> [len(part) for part in hold_out_questions(Dataset.from_dict(rows), 3)]
        [36, 4]
    """
    groups, _ = rows_by_value(retrieval, ["positive"])
    wanted, chosen = min(questions, len(retrieval) // 10), [np.empty(0, dtype=np.int64)]
    for passage in np.random.default_rng([seed, 13]).permutation(len(groups)):
        if sum(map(len, chosen)) >= wanted:
            break
        chosen.append(groups[passage])
    rows = np.sort(np.concatenate(chosen))
    held_out = retrieval.select(rows)
    kept = np.ones(len(retrieval), dtype=bool)
    kept[rows] = False
    negatives = [name for name in retrieval.column_names if name.startswith("negative_")]
    if negatives and len(rows):
        passages = pa.array(held_out.unique("positive"))
        table = retrieval.with_format("arrow", columns=negatives)[:]
        for name in negatives:
            kept &= ~pc.is_in(table[name], value_set=passages).to_numpy()
    return retrieval.select(np.flatnonzero(kept)), held_out


def by_language(pairs: Dataset) -> dict[str, tuple[list[str], list[str]]]:
    """Group pairs into language -> (its sentences, the pivot's), row by row, as `TatoebaEvaluator` takes them.

    The pivot is the language that occurs in the most rows; rows without it are left out.
    """
    if not len(pairs):
        return {}
    # Sources come first: of two languages in equally many rows, the source is the pivot.
    sides = np.array([*pairs["source_language"], *pairs["target_language"]])
    values, first, counts = np.unique(sides, return_index=True, return_counts=True)
    pivot = values[np.lexsort((first, -counts))[0]]
    grouped: dict[str, tuple[list[str], list[str]]] = {}
    for row in pairs:
        if row["source_language"] == pivot:
            language, text, translation = row["target_language"], row["target"], row["source"]
        elif row["target_language"] == pivot:
            language, text, translation = row["source_language"], row["source"], row["target"]
        else:
            continue
        texts, translations = grouped.setdefault(language, ([], []))
        texts.append(text)
        translations.append(translation)
    return grouped
