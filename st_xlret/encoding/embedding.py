"""Embedding texts: prompts, maps, and batches of like length, with the host's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import quantize_embeddings
from tqdm.auto import tqdm

from st_xlret.columns import Role
from st_xlret.encoding.batches import (
    PADDED_TO,
    padding_options,
    token_batches,
    token_lengths,
)
from st_xlret.encoding.maps import router_tasks
from st_xlret.encoding.prompts import role_prompt
from st_xlret.precision import autocast, number_format

# The help of `--batch_size` names both, as texts: 64 tokens, and 64 of such texts.
_TOKENS_PER_TEXT = 64
_MOST_TOKENS_ON_A_CPU = 4_096  # larger batches no longer fit a CPU's caches
_Rounding: TypeAlias = Literal["int8", "uint8", "binary", "ubinary"]
_ROUNDINGS: tuple[_Rounding, ...] = ("int8", "uint8", "binary", "ubinary")
"""Precisions of the host, to which finished vectors are rounded."""
_OPTIONS_OF_THE_HOST = frozenset({"chunk_size", "convert_to_numpy", "output_value", "pool"})
"""Options for which batches are the host's."""


def encode(
    model: SentenceTransformer,
    texts: str | Sequence[str],
    language: str | Sequence[str | None] | None = None,
    *,
    role: Role | None = None,
    precision: str = "fp32",
    **options: Any,
) -> Any:
    """Embed texts as `model.encode`, each through the map of its language where the model has one.

    Args:
        model: Any Sentence Transformer; one with a map per language, as
            [`export`][st_xlret.export] makes it.
        texts: A text, or n of them. They are sorted by their tokens, so that little is padded.
        language: Language of all texts, or n of them, in any spelling. Without one, a text takes
            the default map, with a warning; a language that has no map is a `ValueError`.
        role: `"query"` or `"document"` puts the prompt of that role before the texts. None does as
            `model.encode`.
        precision: What the model computes in: `"fp32"`, `"bf16"` or `"auto"` (bf16 where the device
            computes in it). Or what the vectors are rounded to, as by `model.encode`: `"int8"`,
            `"uint8"`, `"binary"`, `"ubinary"`.
        **options: Those of `model.encode`; `batch_size` is in texts of 64 tokens (64, the most that
            a CPU takes).

    Example:
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> from st_xlret import CalibrationLayer, export
        >>> calibration = CalibrationLayer(2, ["en", "fr"], pivot="en")
        >>> calibration.offset[1] = torch.tensor([0.5, 0.0])
        >>> words = SentenceTransformer(modules=[BoW(vocab=["one", "two"])], device="cpu")
        >>> model = export(words, calibration)
        >>> encode(model, ["one", "one"], ["fr-CA", "eng"], role="query").tolist()
        [[1.5, 0.0], [1.0, 0.0]]
    """
    if isinstance(texts, Mapping):
        raise TypeError(f"give a text or a list of texts, not a {type(texts).__name__}")
    if precision in _ROUNDINGS:
        rows = [texts] if isinstance(texts, str) else texts
        vectors = encode(model, rows, language, role=role, **options)
        rounded = _round_vectors(vectors, precision, options)
        return rounded[0] if isinstance(texts, str) else rounded
    if role is not None and options.get("prompt") is None and options.get("prompt_name") is None:
        options["prompt"] = role_prompt(model, role)
    rows = [texts] if isinstance(texts, str) else list(texts)
    if language is None or isinstance(language, str):
        codes = [language] * len(rows)
    else:
        codes = list(language)
    if len(codes) != len(rows):
        raise ValueError(f"{len(rows)} texts and {len(codes)} languages: give one for each, or one")
    rows_of_task: dict[str | None, list[int]] = {}
    for row, task in zip(range(len(rows)), router_tasks(model, codes, role), strict=True):
        rows_of_task.setdefault(task, []).append(row)
    with autocast(precision, model.device):
        if isinstance(texts, str) or not rows:
            task = next(iter(rows_of_task), None)
            return model.encode(texts, task=task, **options)
        parts = []
        for task, of_task in rows_of_task.items():
            some = [rows[row] for row in of_task]
            parts.append(_encode_in_batches(model, some, task=task, **options))
    return _vectors_in_order(parts, list(rows_of_task.values()))


