"""Encoders of mteb that tell a model with a map per language the languages of the texts, which mteb itself does not."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Any

from sentence_transformers import SentenceTransformer

from st_xlret.calibration.encoding import encode, known_languages, language_routes

logger = logging.getLogger(__name__)

COLUMN = "language"
"""The column of queries and corpora that has the language of each text."""


def by_language(encoder: Any, languages: Sequence[str] = ()) -> Any:
    """An encoder of mteb that encodes each text by its language, if its model has a map per language.

    Args:
        encoder: An encoder of mteb, around a Sentence Transformer or not.
        languages: The languages of the data sets that will be encoded, in their order, where they have no column
            `language`.

    Returns:
        The encoder itself, if its model needs no language.
    """
    model = getattr(encoder, "model", None)
    if isinstance(encoder, _ByLanguage) or not isinstance(model, SentenceTransformer):
        return encoder
    routes = language_routes(model)
    if not routes:
        return encoder
    logger.info("the model has a map per language (%s): texts are encoded by their languages", ", ".join(routes))
    return _ByLanguage(encoder, languages)


class _ByLanguage:
    def __init__(self, encoder: Any, languages: Sequence[str]) -> None:
        self.encoder = encoder
        self.languages = iter(languages)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.encoder, name)

    def encode(self, inputs: Any, **options: Any) -> Any:
        """As the encoder of mteb."""
        rows = inputs.dataset
        codes = list(rows[COLUMN]) if COLUMN in rows.column_names else [next(self.languages)] * len(rows)
        told = copy.copy(self.encoder)
        told.model = _Told(self.encoder.model, codes)
        return told.encode(inputs, **options)


class _Told:
    """A Sentence Transformer that has been told the languages of the texts that it is given next."""

    def __init__(self, model: SentenceTransformer, codes: Sequence[str]) -> None:
        self.model = model
        self.codes = known_languages(model, codes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def encode(self, texts: Sequence[str], **options: Any) -> Any:
        return encode(self.model, texts, self.codes, **options)

    def encode_query(self, texts: Sequence[str], **options: Any) -> Any:
        return encode(self.model, texts, self.codes, role="query", **options)

    def encode_document(self, texts: Sequence[str], **options: Any) -> Any:
        return encode(self.model, texts, self.codes, role="document", **options)
