"""Texts of one language with a teacher's vectors, and texts of others that are to reach them."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset, DatasetDict, concatenate_datasets
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.columns import Role, language_column
from st_xlret.data.kept import cache_key
from st_xlret.encoding import KeptVectors, encode, fingerprint, role_prompt
from st_xlret.files import PathLike
from st_xlret.ranges import check_range

COLUMN_OF_ROLE: dict[Role, str] = {"query": "query", "document": "passage"}
"""The columns of the texts of each role, by whose names the Trainer finds their prompts.

Goals are numbered in this order of the roles.
"""

_MOST_FURTHER = 10_000
"""Questions that give further texts of the pivot."""


class DistillationData(NamedTuple):
    """What is to reach which of the teacher's vectors.

    Attributes:
        datasets: For each role, rows with `query` or `passage`, `language` and `label`, the number
            of its goal.
        texts: The goals of each role. They are numbered from role to role, and `teacher_vectors`
            has their vectors in this order.
    """

    datasets: DatasetDict
    texts: dict[Role, list[str]]

    def pairs(self) -> Dataset:
        """All translations as `query_1` beside their goals as `query_2`: both get one prompt.

        But for texts that are their own goal.
        """
        goals: list[str] = []
        parts = []
        for role, column in COLUMN_OF_ROLE.items():
            goals += self.texts[role]
            if role in self.datasets:
                parts.append(self.datasets[role].rename_column(column, "query_1"))
        rows = concatenate_datasets(parts)
        goals_of_rows = [goals[label] for label in rows["label"]]
        pairs = rows.add_column("query_2", goals_of_rows).remove_columns("label")
        return pairs.filter(lambda row: row["query_1"] != row["query_2"])


class _Learned(NamedTuple):
    """A text, and the text of the pivot whose vector it is to reach."""

    text: str
    language: str
    goal: str


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

    `query_share` of the translations, drawn at random, are learned as queries, the others as
    documents. `english_share` of the rows are texts of the pivot, the language of the goals, which
    keep their place; the first 10 000 `query` and `positive` of `questions` in it are further
    texts of it. Pairs without the pivot are left out; a `ValueError` says that all are.

    Example:
        >>> rows = {"source": ["yes", "no"], "target": ["oui", "non"]}
        >>> languages = {"source_language": ["en", "en"], "target_language": ["fr", "fr"]}
        >>> data = distillation_data(Dataset.from_dict({**rows, **languages}), english_share=0.5)
        >>> sorted((row["query_1"], row["query_2"]) for row in data.pairs())
        [('non', 'no'), ('oui', 'yes')]
    """
    check_range(0, 1, query_share=query_share)
    check_range(0, 0.99, english_share=english_share)
    translations = _translations_of(pairs, pivot)
    generator = np.random.default_rng([seed, 19])
    as_query = generator.random(len(translations)) < query_share
    datasets = DatasetDict()
    texts: dict[Role, list[str]] = {}
    first = 0
    further_texts = _further_texts(questions, pivot)
    for role in COLUMN_OF_ROLE:
        is_of_role = as_query if role == "query" else ~as_query
        learned = [translations[row] for row in np.flatnonzero(is_of_role)]
        goals = list(dict.fromkeys([*(each.goal for each in learned), *further_texts[role]]))
        texts[role] = goals
        wanted = round(len(learned) * english_share / (1 - english_share))
        count = min(len(goals), wanted)
        for number in generator.choice(len(goals), size=count, replace=False):
            learned.append(_Learned(goals[number], pivot, goals[number]))
        if learned:
            datasets[role] = _rows_of_role(role, learned, goals, first)
        first += len(goals)
    return DistillationData(datasets, texts)


def _translations_of(pairs: Dataset, pivot: str) -> list[_Learned]:
    """The texts of other languages that have a translation into the pivot.

    A `ValueError` says that there are none.
    """
    translations = []
    for pair in pairs:
        for side, other in (("source", "target"), ("target", "source")):
            language = pair[language_column(other)]
            if pair[language_column(side)] == pivot and language != pivot:
                translations.append(_Learned(pair[other], language, pair[side]))
    if not translations:
        raise ValueError(
            f"none of the {len(pairs)} pairs has a side in {pivot!r}, the language of the goal "
            "(--pivot)"
        )
    return translations


def _further_texts(questions: Dataset | None, pivot: str) -> dict[Role, list[str]]:
    """Questions of others in the pivot, and their passages, by role; empty lists without any."""
    if questions is None:
        return {"query": [], "document": []}
    is_in_pivot = np.array(questions["language"][:], str) == pivot
    first = questions[np.flatnonzero(is_in_pivot)[:_MOST_FURTHER]]
    return {"query": first["query"], "document": first["positive"]}


def _rows_of_role(
    role: Role,
    learned: list[_Learned],
    goals: list[str],
    first: int,
) -> Dataset:
    """The rows of a role; its goals are numbered from `first` on."""
    number_of = {goal: first + number for number, goal in enumerate(goals)}
    rows = []
    for text, language, goal in learned:
        rows.append({COLUMN_OF_ROLE[role]: text, "language": language, "label": number_of[goal]})
    return Dataset.from_list(rows)


def teacher_vectors(
    teacher: SentenceTransformer,
    data: DistillationData,
    folder: PathLike,
    precision: str,
) -> Tensor:
    """The teacher's vectors (M, d) of the goals, queries first.

    They are kept in a folder named after encoder and texts. All ranks call it: the first one embeds
    while the others wait.
    """
    weights = fingerprint(teacher)
    parts = []
    with PartialState().main_process_first():
        for role in COLUMN_OF_ROLE:
            texts = data.texts[role]
            if texts:
                name = cache_key([weights, role_prompt(teacher, role), precision, texts])
                kept = KeptVectors(Path(folder, name), shard_size=4096)
                _write_vectors(kept, teacher, role, texts, precision)
                parts.append(torch.from_numpy(kept[:]).float())
    return torch.cat(parts)


def _write_vectors(
    kept: KeptVectors,
    teacher: SentenceTransformer,
    role: Role,
    texts: list[str],
    precision: str,
) -> None:
    """Embed the texts of a role into `kept`, but for what an earlier run has written."""

    def vectors_of(rows: slice) -> np.ndarray:
        return encode(teacher, texts[rows], role=role, precision=precision)

    kept.write(texts, vectors_of)
