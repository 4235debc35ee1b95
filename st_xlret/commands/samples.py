"""Texts of each language to fit a calibration on: from the corpus to be searched, or from documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.data import load_documents
from st_xlret.data.languages import check_language, check_languages, match_language
from st_xlret.data.reading.jsonl import DataError
from st_xlret.data.retrieval.beir import is_beir, read_texts


class Sample(NamedTuple):
    """Texts of one language.

    Attributes:
        texts: Distinct texts.
        documents: For each text, the number of the document that it is from (n,).
    """

    texts: list[str]
    documents: Tensor


def sample_texts(
    sources: Sequence[str],
    *,
    languages: Sequence[str] = (),
    texts_per_language: int = 1500,
    skip_bad_lines: bool = False,
    seed: int = 0,
) -> dict[str, Sample]:
    """Distinct texts of each language, drawn at random and evenly from its documents.

    Args:
        sources: One folder in BEIR's layout, or documents.
        languages: Languages to keep; all by default.
        texts_per_language: How many, at most.
        skip_bad_lines: Skip bad lines of documents.
        seed: Seed of the draw.

    Returns:
        Language to its sample.

    Raises:
        DataError: If the texts of a BEIR folder do not name their languages.
    """
    if len(sources) == 1 and is_beir(sources[0]):
        entries = _of_beir(Path(sources[0]), languages)
    else:
        entries = _of_documents(sources, languages, skip_bad_lines)
    found: dict[str, dict[str, int]] = {}
    numbers: dict[str, int] = {}
    for language, text, document in entries:
        found.setdefault(language, {}).setdefault(text, numbers.setdefault(document, len(numbers)))
    generator = np.random.default_rng([seed, 29])
    drawn = {}
    for language in sorted(found):
        texts, documents = list(found[language]), np.fromiter(found[language].values(), dtype=np.int64)
        order = _over_documents(documents, generator)[:texts_per_language]
        drawn[language] = Sample([texts[i] for i in order], torch.from_numpy(documents[order]))
    return drawn


def _over_documents(documents: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A random order of texts that takes one of each document before a second one of any.

    Long documents, such as novels, would otherwise decide what the texts of their language are about.
    """
    order = generator.permutation(len(documents))
    seen: dict[int, int] = {}
    turns = np.empty(len(order), dtype=np.int64)
    for place, row in enumerate(order):
        turns[place] = seen[documents[row]] = seen.get(documents[row], -1) + 1
    return order[np.argsort(turns, kind="stable")]


def embed_texts(
    model: SentenceTransformer,
    texts: Mapping[str, Sequence[str]],
    *,
    prompt_name: str | None = None,
    batch_size: int = 64,
    bf16: bool = False,
) -> dict[str, Tensor]:
    """Embeddings of each language's texts, with one progress bar over all of them.

    Args:
        model: The encoder.
        texts: Language to texts.
        prompt_name: A prompt of the model; None embeds them as documents.
        batch_size: Texts in a forward pass.
        bf16: Compute in bfloat16.

    Returns:
        Language to (n, d), float32 on the CPU.

    Raises:
        ValueError: If the model has no such prompt.
    """
    if prompt_name is not None and prompt_name not in model.prompts:
        known = ", ".join(model.prompts) or "none"
        raise ValueError(f"--prompt_name {prompt_name}: the model has no such prompt; it has: {known}")
    everything = [text for found in texts.values() for text in found]
    how: dict[str, Any] = {"batch_size": batch_size, "convert_to_tensor": True, "show_progress_bar": True}
    with torch.autocast(model.device.type, torch.bfloat16) if bf16 else nullcontext():
        if prompt_name is None:
            rows = model.encode_document(everything, **how)
        else:
            rows = model.encode(everything, prompt_name=prompt_name, **how)
    parts = rows.float().cpu().split([len(found) for found in texts.values()])
    return dict(zip(texts, parts, strict=True))


def _of_beir(folder: Path, languages: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    wanted = check_languages(languages or None)
    (file,) = (path for path in sorted(folder.iterdir()) if path.name.startswith("corpus.jsonl"))
    for entry in read_texts(file):
        if entry.language is None:
            raise DataError(
                f"the text {entry.id!r} names no language: add metadata.language to the corpus, or fit on documents "
                "that name theirs with --documents",
                file=str(file),
                line=entry.line,
            )
        language = match_language(check_language(entry.language), wanted)
        if language is not None and entry.text.strip():
            document = entry.metadata.get("document") or entry.title or entry.id
            yield language, entry.text.strip(), f"{language} {document}"


def _of_documents(
    sources: Sequence[str], languages: Sequence[str], skip_bad_lines: bool
) -> Iterator[tuple[str, str, str]]:
    dataset = load_documents(list(sources), languages=languages or None, skip_bad_lines=skip_bad_lines)
    for batch in dataset.iter(batch_size=10_000):
        for language, text, document in zip(batch["language"], batch["sentence"], batch["document"], strict=True):
            yield language, text, str(document)