def _round_vectors(vectors: Any, precision: _Rounding, options: dict[str, Any]) -> Any:
    """Vectors of all texts as the host rounds them, in the form that is asked for."""
    if len(vectors):
        vectors = quantize_embeddings(vectors, precision=precision)
    if options.get("convert_to_tensor"):
        return torch.as_tensor(vectors)
    if not options.get("convert_to_numpy", True):
        return [torch.as_tensor(vector) for vector in vectors]
    return vectors


def _vectors_in_order(parts: list[Any], rows: list[list[int]]) -> Any:
    """One collection of vectors, in the order of the rows, of parts that have some rows each."""
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate(rows))
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)[order]
    if isinstance(parts[0], torch.Tensor):
        return torch.cat(parts)[torch.tensor(order)]
    vectors = []
    for part in parts:
        vectors += part
    return [vectors[place] for place in order]


def _encode_in_batches(
    model: Any,
    texts: list[str],
    *,
    batch_size: int = 64,
    show_progress_bar: bool | None = False,
    convert_to_tensor: bool = False,
    **options: Any,
) -> Any:
    """As `model.encode`, in batches of like numbers of tokens; vectors in the order of the texts.

    They are a NumPy array, or a tensor on the model's device with `convert_to_tensor`; where the
    host makes the batches, what its options ask for.
    """
    lengths = None
    if batch_size > 0 and not _needs_batches_of_the_host(options):
        prompt = _prompt_of(model, options)
        lengths = token_lengths(model, [prompt + text for text in texts])  # prompts count
    if lengths is None:
        return model.encode(
            texts,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            convert_to_tensor=convert_to_tensor,
            **options,
        )
    budget = batch_size * _TOKENS_PER_TEXT
    if model.device.type == "cpu":
        budget = min(budget, _MOST_TOKENS_ON_A_CPU)
    padding = _padding_in_bf16(model, options)
    if padding:
        lengths = [-(-length // PADDED_TO) * PADDED_TO for length in lengths]
    vectors = torch.empty(0)
    bar = tqdm(total=sum(lengths), desc="Encoding", unit=" tokens", disable=not show_progress_bar)
    with bar:
        for rows in token_batches(lengths, budget):
            part = model.encode(
                [texts[row] for row in rows],
                batch_size=len(rows),
                show_progress_bar=False,
                convert_to_tensor=True,
                **options,
                **padding,
            )
            if not convert_to_tensor:
                part = part.cpu()
            if not len(vectors):
                vectors = part.new_empty(len(texts), part.shape[1])
            vectors[torch.tensor(rows, device=part.device)] = part
            bar.update(sum(lengths[row] for row in rows))
    return vectors if convert_to_tensor else _as_numpy(vectors)


def _as_numpy(vectors: torch.Tensor) -> NDArray[Any]:
    """Vectors on the CPU as an array; bfloat16 becomes float32."""
    if vectors.dtype == torch.bfloat16:  # NumPy has none
        vectors = vectors.float()
    return vectors.numpy()


def _needs_batches_of_the_host(options: dict[str, Any]) -> bool:
    """Whether options change what a batch is, or what is returned of it."""
    several_devices = isinstance(options.get("device"), list)
    return several_devices or not _OPTIONS_OF_THE_HOST.isdisjoint(options)


def _prompt_of(model: Any, options: dict[str, Any]) -> str:
    """The prompt that the host puts before texts with these options."""
    prompt = options.get("prompt")
    if prompt is not None:
        return prompt
    name = options.get("prompt_name") or model.default_prompt_name or ""
    return model.prompts.get(name) or ""


def _padding_in_bf16(model: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options of padding to few lengths, where a CPU computes in bfloat16; none elsewhere."""
    if model.device.type != "cpu" or "processing_kwargs" in options:
        return {}
    return padding_options(model) if number_format(model) == torch.bfloat16 else {}
