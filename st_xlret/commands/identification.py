"""The language of texts that name none, for models that have to be told it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from st_xlret.calibration.encoding import language_routes
from st_xlret.data.language_identification import LanguageIdentifier


def identifier_for(model: Any) -> Callable[[str], str] | None:
    """A function from a text to its language, among those that a model has maps of its own for.

    Args:
        model: Any Sentence Transformer.

    Returns:
        The function. None if the model needs no language, has one that the identifier does not know, or the extra
        `langid` is not installed: texts are then taken to be in the default language of the model, with a warning.
    """
    languages = language_routes(model)
    if not languages:
        return None
    try:
        identifier = LanguageIdentifier(languages)
    except (ImportError, ValueError):
        return None
    return None if identifier.unknown else identifier.identify
