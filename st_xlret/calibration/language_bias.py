"""How much the neighbours of a text share its language: the figures, and the score by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TEXTS = 300
"""Texts of each language that are looked at, by default."""

NEIGHBOURS = 20
"""Nearest neighbours of a text that are looked at, by default."""

PRICE = 10
"""Of the square of the share of neighbours that are lost, in the score."""

MOST_REMOVED = 0.9
"""Of what can be removed: what goes beyond it gains next to nothing."""

WITHIN = 10
"""Neighbours within a language of which the share that stays is measured: "the nearest ten"."""


@dataclass(frozen=True)
class LanguageBias:
    """The languages of the nearest neighbours in a pool with as many texts of each language.

    Attributes:
        languages: The languages, in the order of the rows and columns of `shares`.
        shares: Shape (L, L). Row i holds the languages of the neighbours of texts in language i;
            rows sum to 1.
        expected: The same for an encoder that does not see languages; not quite even, because
            texts from the same document are no neighbours.
        texts: Texts of each language.
        neighbours: Neighbours of each text.
    """

    languages: list[str]
    shares: NDArray[np.float64]
    expected: NDArray[np.float64]
    texts: int
    neighbours: int

    @property
    def same_language_share(self) -> float:
        """Mean over languages of the share of neighbours in the text's own language."""
        return float(np.diag(self.shares).mean())

    @property
    def chance(self) -> float:
        """The share of same-language neighbours for an encoder that does not see languages."""
        return float(np.diag(self.expected).mean())

    @property
    def preference(self) -> float:
        """How far the share is from chance (0) to results in the text's own language alone (1)."""
        return (self.same_language_share - self.chance) / (1 - self.chance)

    def as_json(self) -> dict[str, Any]:
        """Everything in JSON's types, as files of reports and of calibrations have it."""
        languages = {}
        for number, code in enumerate(self.languages):
            shares = self.shares[number].tolist()
            languages[code] = {
                "same_language_share": shares[number],
                "chance": float(self.expected[number, number]),
                "neighbours": dict(zip(self.languages, shares, strict=True)),
            }
        return {
            "languages": languages,
            "same_language_share": self.same_language_share,
            "chance": self.chance,
            "texts_per_language": self.texts,
            "neighbours": self.neighbours,
        }


@dataclass(frozen=True)
class BiasFigures:
    """What a calibration does to a search over all languages, and to one within a language.

    Attributes:
        search: The languages that a text finds as a query.
        documents: The same between documents, as in mining.
        neighbours_kept: Share of the ten nearest neighbours within a language that stay.
        removed: How much fewer results are in the query's language, as a share of what the
            strongest of the calibrations that are compared takes away; 0.9 at most.
    """

    search: LanguageBias
    documents: LanguageBias
    neighbours_kept: float = 1.0
    removed: float = 0.0

    def score(self) -> float:
        """The criterion without labels, 0 as it is.

        It is `removed`, minus `PRICE` times the square of the share of neighbours that are lost:
        the first to go are hardly missed.
        """
        lost = 1 - self.neighbours_kept
        return self.removed - PRICE * lost**2

    def as_json(self) -> dict[str, Any]:
        """What `st-xlret report` writes.

        It is the bias of the search, and under `"documents"` that between documents.
        """
        return {**self.search.as_json(), "documents": self.documents.as_json()}
