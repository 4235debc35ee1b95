"""How much the neighbours of a text share its language: a report on any encoder, without labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from st_xlret.search import top_k, unit_rows


@dataclass(frozen=True)
class LanguageBias:
    """The languages of the nearest neighbours in a pool with as many texts of each language.

    Attributes:
        languages: The languages, in the order of the rows and columns of `shares`.
        shares: Shape (L, L). Row i holds the languages of the neighbours of texts in language i; rows sum to 1.
        expected: Shape (L, L). The same for an encoder that does not see languages; not quite even, because texts from
            the same document are no neighbours.
        distances: Shape (L, L). Cosine distances between the means of the languages.
        texts: Texts of each language.
        neighbours: Neighbours of each text.
    """

    languages: list[str]
    shares: np.ndarray
    expected: np.ndarray
    distances: np.ndarray
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
    def imbalance(self) -> float:
        """Mean distance (total variation) of the neighbours' languages from the expected mixture, from 0 to 1."""
        return float(np.abs(self.shares - self.expected).sum(axis=1).mean() / 2)

    def own_shares(self) -> dict[str, float]:
        """Language to the share of neighbours in the text's own language."""
        return dict(zip(self.languages, np.diag(self.shares).tolist(), strict=True))

    def as_json(self) -> dict[str, object]:
        """Everything but the matrices, in JSON's types."""
        return {
            "languages": {
                code: {
                    "same_language_share": float(self.shares[i, i]),
                    "chance": float(self.expected[i, i]),
                    "neighbours": {other: float(self.shares[i, j]) for j, other in enumerate(self.languages)},
                    "mean_distance_to_others": float(self.distances[i].sum() / max(1, len(self.languages) - 1)),
                }
                for i, code in enumerate(self.languages)
            },
            "same_language_share": self.same_language_share,
            "chance": self.chance,
            "texts_per_language": self.texts,
            "neighbours": self.neighbours,
        }


def measure_language_bias(
    embeddings: Mapping[str, Tensor],
    documents: Mapping[str, Tensor] | None = None,
    *,
    queries: Mapping[str, Tensor] | None = None,
    neighbours: int = 20,
) -> LanguageBias:
    """Search each text's nearest neighbours among equally many texts of every language.

    Args:
        embeddings: Language to (n, d). Languages with more texts than the smallest one give only their first ones.
        documents: Language to (n,) document ids, row-aligned. Neighbours from the text's own document are left out.
        queries: Language to (m, d), if texts as queries have embeddings of their own: of the first m texts.
        neighbours: How many neighbours to look at.

    Raises:
        ValueError: If there are fewer than two languages, or fewer texts than neighbours.

    Example:
        >>> apart = {"en": torch.eye(4)[:2].repeat(9, 1), "fr": torch.eye(4)[2:].repeat(9, 1)}
        >>> round(measure_language_bias(apart, neighbours=5).same_language_share, 2)
        1.0
    """
    languages = sorted(embeddings)
    if len(languages) < 2:
        raise ValueError(f"a language bias needs texts in two languages at least, got {', '.join(languages) or 'none'}")
    size = min(len(rows) for rows in embeddings.values())
    if size * len(languages) <= neighbours + 1:
        raise ValueError(f"{size} texts a language are too few for {neighbours} neighbours: give more texts")
    pool = unit_rows(torch.cat([embeddings[code][:size] for code in languages]))
    code_of_row = np.repeat(np.arange(len(languages)), size)
    document_of_row = np.arange(len(pool))
    if documents is not None:
        _, document_of_row = np.unique(
            np.concatenate([[f"{code} {name}" for name in documents[code][:size].tolist()] for code in languages]),
            return_inverse=True,
        )
    # Of each text's document, which has no neighbours of the text; the text itself is none either.
    own = np.bincount(document_of_row)[document_of_row]
    largest = int(own.max())
    left = len(pool) - own
    expected, shares = np.empty((2, len(languages), len(languages)))
    for i, code in enumerate(languages):
        asked = pool[i * size : (i + 1) * size] if queries is None else unit_rows(queries[code][:size])
        texts = slice(i * size, i * size + len(asked))
        expected[i] = (size / left[texts]).mean()
        expected[i, i] = ((size - own[texts]) / left[texts]).mean()
        _, found = top_k(asked, pool, min(len(pool), neighbours + largest))
        rows = found.cpu().numpy()
        others = document_of_row[rows] != document_of_row[texts, None]
        kept = others & (others.cumsum(axis=1) <= neighbours)
        shares[i] = np.bincount(code_of_row[rows][kept], minlength=len(languages)) / kept.sum()
    means = unit_rows(torch.stack([part.mean(dim=0) for part in pool.split(size)]))
    distances = (1 - means @ means.T).clamp(min=0).cpu().numpy()
    return LanguageBias(languages, shares, expected, distances, size, neighbours)


def measure_both(
    documents: Mapping[str, Tensor],
    queries: Mapping[str, Tensor] | None = None,
    ids: Mapping[str, Tensor] | None = None,
    *,
    neighbours: int = 20,
) -> dict[str, LanguageBias]:
    """The language bias of a search (`"search"`), and that between documents, as in mining (`"documents"`).

    The embeddings are by language, (n, d), those of `queries` of the first of these texts as queries, if the model
    embeds them differently; `ids` and the other arguments are `documents` and so on of `measure_language_bias`.
    """
    between = measure_language_bias(documents, ids, neighbours=neighbours)
    if queries is None:
        return {"search": between, "documents": between}
    search = measure_language_bias(documents, ids, queries=queries, neighbours=neighbours)
    return {"search": search, "documents": between}


def bias_as_json(biases: Mapping[str, LanguageBias]) -> dict[str, object]:
    """What `st-xlret report` writes: the bias of the search, and under `"documents"` that between documents."""
    return {**biases["search"].as_json(), "documents": biases["documents"].as_json()}
