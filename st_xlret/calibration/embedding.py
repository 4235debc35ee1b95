"""Embeddings by language, as the fit of a calibration takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from st_xlret.encoding import Role, encode
from st_xlret.precision import autocast

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer


def embed_texts(
    model: SentenceTransformer,
    texts: Mapping[str, Sequence[str]],
    *,
    role: Role | None = None,
    prompt: str | None = None,
    batch_size: int = 64,
    precision: str = "fp32",
    show_progress_bar: bool = False,
) -> dict[str, Tensor]:
    """Embed the texts of each language, at the full width of the model whatever its `truncate_dim`.

    Args:
        model: The encoder. One with maps per language is told the languages.
        texts: Language -> texts.
        role: `"query"` or `"document"`, whose prompt is put before the texts; None as `model.encode`.
        prompt: Put before each text instead of the model's prompt.
        batch_size: Size of a forward pass, in texts of 64 tokens.
        precision: As for `st_xlret.precision.autocast`.
        show_progress_bar: Show a progress bar over the tokens.

    Returns:
        Language -> (n, d), float32 on the CPU.

    Raises:
        ValueError: If the model gives no sentence embeddings.
    """
    _check_sentence_embeddings(model)
    codes = [code for code, found in texts.items() for _ in found]
    everything = [text for found in texts.values() for text in found]
    how: dict[str, Any] = {"batch_size": batch_size, "convert_to_tensor": True, "show_progress_bar": show_progress_bar}
    if prompt is not None:
        how["prompt"] = prompt
    with autocast(precision, model.device), _full_width(model):
        rows = encode(model, everything, codes, role=role, **how).float().cpu()
    return dict(zip(texts, rows.split([len(found) for found in texts.values()]), strict=True))


def embed_pairs(
    model: SentenceTransformer,
    pairs: Dataset,
    *,
    pivot: str = "en",
    languages: Iterable[str] | None = None,
    batch_size: int = 64,
    show_progress_bar: bool = False,
) -> dict[str, tuple[Tensor, Tensor]]:
    """Embed both sides of the parallel sentences that have the pivot on one side.

    Args:
        model: The encoder. Its `encode` is used as it is.
        pairs: What [`load_pairs`][st_xlret.load_pairs] returns. Pairs without the pivot are left out.
        pivot: The language into which the others are rotated.
        languages: The other languages to embed. Default: all.
        batch_size: Size of a forward pass, in texts of 64 tokens.
        show_progress_bar: Show a progress bar over the texts.

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
    both = {language: own + other for language, (own, other) in sorted(texts.items())}
    rows = embed_texts(model, both, batch_size=batch_size, show_progress_bar=show_progress_bar)
    return {language: (found[: len(found) // 2], found[len(found) // 2 :]) for language, found in rows.items()}


def _check_sentence_embeddings(model: SentenceTransformer) -> None:
    """Check that a model gives one vector of finite numbers per text, before long work."""
    try:
        found = model.encode(["a"], convert_to_tensor=True, show_progress_bar=False, truncate_dim=None)
    except KeyError as error:
        kinds = ", ".join(type(module).__name__ for module in model.children())
        raise ValueError(
            f"the model gives no sentence embeddings ({error} is missing after its modules, {kinds}): add a Pooling "
            "module, as in SentenceTransformer(modules=[transformer, Pooling(dimension)]), and save it"
        ) from error
    if found.ndim != 2 or not bool(torch.isfinite(found).all()):
        raise ValueError(
            f"the model gives no sentence embeddings: one text became {tuple(found.shape)} numbers, or NaN"
        )


@contextmanager
def _full_width(model: SentenceTransformer) -> Iterator[None]:
    """Without `truncate_dim`: a calibration maps whole embeddings, which are cut afterwards."""
    cut = model.truncate_dim
    model.truncate_dim = None
    try:
        yield
    finally:
        model.truncate_dim = cut
