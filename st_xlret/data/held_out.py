"""Rows that are held out for measuring; none of their texts is trained on."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from st_xlret.columns import text_name
from st_xlret.data.rows import rows_by_value


def hold_out_pairs(pairs: Dataset, per_language: int, *, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Split pairs into rows to train on and, of each language pair, at most a tenth held out.

    No text is in both.
    """
    generator = np.random.default_rng([seed, 11])
    chosen: list[int] = []
    for group in rows_by_value(pairs, ["source_language", "target_language"]):
        tenth = len(group.rows) // 10
        count = min(per_language, tenth)
        shuffled = generator.permutation(group.rows)
        chosen += shuffled[:count].tolist()
    held_out = pairs.select(sorted(chosen))
    texts = [*held_out["source"], *held_out["target"]]
    rest = _rows_without_texts(pairs, ["source", "target"], texts)
    return rest, held_out


def hold_out_questions(
    retrieval: Dataset, questions: int, *, seed: int = 0
) -> tuple[Dataset, Dataset]:
    """Split questions into rows to train on and others that are held out with their passages.

    About so many are held out, at most a tenth. Rows (`query`, `positive`, `negative_1` ...) with a
    held-out passage as a negative are in neither part.
    """
    generator = np.random.default_rng([seed, 13])
    tenth = len(retrieval) // 10
    count = min(questions, tenth)
    of_passages = rows_by_value(retrieval, ["positive"])
    chosen: list[int] = []
    for passage in generator.permutation(len(of_passages)):
        if len(chosen) >= count:
            break
        chosen += of_passages[passage].rows.tolist()
    held_out = retrieval.select(sorted(chosen))
    columns = ["positive"]
    columns += [name for name in retrieval.column_names if text_name(name) == "negative"]
    passages = held_out["positive"][:]
    rest = _rows_without_texts(retrieval, columns, passages)
    return rest, held_out


def _rows_without_texts(dataset: Dataset, columns: list[str], texts: Sequence[str]) -> Dataset:
    mapped = dataset.with_format("arrow", columns=columns)
    table = mapped[:]
    held_out = pa.array(texts, pa.string())
    is_held_out = np.zeros(len(dataset), dtype=bool)
    for name in columns:
        found = pc.is_in(table[name], value_set=held_out)
        is_held_out |= found.to_numpy()
    rest = np.flatnonzero(~is_held_out)
    return dataset.select(rest)
