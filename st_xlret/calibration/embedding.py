"""Embed documents and parallel sentences by language, as the fit of a calibration takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer


def embed_documents(
    model: SentenceTransformer,
    documents: Dataset,
    *,
    languages: Iterable[str] | None = None,
    sentences_per_language: int | None = 20_000,
    batch_size: int = 64,
    seed: int = 0,
    show_progress: bool = False,
) -> dict[str, Tensor]:
    """Embed a sample of the sentences of each language.

    Args:
        model: The encoder. Its `encode` is used as it is, with its final normalisation if it has one.
        documents: Data set with the columns `sentence` and `language`, as `st_xlret.load_documents` returns it.
        languages: Languages to embed. Default: all in the documents.
        sentences_per_language: Maximum number of sentences, drawn at random; None for all. Repeated sentences count
            once.
        batch_size: Sentences per forward pass.
        seed: Seed of the draw.
        show_progress: Show a progress bar over languages.

    Returns:
        Language -> (n, d) float32 on the CPU, in the order of `languages`, or sorted.

    Raises:
        ValueError: If a language has no sentence; the message names it and the languages there are.
    """
    rows = _rows_by_language(documents)
    chosen = sorted(rows) if languages is None else list(languages)
    missing = [language for language in chosen if language not in rows]
    if missing:
        raise ValueError(f"the documents have no sentence in {', '.join(missing)}: there are {', '.join(sorted(rows))}")
    generator = np.random.default_rng(seed)
    embeddings = {}
    for language in tqdm(chosen, desc="embedding", disable=not show_progress):
        drawn = generator.permutation(rows[language])[:sentences_per_language]
        sentences = list(dict.fromkeys(documents.select(np.sort(drawn))["sentence"]))
        embeddings[language] = _encode(model, sentences, batch_size)
    return embeddings


def embed_pairs(
    model: SentenceTransformer,
    pairs: Dataset,
    *,
    pivot: str = "en",
    languages: Iterable[str] | None = None,
    batch_size: int = 64,
    show_progress: bool = False,
) -> dict[str, tuple[Tensor, Tensor]]:
    """Embed both sides of the parallel sentences that have the pivot on one side.

    Args:
        model: The encoder, used as in `embed_documents`.
        pairs: Data set with the columns `source`, `target`, `source_language` and `target_language`, as
            `st_xlret.load_pairs` returns it. Pairs without the pivot are left out.
        pivot: The language into which the others are rotated.
        languages: The other languages to embed. Default: all.
        batch_size: Sentences per forward pass.
        show_progress: Show a progress bar over languages.

    Returns:
        Language -> row-aligned embeddings (n, d) of its sentences and of the pivot's, float32 on the CPU.

    Raises:
        ValueError: If no pair has the pivot on one side and a wanted language on the other.
    """
    wanted = None if languages is None else set(languages)
    texts: dict[str, tuple[list[str], list[str]]] = {}
    for pair in pairs:
        sides = {pair["source_language"]: pair["source"], pair["target_language"]: pair["target"]}
        if len(sides) < 2 or pivot not in sides:
            continue
        language = next(code for code in sides if code != pivot)
        if wanted is None or language in wanted:
            own, other = texts.setdefault(language, ([], []))
            own.append(sides[language])
            other.append(sides[pivot])
    if not texts:
        named = "" if wanted is None else f" and one of {', '.join(sorted(wanted))}"
        raise ValueError(f"none of the {len(pairs)} pairs is between the pivot {pivot!r}{named}")
    return {
        language: (_encode(model, own, batch_size), _encode(model, other, batch_size))
        for language, (own, other) in tqdm(sorted(texts.items()), desc="embedding pairs", disable=not show_progress)
    }


def _rows_by_language(documents: Dataset) -> dict[str, np.ndarray]:
    found: dict[str, list[np.ndarray]] = {}
    start = 0
    for batch in documents.select_columns("language").iter(batch_size=100_000):
        codes = np.asarray(batch["language"])
        for language in np.unique(codes):
            found.setdefault(str(language), []).append(start + np.flatnonzero(codes == language))
        start += len(codes)
    return {language: np.concatenate(parts) for language, parts in found.items()}


def _encode(model: SentenceTransformer, sentences: Sequence[str], batch_size: int) -> Tensor:
    encoded = model.encode(list(sentences), batch_size=batch_size, show_progress_bar=False, convert_to_numpy=True)
    return torch.from_numpy(np.asarray(encoded, dtype=np.float32))
