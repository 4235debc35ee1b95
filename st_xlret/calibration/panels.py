"""Panels of short texts in other languages, and the fit of documents in one language.

Both panels are from the Universal Declaration of Human Rights, whose reproduction the Office of
the United Nations High Commissioner for Human Rights allows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from st_xlret.calibration.vectors import VectorCalibration

if TYPE_CHECKING:
    from st_xlret.calibration.embedding import RoleEncoder


def weak_language_phrases() -> dict[str, list[str]]:
    """Language -> five phrases in it, each as a question: 21 languages that encoders know badly.

    Queries in such languages resemble each other, which documents cannot show.
    """
    return _read("phrases.json")


def panel_paragraphs() -> dict[str, list[str]]:
    """Language -> ten paragraphs in it: the documents of other languages, where there are none."""
    return _read("panel.json")


def _read(name: str) -> dict[str, list[str]]:
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    panel: dict[str, list[str]] = json.loads(text)
    return panel


def embed_weak_languages(encoder: RoleEncoder) -> dict[str, Tensor]:
    """The phrases as vectors of one language."""
    rows = encoder.embed(weak_language_phrases(), "query")
    return {"mul": torch.cat(list(rows.values()))}


def fit_one_language(
    encoder: RoleEncoder,
    documents: Mapping[str, ArrayLike],
    questions: Mapping[str, ArrayLike] | None = None,
    *,
    phrases: bool = True,
    strength: float | Literal["auto"] = 1.0,
    keep_mean: float | None = None,
    normalize: bool = True,
    metric: str | None = None,
    model: str | None = None,
) -> VectorCalibration:
    """The map of queries that ask a collection in one language, by `"lsar"`.

    The paragraphs of `panel_paragraphs` stand for documents in other languages. A sample of the
    documents cannot show what questions gain, so `"auto"` is 1.

    Args:
        encoder: What embedded the documents.
        documents: The language -> its vectors (n, d).
        questions: Language -> vectors of questions without labels, which join the fit.
        phrases: Whether `weak_language_phrases` join it.
        strength: From 0 to 1, or `"auto"`.
        keep_mean: As the arguments below, that of
            [`VectorCalibration.fit`][st_xlret.VectorCalibration].
        normalize: Scale vectors to unit length first.
        metric: How a store compares the vectors.
        model: Name of the model that made them.
    """
    panel = encoder.embed(panel_paragraphs(), "document")
    fewest = min(len(rows) for rows in panel.values())
    return VectorCalibration.fit(
        {**panel, **documents},
        queries=questions,
        phrases=embed_weak_languages(encoder) if phrases else None,
        queries_only=True,
        strength=1.0 if strength == "auto" else strength,
        keep_mean=keep_mean,
        min_texts=fewest,
        normalize=normalize,
        metric=metric,
        model=model,
    )
