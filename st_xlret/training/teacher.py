"""Texts of one language with a teacher's vectors, and texts of other languages that are to reach these vectors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset, DatasetDict, concatenate_datasets
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.encoding import KeptVectors, Role, encode, fingerprint, role_prompt

ROLES: tuple[Role, ...] = ("query", "document")

_MOST_QUESTIONS = 10_000
_METADATA = ("language", "label")


class DistillationData(NamedTuple):
    """Texts, and the teacher's vectors that they are to reach.

    Attributes:
        datasets: For each role, rows with `sentence`, `language` and `label`, the row of the vectors to reach.
        texts: For each role, the texts behind its part of the vectors; those of queries come first.
    """

    datasets: DatasetDict
    texts: dict[Role, list[str]]


def distillation_data(
    pairs: Dataset,
    questions: Dataset | None = None,
    *,
    pivot: str = "en",
    english_share: float = 0.15,
    seed: int = 0,
) -> DistillationData:
    """Lay out which texts are to reach which of the teacher's vectors.

    Half of the translations, drawn at random, are learned as queries and half as documents, so that both prompts of an
    encoder that has them are learned. The English texts themselves are mixed in, so that they keep their place.

    Args:
        pairs: Rows with `source`, `target` and their languages. Rows without the pivot are left out.
        questions: Rows with `query` and `positive` in the pivot language; the first 10 000 are further texts of the
            pivot.
        pivot: The language whose vectors are the goal.
        english_share: Share of rows in the pivot language, below 1.
        seed: Seed of the draws.

    Raises:
        ValueError: If no row has the pivot on one side.

    Example:
        >>> rows = {"source": ["yes", "no"], "target": ["oui", "non"]}
        >>> languages = {"source_language": ["en", "en"], "target_language": ["fr", "fr"]}
        >>> data = distillation_data(Dataset.from_dict({**rows, **languages}), english_share=0.0)
        >>> sorted(row["sentence"] for part in data.datasets.values() for row in part)
        ['non', 'oui']
    """
    sides = [("source", "target"), ("target", "source")]
    # Text that learns, its language, and the text of the pivot.
    translations = [
        (pair[other], pair[f"{other}_language"], pair[side])
        for pair in pairs
        for side, other in sides
        if pair[f"{side}_language"] == pivot != pair[f"{other}_language"]
    ]
    if not translations:
        raise ValueError(f"none of the {len(pairs)} pairs has a side in {pivot!r}, the language of the goal (--pivot)")
    random = np.random.default_rng([seed, 19])
    as_query = random.random(len(translations)) < 0.5
    further = questions[:_MOST_QUESTIONS] if questions is not None else {"query": [], "positive": []}
    datasets, texts = DatasetDict(), dict[Role, list[str]]()
    for role, more in zip(ROLES, (further["query"], further["positive"]), strict=True):
        learned = [row for row, query in zip(translations, as_query, strict=True) if query == (role == "query")]
        first, goals = len(texts.get("query", [])), dict.fromkeys([*(goal for _, _, goal in learned), *more])
        row_of = {text: first + i for i, text in enumerate(goals)}
        texts[role] = list(row_of)
        count = min(len(row_of), round(len(learned) * english_share / (1 - english_share)))
        replayed = [texts[role][i] for i in random.choice(len(row_of), size=count, replace=False)]
        learned += [(text, pivot, text) for text in replayed]
        if learned:
            sentences, languages, labels = zip(*((t, code, row_of[goal]) for t, code, goal in learned), strict=True)
            columns = {"sentence": list(sentences), "language": list(languages), "label": list(labels)}
            datasets[role] = Dataset.from_dict(columns)
    return DistillationData(datasets, texts)


def pairs_of(data: DistillationData) -> Dataset:
    """The translations of distillation data beside their English sides, but for English texts that are their own goal.

    Returns:
        Rows with `sentence`, `language` and `translation`, the text whose vector was to be reached.

    Example:
        >>> rows = {"source": ["yes", "no"], "target": ["oui", "non"]}
        >>> languages = {"source_language": ["en", "en"], "target_language": ["fr", "fr"]}
        >>> data = distillation_data(Dataset.from_dict({**rows, **languages}), english_share=0.5)
        >>> sorted((row["sentence"], row["translation"]) for row in pairs_of(data))
        [('non', 'no'), ('oui', 'yes')]
    """
    texts = [text for role in ROLES for text in data.texts[role]]
    rows = concatenate_datasets([data.datasets[role] for role in ROLES if role in data.datasets])
    rows = rows.add_column("translation", [texts[label] for label in rows["label"]]).remove_columns("label")
    return rows.filter(lambda row: row["sentence"] != row["translation"])


def teacher_vectors(teacher: SentenceTransformer, data: DistillationData, folder: str | Path, precision: str) -> Tensor:
    """Embed the texts of distillation data by the teacher, as queries and as documents, each with its prompt.

    The vectors are kept in folders named after the encoder and the texts: an interrupted run goes on where it was.

    Args:
        teacher: The teacher.
        data: The texts.
        folder: Folder of the vectors.
        precision: As for [`autocast`][st_xlret.precision.autocast].

    Returns:
        Vectors (M, d): those of the queries, then those of the documents.
    """
    parts, weights = [], fingerprint(teacher)
    with PartialState().main_process_first():  # rank 0 embeds while the others wait
        for role, texts in data.texts.items():
            if texts:
                key = json.dumps([weights, role_prompt(teacher, role), precision, texts])
                kept = KeptVectors(Path(folder, hashlib.sha256(key.encode()).hexdigest()[:16]), shard_size=4096)
                kept.write(texts, lambda rows: encode(teacher, texts[rows], role=role, precision=precision))  # noqa: B023
                parts.append(torch.from_numpy(kept[:]).float())
    return torch.cat(parts)


def role_prompts(model: SentenceTransformer, datasets: Mapping[str, Dataset]) -> dict[str, dict[str, str]]:
    """The prompt of each text column of each data set: of documents for documents and answers, else of queries."""

    def role_of(name: str, column: str) -> Role:
        return "document" if name == "document" or (name == "questions" and column != "query") else "query"

    return {
        name: {
            column: role_prompt(model, role_of(name, column)) for column in rows.column_names if column not in _METADATA
        }
        for name, rows in datasets.items()
    }
