"""Questions put aside for choosing a model."""

from __future__ import annotations

import numpy as np
from datasets import Dataset

from st_xlret.data.batches.sampling import column_codes, rows_by_code


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
