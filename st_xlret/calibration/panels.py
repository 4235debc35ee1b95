"""The fit of a sample that an encoder made, which panels of short texts in other languages join.

Both panels are from the Universal Declaration of Human Rights, whose reproduction the Office of
the United Nations High Commissioner for Human Rights allows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from st_xlret.calibration.choose import fit_and_compare
from st_xlret.calibration.comparison import Comparison
from st_xlret.calibration.fit_options import FitOptions, Strength
from st_xlret.calibration.fit_sample import Pairs, Vectors, make_sample
from st_xlret.calibration.vectors import VectorCalibration

if TYPE_CHECKING:
    from st_xlret.calibration.embedding import RoleEncoder


def weak_language_phrases() -> dict[str, list[str]]:
    """Language -> five phrases in it, each as a question: 21 languages that encoders know badly.

    Queries in such languages resemble each other, which documents cannot show.
    """
    return _read_panel("phrases.json")


def panel_paragraphs() -> dict[str, list[str]]:
    """Language -> ten paragraphs in it: the documents of other languages, where there are none."""
    return _read_panel("panel.json")


def _read_panel(name: str) -> dict[str, list[str]]:
    """A panel of the package: language -> its texts, in the order of the file."""
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    panel: dict[str, list[str]] = json.loads(text)
    return panel


def embed_phrases(encoder: RoleEncoder) -> dict[str, Tensor]:
    """The phrases of weak languages as vectors of one language, under the code `mul`."""
    rows = encoder.embed(weak_language_phrases(), "query")
    return {"mul": torch.cat(list(rows.values()))}


def fit_with_panels(
    documents: Vectors,
    options: FitOptions,
    strength: Strength,
    *,
    encoder: RoleEncoder | None,
    queries: Vectors | None = None,
    phrases: bool = True,
    as_queries: Vectors | None = None,
    ids: Mapping[str, ArrayLike] | None = None,
    pairs: Pairs | None = None,
    compare: bool = True,
) -> tuple[VectorCalibration, Comparison | None]:
    """Fit a calibration to a sample of documents, and compare it with others.

    Documents in one language get a map of the queries that ask them, if `options.joins_queries`:
    the paragraphs of `panel_paragraphs` stand for documents in other languages. Such documents
    cannot show what queries gain: nothing is compared, and `"auto"` is 1.

    Args:
        documents: As `queries`, `as_queries`, `ids` and `pairs`, those of `fit_and_compare`.
        options: How to fit.
        strength: How strong it is.
        encoder: What embedded the documents. Without it, as of stored vectors, phrases cannot
            join, and documents in one language are a `ValueError`.
        queries: Queries without labels.
        phrases: Whether phrases of weak languages join LSAR alone.
        as_queries: To measure by.
        ids: To measure by.
        pairs: For a rotation.
        compare: Whether to measure other strengths. Without it, `"auto"` is 1.
    """
    joining_phrases = None
    if encoder is not None and phrases and options.is_lsar:
        joining_phrases = embed_phrases(encoder)
    if len(documents) == 1 and options.joins_queries:
        documents, options = _with_panel(documents, options, encoder)
        compare = False
    if compare:
        return fit_and_compare(
            documents,
            as_queries,
            ids,
            queries=queries,
            phrases=joining_phrases,
            pairs=pairs,
            strength=strength,
            options=options,
        )
    sample = make_sample(documents, queries, joining_phrases, pairs, options)
    whole_or_given = 1.0 if strength == "auto" else strength
    return VectorCalibration.of_sample(sample, options, whole_or_given), None


def _with_panel(
    documents: Vectors, options: FitOptions, encoder: RoleEncoder | None
) -> tuple[Vectors, FitOptions]:
    """Documents in one language beside those of the panel, and options for as few texts as it has.

    The documents of the user take the place of a language of the panel. Without an encoder, that is
    a `ValueError`.
    """
    if encoder is None:
        raise ValueError(
            "the vectors are in one language, and nothing shows what languages differ in: give "
            "the encoder that they are from by --model, which embeds paragraphs in others"
        )
    panel = encoder.embed(panel_paragraphs(), "document")
    fewest = min(len(rows) for rows in panel.values())
    return {**panel, **documents}, replace(options, min_texts=fewest)
