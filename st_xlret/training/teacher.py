"""Texts of one language with a teacher's vectors, and texts of other languages that are to reach these vectors."""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset, DatasetDict, concatenate_datasets
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.columns import Role
from st_xlret.encoding import KeptVectors, encode, fingerprint, role_prompt

COLUMNS: dict[Role, str] = {
    "query": "query",
    "document": "passage",
}  # by whose names the Trainer finds their prompts


class DistillationData(NamedTuple):
    """For each role, rows with `query` or `passage`, `language` and `label`, the number of its goal, and the goals."""

    datasets: DatasetDict
    texts: dict[Role, list[str]]

    def pairs(self) -> Dataset:
        """All translations as `query_1` beside their goals as `query_2`, but for texts that are their own goal."""
        texts = [text for role in COLUMNS for text in self.texts[role]]
        parts = [
            rows.rename_column(COLUMNS[role], "query_1") for role, rows in self.datasets.items()
        ]
        rows = concatenate_datasets(parts)
        rows = rows.add_column("query_2", [texts[label] for label in rows["label"]]).remove_columns(
            "label"
        )
        return rows.filter(lambda row: row["query_1"] != row["query_2"])


def distillation_data(
    pairs: Dataset,
    questions: Dataset | None = None,
    *,
    pivot: str = "en",
    english_share: float = 0.15,
    query_share: float = 0.5,
    seed: int = 0,
) -> DistillationData:
    """Lay out which texts are to reach which of the teacher's vectors.

    `query_share` of the translations, drawn at random, are learned as queries, the others as documents. `english_share`
    of the rows are texts of the pivot, the language of the goals, which keep their place; the first 10 000 `query` and
    `positive` of `questions` are further texts of it. Pairs without the pivot are left out.

    Example:
        >>> rows = {"source": ["yes", "no"], "target": ["oui", "non"]}
        >>> languages = {"source_language": ["en", "en"], "target_language": ["fr", "fr"]}
        >>> data = distillation_data(Dataset.from_dict({**rows, **languages}), english_share=0.5)
        >>> sorted((row["query_1"], row["query_2"]) for row in data.pairs())
        [('non', 'no'), ('oui', 'yes')]
    """
    # Text that learns, its language, and the text of the pivot.
    translations = [
        (pair[other], pair[f"{other}_language"], pair[side])
        for pair in pairs
        for side, other in (("source", "target"), ("target", "source"))
        if pair[f"{side}_language"] == pivot != pair[f"{other}_language"]
    ]
    if not translations:
        raise ValueError(
            f"none of the {len(pairs)} pairs has a side in {pivot!r}, the language of the goal (--pivot)"
        )
    random = np.random.default_rng([seed, 19])
    as_query = random.random(len(translations)) < query_share
    further = questions[:10_000] if questions is not None else {"query": [], "positive": []}
    datasets, texts = DatasetDict(), dict[Role, list[str]]()
    for role, more in zip(COLUMNS, (further["query"], further["positive"]), strict=True):
        rows = [
            row
            for row, query in zip(translations, as_query, strict=True)
            if query == (role == "query")
        ]
        first, goals = (
            len(texts.get("query", [])),
            dict.fromkeys([*(goal for *_, goal in rows), *more]),
        )
        row_of = {text: first + i for i, text in enumerate(goals)}
        texts[role] = list(row_of)
        count = min(len(row_of), round(len(rows) * english_share / (1 - english_share)))
        replayed = random.choice(len(row_of), size=count, replace=False)
        rows += [(text, pivot, text) for text in (texts[role][i] for i in replayed)]
        if rows:
            learned = [
                {COLUMNS[role]: text, "language": code, "label": row_of[goal]}
                for text, code, goal in rows
            ]
            datasets[role] = Dataset.from_list(learned)
    return DistillationData(datasets, texts)


def teacher_vectors(
    teacher: SentenceTransformer, data: DistillationData, folder: str | Path, precision: str
) -> Tensor:
    """The teacher's vectors (M, d) of the goals, queries first; kept in a folder named after encoder and texts."""
    parts, weights = [], fingerprint(teacher)
    with PartialState().main_process_first():  # rank 0 embeds while the others wait
        for role, texts in data.texts.items():
            if texts:
                key = json.dumps([weights, role_prompt(teacher, role), precision, texts])
                kept = KeptVectors(
                    Path(folder, hashlib.sha256(key.encode()).hexdigest()[:16]), shard_size=4096
                )
                kept.write(
                    texts, lambda rows: encode(teacher, texts[rows], role=role, precision=precision)
                )  # noqa: B023
                parts.append(torch.from_numpy(kept[:]).float())
    return torch.cat(parts)
