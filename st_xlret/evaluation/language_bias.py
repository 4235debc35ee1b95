"""How much the neighbours of a text share its language: a report on any encoder, without labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from st_xlret.data.batches.sampling import column_codes, rows_by_code
from st_xlret.search import top_k, unit_rows

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class LanguageBias:
    """The languages of the nearest neighbours in a pool with as many texts of each language.

    Attributes:
        languages: The languages, in the order of the rows and columns of `shares`.
        shares: Shape (L, L). Row i holds the languages of the neighbours of texts in language i; rows sum to 1.
        chance: The share of same-language neighbours for an encoder that does not see languages. It is lower where a
            few long documents make up the sample, because their own sentences are left out.
        distances: Shape (L, L). Cosine distances between the means of the languages.
        texts: Texts of each language.
        neighbours: Neighbours of each text.
    """

    languages: list[str]
    shares: np.ndarray
    chance: float
    distances: np.ndarray
    texts: int
    neighbours: int

    @property
    def same_language_share(self) -> float:
        """Mean over languages of the share of neighbours in the text's own language."""
        return float(np.diag(self.shares).mean())

    @property
    def imbalance(self) -> float:
        """Mean distance (total variation) of the neighbours' languages from an even mixture: 0 is even, 1 is one."""
        return float(np.abs(self.shares - 1 / len(self.languages)).sum(axis=1).mean() / 2)

    def own_shares(self) -> dict[str, float]:
        """Language to the share of neighbours in the text's own language."""
        return dict(zip(self.languages, np.diag(self.shares).tolist(), strict=True))

    def as_json(self) -> dict[str, object]:
        """What `st-xlret report` writes."""
        return {
            "languages": {
                code: {
                    "same_language_share": float(self.shares[i, i]),
                    "chance": self.chance,
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
        documents: Language to (n,) document ids, row-aligned with `embeddings`. Neighbours from the text's own
            document are left out, since its topic keeps them near.
        queries: Language to (m, d), if texts as queries have embeddings of their own, row-aligned with `embeddings`.
        neighbours: How many neighbours to look at.

    Returns:
        The shares of languages among the neighbours.

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
    pool = torch.cat([embeddings[code][:size] for code in languages]).float()
    asked = pool if queries is None else torch.cat([queries[code][:size] for code in languages]).float()
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
    pool, asked = unit_rows(pool), unit_rows(asked)
    _, found = top_k(asked, pool, min(len(pool), neighbours + largest))
    rows = found.cpu().numpy()
    others = document_of_row[rows] != document_of_row[:, None]
    kept = others & (others.cumsum(axis=1) <= neighbours)
    shares = np.zeros((len(languages), len(languages)))
    np.add.at(shares, (np.broadcast_to(code_of_row[:, None], rows.shape)[kept], code_of_row[rows][kept]), 1.0)
    means = unit_rows(torch.stack([pool[code_of_row == i].mean(dim=0) for i in range(len(languages))]))
    return LanguageBias(
        languages,
        shares / shares.sum(axis=1, keepdims=True),
        float(((size - own) / (len(pool) - own).clip(min=1)).mean()),
        (1 - means @ means.T).clamp(min=0).cpu().numpy(),
        size,
        neighbours,
    )


def neighbours_kept(before: Mapping[str, Tensor], after: Mapping[str, Tensor], *, neighbours: int = 10) -> float:
    """How many of each text's nearest neighbours in its own language a calibration keeps.

    Args:
        before: Language to (n, d).
        after: Language to (n, d), row-aligned.
        neighbours: How many neighbours to look at.

    Returns:
        The share that stays, a mean over texts and languages.

    Example:
        >>> rows = {"en": torch.randn(30, 8)}
        >>> neighbours_kept(rows, {"en": 2 * rows["en"]})
        1.0
    """
    shares = []
    for code, rows in before.items():
        k = min(neighbours, len(rows) - 1)
        sides = []
        for side in (rows, after[code]):
            scores = unit_rows(side.float()) @ unit_rows(side.float()).T
            sides.append(scores.fill_diagonal_(-torch.inf).topk(k).indices)
        shares.append((sides[0][:, :, None] == sides[1][:, None, :]).any(dim=2).float().mean())
    return float(torch.stack(shares).mean())


@dataclass(frozen=True)
class Sample:
    """Embeddings of a sample of each language's sentences.

    Attributes:
        documents: Language to (n, d), the sentences as documents.
        queries: Language to (n, d), the same sentences as queries; None where the model has no prompt of its own for
            them, since the embeddings are the same then.
        ids: Language to (n,), the documents that the sentences are from.
    """

    documents: dict[str, Tensor]
    queries: dict[str, Tensor] | None
    ids: dict[str, Tensor]


def embed_sample(
    model: SentenceTransformer,
    documents: Dataset,
    *,
    texts_per_language: int = 300,
    batch_size: int = 64,
    seed: int = 0,
    show_progress: bool = False,
) -> Sample:
    """Embed as many sentences of each language, spread over its documents.

    Args:
        model: The encoder. Its `encode_document` and `encode_query` are used, with their prompts.
        documents: Sentences as [`load_documents`][st_xlret.load_documents] gives them.
        texts_per_language: How many, at most.
        batch_size: Texts in a forward pass.
        seed: Seed of the choice.
        show_progress: Show a progress bar over all texts.

    Returns:
        The embeddings.
    """
    code, names = column_codes(documents, ["language"])
    generator = np.random.default_rng([seed, 23])
    rows: dict[str, np.ndarray] = {}
    for (language,), group in zip(names, rows_by_code(code, len(names)), strict=True):
        rows[language] = np.sort(generator.permutation(group)[:texts_per_language])
    chosen = documents.select(np.concatenate(list(rows.values())))
    sentences, ids = list(chosen["sentence"]), np.asarray(chosen["document"])
    how: dict[str, Any] = {"batch_size": batch_size, "convert_to_tensor": True, "show_progress_bar": show_progress}
    as_documents = model.encode_document(sentences, **how).float().cpu()
    as_queries = None
    if model.prompts.get("query") != model.prompts.get("document"):
        as_queries = model.encode_query(sentences, **how).float().cpu()
    bounds = np.cumsum([0, *map(len, rows.values())])
    parts = {name: slice(first, last) for name, first, last in zip(rows, bounds, bounds[1:], strict=False)}
    return Sample(
        {name: as_documents[part] for name, part in parts.items()},
        None if as_queries is None else {name: as_queries[part] for name, part in parts.items()},
        {name: torch.from_numpy(ids[part]) for name, part in parts.items()},
    )
