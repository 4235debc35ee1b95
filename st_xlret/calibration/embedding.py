"""Embed documents and parallel sentences by language, as the fit of a calibration takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.calibration.encoding import encode
from st_xlret.precision import autocast

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
        show_progress: Show a progress bar over the sentences.

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
    sentences = {}
    for language in chosen:
        drawn = generator.permutation(rows[language])[:sentences_per_language]
        sentences[language] = list(dict.fromkeys(documents.select(np.sort(drawn))["sentence"]))
    return _embed_all(model, sentences, "embedding sentences", batch_size, show_progress)


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
        show_progress: Show a progress bar over the sentences.

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
    sides = {language: own + other for language, (own, other) in sorted(texts.items())}
    rows = _embed_all(model, sides, "embedding pairs", batch_size, show_progress)
    return {language: (found[: len(found) // 2], found[len(found) // 2 :]) for language, found in rows.items()}


def _rows_by_language(documents: Dataset) -> dict[str, np.ndarray]:
    found: dict[str, list[np.ndarray]] = {}
    start = 0
    for batch in documents.select_columns("language").iter(batch_size=100_000):
        codes = np.asarray(batch["language"])
        for language in np.unique(codes):
            found.setdefault(str(language), []).append(start + np.flatnonzero(codes == language))
        start += len(codes)
    return {language: np.concatenate(parts) for language, parts in found.items()}


def _embed_all(
    model: SentenceTransformer, texts: Mapping[str, Sequence[str]], what: str, batch_size: int, show_progress: bool
) -> dict[str, Tensor]:
    """Embed texts by `model.encode` as it is."""
    with tqdm(total=sum(map(len, texts.values())), desc=what, unit="text", disable=not show_progress) as bar:
        return embed_texts(model, texts, bar=bar, batch_size=batch_size)


def embed_texts(
    model: SentenceTransformer,
    texts: Mapping[str, Sequence[str]],
    *,
    role: Literal["query", "document"] | None = None,
    prompt: str | None = None,
    batch_size: int = 64,
    precision: str = "fp32",
    bar: Any = None,
) -> dict[str, Tensor]:
    """Embed the texts of each language, at the full width of the model whatever its `truncate_dim`.

    Args:
        model: The encoder. One with maps per language is told the languages.
        texts: Language -> texts.
        role: Embed as `encode_query` or `encode_document` does, with the prompt of the model; None as `encode`.
        prompt: Put before each text instead of the model's prompt.
        batch_size: Size of a forward pass, in texts of 64 tokens.
        precision: As for `st_xlret.precision.autocast`.
        bar: A tqdm bar over texts that is moved on.

    Returns:
        Language -> (n, d), float32 on the CPU.
    """
    codes = [code for code, found in texts.items() for _ in found]
    everything = [text for found in texts.values() for text in found]
    how: dict[str, Any] = {"batch_size": batch_size, "convert_to_tensor": True, "show_progress_bar": False}
    if prompt is not None:
        how["prompt"] = prompt
    rows: list[Tensor | None] = [None] * len(everything)
    with autocast(precision, model.device), _full_width(model):
        for places in _chunks(everything, 16 * batch_size):
            chunk = [everything[place] for place in places]
            found = encode(model, chunk, [codes[place] for place in places], role=role, **how).float().cpu()
            for place, row in zip(places, found, strict=True):
                rows[place] = row
            if bar is not None:
                bar.update(len(places))
    parts = torch.stack([row for row in rows if row is not None]).split([len(found) for found in texts.values()])
    return dict(zip(texts, parts, strict=True))


def _chunks(texts: Sequence[str], size: int) -> Iterator[np.ndarray]:
    """Places of texts of similar length, in an order that lets the time that is left be estimated."""
    order = np.argsort([len(text) for text in texts], kind="stable")
    chunks = [order[first : first + size] for first in range(0, len(order), size)]
    for place in np.random.default_rng(0).permutation(len(chunks)):
        yield chunks[place]


@contextmanager
def _full_width(model: SentenceTransformer) -> Iterator[None]:
    """Without `truncate_dim`: a calibration maps whole embeddings, which are cut afterwards."""
    cut = model.truncate_dim
    model.truncate_dim = None
    try:
        yield
    finally:
        model.truncate_dim = cut
