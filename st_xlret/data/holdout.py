"""Holding out parallel sentences and questions, for measuring a run and choosing its best checkpoint."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from st_xlret.data.batches.sampling import column_codes, rows_by_code


def hold_out_pairs(pairs: Dataset, per_language: int, *, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Put some parallel sentences of each language pair aside, and take their texts out of the rest.

    At most a tenth of a language pair's rows is put aside, so that small ones keep what they have.

    Args:
        pairs: Rows with ``source``, ``target`` and their languages.
        per_language: Rows to put aside for each language pair.
        seed: Seed of the choice.

    Returns:
        The rows to train on, and those put aside; neither has a text of the other.

    Example:
        >>> rows = {"source": list("abcdefghij"), "target": list("klmnopqrst")}
        >>> languages = {"source_language": ["en"] * 10, "target_language": ["fr"] * 10}
        >>> pairs = Dataset.from_dict({**rows, **languages})
        >>> [len(part) for part in hold_out_pairs(pairs, 5)]
        [9, 1]
    """
    code, names = column_codes(pairs, ["source_language", "target_language"])
    generator = np.random.default_rng([seed, 11])
    chosen = np.concatenate(
        [
            generator.permutation(group)[: min(per_language, len(group) // 10)]
            for group in rows_by_code(code, len(names))
        ]
    )
    held_out = pairs.select(np.sort(chosen))
    if not len(held_out):
        return pairs, held_out
    table = pairs.with_format("arrow", columns=["source", "target"])[:]
    columns = held_out.with_format("arrow", columns=["source", "target"])[:].columns
    texts = pa.concat_arrays([chunk for column in columns for chunk in column.chunks])
    known = pc.or_(*(pc.is_in(table[side], value_set=texts) for side in ("source", "target")))
    return pairs.select(np.flatnonzero(~known.to_numpy())), held_out


def hold_out_questions(retrieval: Dataset, questions: int, *, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Put some questions aside, with all others about the same passages.

    At most a tenth of the rows is put aside.

    Args:
        retrieval: Rows with ``query`` and ``positive``.
        questions: Rows to put aside, about: passages are taken whole.
        seed: Seed of the choice.

    Returns:
        The rows to train on, and those put aside; no gold passage is in both.

    Example:
        >>> rows = {"query": [str(i) for i in range(40)], "positive": [f"p{i // 2}" for i in range(40)]}
        >>> [len(part) for part in hold_out_questions(Dataset.from_dict(rows), 3)]
        [36, 4]
    """
    code, names = column_codes(retrieval, ["positive"])
    groups = rows_by_code(code, len(names))
    wanted, chosen = min(questions, len(retrieval) // 10), [np.empty(0, dtype=np.int64)]
    for passage in np.random.default_rng([seed, 13]).permutation(len(groups)):
        if sum(map(len, chosen)) >= wanted:
            break
        chosen.append(groups[passage])
    rows = np.sort(np.concatenate(chosen))
    return retrieval.select(np.setdiff1d(np.arange(len(retrieval)), rows)), retrieval.select(rows)


def by_language(pairs: Dataset) -> dict[str, tuple[list[str], list[str]]]:
    """Row-aligned sentences of the pivot and each other language, as the Tatoeba evaluator takes them.

    The pivot is the language that is on a side of the most rows; rows without it are left out.

    Returns:
        Other language -> (its sentences, the pivot's).
    """
    if not len(pairs):
        return {}
    # Sources first: of two languages on as many rows, the source is the pivot.
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
