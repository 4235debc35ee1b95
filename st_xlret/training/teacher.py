"""Texts of one language with a teacher's vectors, and texts of other languages that are to reach these vectors."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset, DatasetDict, concatenate_datasets
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.evaluation.embedding_cache import EmbeddingCache
from st_xlret.precision import autocast
from st_xlret.prompts import Role, role_prompt

logger = logging.getLogger(__name__)

ROLES: tuple[Role, ...] = ("query", "document")

_MOST_QUESTIONS = 10_000


class DistillationData(NamedTuple):
    """Texts, and the teacher's vectors that they are to reach.

    Attributes:
        datasets: For each role, rows with `sentence`, `language` and `label`, the row of `vectors` to reach.
        texts: For each role, the texts behind its part of `vectors`, in their order.
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
        english_share: Share of rows in the pivot language.
        seed: Seed of the draws.

    Raises:
        ValueError: If no row has the pivot, or the share is not between 0 and 1.

    Example:
        >>> rows = {"source": ["yes", "no"], "target": ["oui", "non"]}
        >>> languages = {"source_language": ["en", "en"], "target_language": ["fr", "fr"]}
        >>> data = distillation_data(Dataset.from_dict({**rows, **languages}), english_share=0.0)
        >>> sorted(row["sentence"] for part in data.datasets.values() for row in part)
        ['non', 'oui']
    """
    if not 0 <= english_share < 1:
        raise ValueError(f"english_share must be at least 0 and below 1, got {english_share}")
    rows = [row for row in map(lambda pair: _towards(pair, pivot), pairs) if row is not None]
    if not rows:
        found = sorted({*pairs.unique("source_language"), *pairs.unique("target_language")})
        raise ValueError(
            f"none of the {len(pairs)} pairs has a side in {pivot!r}, whose vectors are the goal: there are {found}; "
            "name the language that all others are translated into with --pivot"
        )
    random = np.random.default_rng([seed, 19])
    as_query = random.random(len(rows)) < 0.5
    texts: dict[Role, dict[str, int]] = {}
    parts = DatasetDict()
    some = questions[:_MOST_QUESTIONS] if questions is not None else {"query": [], "positive": []}
    further = {"query": some["query"], "document": some["positive"]}
    for role in ROLES:
        # One table of vectors: the queries' rows come first.
        known, first = texts.setdefault(role, {}), len(texts["query"]) if role == "document" else 0
        learned = [row for row, query in zip(rows, as_query, strict=True) if query == (role == "query")]
        for text in (*(row[2] for row in learned), *further[role]):
            known.setdefault(text, len(known))
        replayed = list(known)
        count = min(len(replayed), round(len(learned) * english_share / (1 - english_share)))
        chosen = random.choice(len(replayed), size=count, replace=False)
        learned += [(replayed[i], pivot, replayed[i]) for i in chosen]
        if learned:
            sentences, languages, goals = zip(*learned, strict=True)
            labels = [first + known[goal] for goal in goals]
            columns = {"sentence": list(sentences), "language": list(languages), "label": labels}
            parts[role] = Dataset.from_dict(columns)
    return DistillationData(parts, {role: list(known) for role, known in texts.items()})


def pairs_of(data: DistillationData) -> Dataset:
    """The translations of distillation data beside their English sides, but for English texts that are their own goal.

    Args:
        data: What is learned.

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
    parts = []
    for rows in (data.datasets[role] for role in ROLES if role in data.datasets):
        translation = [texts[label] for label in rows["label"]]
        rows = rows.remove_columns("label").add_column("translation", translation)
        parts.append(rows.filter(lambda row: row["sentence"] != row["translation"]))
    return concatenate_datasets(parts)


def teacher_vectors(teacher: SentenceTransformer, data: DistillationData, folder: str | Path, precision: str) -> Tensor:
    """Embed the texts of distillation data by the teacher, as queries and as documents, each with its prompt.

    The vectors are kept on disk in shards: an interrupted run goes on where it was, and a resumed one has them.

    Args:
        teacher: The teacher.
        data: The texts.
        folder: Folder of the vectors.
        precision: As for [`autocast`][st_xlret.precision.autocast].

    Returns:
        Vectors (M, d): those of the queries, then those of the documents.
    """
    cache, parts = EmbeddingCache(folder, shard_size=4096), []
    # Rank 0 embeds while the others wait.
    with PartialState().main_process_first(), autocast(precision, teacher.device):
        for role, texts in data.texts.items():
            if texts:
                logger.info(
                    "embedding %d texts of the pivot as %s", len(texts), {"query": "queries"}.get(role, "documents")
                )
                parts.append(torch.from_numpy(cache.encode(teacher, texts, role=role)[:]))
    return torch.cat(parts)


def role_prompts(model: SentenceTransformer, datasets: Mapping[str, Dataset]) -> dict[str, dict[str, str]]:
    """The prompt of each text column of each data set: of documents for documents and answers, else of queries."""

    def role_of(name: str, column: str) -> Role:
        return "document" if name == "document" or (name == "questions" and column != "query") else "query"

    return {
        name: {
            column: role_prompt(model, role_of(name, column))
            for column in rows.column_names
            if column not in ("language", "label")
        }
        for name, rows in datasets.items()
    }


def _towards(pair: dict[str, str], pivot: str) -> tuple[str, str, str] | None:
    """The side of a pair that learns, its language, and the side in the pivot language; None if there is none."""
    if pair["source_language"] == pivot and pair["target_language"] != pivot:
        return pair["target"], pair["target_language"], pair["source"]
    if pair["target_language"] == pivot and pair["source_language"] != pivot:
        return pair["source"], pair["source_language"], pair["target"]
    return None
