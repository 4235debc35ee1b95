"""Translations in a collection share their vectors, so that a query in any language finds all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.search import Matrix, neighbours_both_ways, unit_rows

_CHANCE = 0.5  # of the pairs; decoys are closer than chance is, because texts of a language share subjects and words
_SAMPLE = 2_000  # rows of a language whose nearest neighbours within it are looked at
_SCORES = 2**24  # of them at a time
_LARGEST = 0.1  # share of a language's rows that a document may have for the others to be enough decoys
_COPY = 1 - 1e-5  # cosine of texts that are the same
_ROUNDING = 1e-6  # of the cosine of equal vectors


class Translations(NamedTuple):
    """Pairs of rows that are translations of each other, the closest first.

    Attributes:
        first: Rows (P,), int64.
        second: Their translations, in other languages, (P,).
        cosines: Their cosines (P,), float32.
    """

    first: Tensor
    second: Tensor
    cosines: Tensor


@torch.no_grad()
def find_translations(
    vectors: Matrix,
    languages: Sequence[str],
    documents: Sequence[str | None] | None = None,
    *,
    show_progress_bar: bool = False,
) -> Translations:
    """Find the texts of a collection that say the same in different languages, by their vectors alone.

    Candidates are rows of two languages each of which is the nearest row of its language to the other. How close such
    rows are by chance is seen within the languages, where they are no translations: decoys, as in [Elias and Gygi
    (2007)](https://doi.org/10.1038/nmeth1019). The closest candidates are taken, as many as there are while the number
    expected by chance is at most half of them. In a collection without translations, few or none are. Of copies
    within a language, one has the translations. Calibrate the vectors first: the preference for a language hides
    translations.

    The search is exact: the time grows with the square of the rows.

    Args:
        vectors: Vectors (n, d) of any length, NumPy or torch, of documents.
        languages: Their languages.
        documents: Names of the documents that they are from, None for one of its own. Chunks of one document that
            share words, as overlapping ones do, are then no decoys of each other, which would hide translations. A
            language with fewer than ten documents says nothing of what is close by chance, and hides its translations.
        show_progress_bar: Show a bar over the pairs of languages.

    Raises:
        ValueError: If there are not as many languages or documents as vectors, or a vector is not finite.

    Example:
        >>> vectors = np.array([[1.0, 0.1, 0.0], [0.0, 0.1, 1.0], [1.0, 0.0, 0.1], [0.1, -1.0, 0.0]])
        >>> found = find_translations(vectors, ["en", "en", "fr", "fr"])
        >>> found.first.tolist(), found.second.tolist()
        ([0], [2])
    """
    rows, codes = unit_rows(vectors, "vectors", device=torch.device("cpu")), np.array(languages, dtype=object)
    if len(codes) != len(rows):
        raise ValueError(f"{len(rows)} vectors have {len(codes)} languages: each has one")
    if documents is not None and len(documents) != len(rows):
        raise ValueError(f"{len(rows)} vectors have {len(documents)} documents: each has one")
    groups = torch.arange(len(rows))
    if documents is not None:
        number_of: dict[object, int] = {}
        names = (object() if name is None else name for name in documents)
        groups = torch.tensor([number_of.setdefault(name, len(number_of)) for name in names])
    parts = [torch.from_numpy(np.flatnonzero(codes == code)) for code in sorted(set(languages))]
    found = [(torch.empty(2, 0, dtype=torch.int64), torch.empty(0))]
    pairs = list(combinations(parts, 2))
    for a, b in tqdm(pairs, desc="Translations", unit=" pairs of languages", disable=not show_progress_bar):
        cosines, there, _, back = neighbours_both_ways(rows[a], rows[b], 1)
        best = there[:, 0]
        mutual = back[best, 0] == torch.arange(len(a))
        found.append((torch.stack([a[mutual], b[best[mutual]]]), cosines[mutual, 0]))
    cosines, order = torch.cat([each for _, each in found]).sort(descending=True, stable=True)
    first, second = torch.cat([each for each, _ in found], dim=1)[:, order]
    taken = (_by_chance(rows, parts, groups, cosines) <= _CHANCE * torch.arange(1, len(order) + 1)).nonzero()
    count = int(taken[-1]) + 1 if len(taken) else 0
    return Translations(first[:count], second[:count], cosines[:count])


@torch.no_grad()
def share_translations(
    vectors: Matrix,
    languages: Sequence[str],
    documents: Sequence[str | None] | None = None,
    *,
    show_progress_bar: bool = False,
) -> Tensor:
    """Move the vectors of texts that say the same in different languages towards each other.

    The new vector of a text is the mean of its own and of the mean of its translations
    ([`find_translations`][st_xlret.find_translations]), divided by its length. A query in one language that is
    near to one of them then finds them all. Texts without a translation stay where they are, and queries do. In image
    retrieval this is database-side feature augmentation ([Arandjelović and Zisserman, CVPR
    2012](https://doi.org/10.1109/CVPR.2012.6248018)).

    Args:
        vectors: Vectors (n, d) of documents, calibrated; of any length, NumPy or torch.
        languages: Their languages.
        documents: See `find_translations`.
        show_progress_bar: Show a bar over the pairs of languages.

    Returns:
        Unit vectors (n, d), float32.

    Raises:
        ValueError: As `find_translations`.

    Example:
        >>> vectors = np.array([[1.0, 0.1, 0.0], [0.0, 0.1, 1.0], [1.0, 0.0, 0.1], [0.1, -1.0, 0.0]])
        >>> shared = share_translations(vectors, ["en", "en", "fr", "fr"])
        >>> [round(float(shared[i] @ shared[j]), 2) for i, j in [(0, 2), (1, 3)]]   # 0.99 and -0.1 before
        [1.0, -0.1]
    """
    rows = unit_rows(vectors, "vectors", device=torch.device("cpu"))
    found = find_translations(rows, languages, documents, show_progress_bar=show_progress_bar)
    return shared(rows, found)


def shared(rows: Tensor, found: Translations) -> Tensor:
    """Unit rows (n, d), each moved halfway to the mean of its translations."""
    of, other = torch.cat([found.first, found.second]), torch.cat([found.second, found.first])
    counts = torch.bincount(of, minlength=len(rows))
    moved = torch.zeros_like(rows)
    for part in torch.arange(len(of)).split(65_536):
        moved.index_add_(0, of[part], rows[other[part]])
    moved.div_(counts.clamp(min=1)[:, None]).add_(rows)
    return unit_rows(moved)


def _by_chance(rows: Tensor, parts: list[Tensor], groups: Tensor, cosines: Tensor) -> Tensor:
    """How many pairs of languages' nearest rows are expected to be as close as each cosine (P,) without translations.

    Of two languages, that is the number of rows of the smaller one, times the share of the rows of both that have such
    a neighbour within their language. Of n rows, beside a language of m < n, these are those whose neighbour would be
    nearest to them, too, if it chose among m of the rows: it has `closer` ones, none of which is among the m with the
    probability `(1 - m / n) ** closer`.
    """
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([len(part) for part in parts])
    found, counts = [torch.empty(0)], [torch.empty(0)]
    for number, part in enumerate(parts):
        drawn = torch.randperm(len(part), generator=generator)[:_SAMPLE]
        others = sizes[torch.arange(len(sizes)) != number]
        smaller = others.clamp(max=len(part))
        times = smaller * len(part) / (others + len(part)) / len(drawn)
        own = rows[part]
        for few in drawn.split(max(1, _SCORES // len(part))):
            close, closer = _nearest_others(own, groups[part], few)
            found.append(close)
            counts.append((times * (1 - smaller / len(part)) ** closer[:, None]).sum(dim=1))
    decoys, order = torch.cat(found).sort(descending=True)
    expected = torch.cat(counts)[order].double().cumsum(dim=0)
    return F.pad(expected, (1, 0))[torch.searchsorted(-decoys, -cosines, right=True)]


def _nearest_others(rows: Tensor, groups: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
    """The cosine of some rows (n,) and the nearest other text, and how many texts are closer to that one.

    Copies and texts of the same document are no other texts. A row that they leave without other texts, or with few of
    them, has the cosine 1: by chance, it could be near to everything.
    """

    def others(of: Tensor) -> Tensor:
        scores = rows[of] @ rows.T
        return scores.masked_fill_((scores >= _COPY) | (groups[of, None] == groups), -torch.inf)

    close, near = others(asked).max(dim=1)
    closer = (others(near) > close[:, None] + _ROUNDING).sum(dim=1)
    of_document = (groups[asked, None] == groups).sum(dim=1)
    few = close.isinf() | ((of_document > 1) & (of_document > _LARGEST * len(rows)))
    return close.masked_fill(few, 1.0), closer.masked_fill(few, 0)
