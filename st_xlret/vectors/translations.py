"""Translations in a collection share their vectors, so that a query in any language finds all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.search import Matrix, neighbours_both_ways, top_k, unit_rows

_SAMPLE = 2_000  # rows of a language whose nearest neighbours within it are looked at
_COPY = 1 - 1e-5  # cosine of texts that are the same


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
    vectors: Matrix, languages: Sequence[str], *, chance: float = 0.5, show_progress_bar: bool = False
) -> Translations:
    """Find the texts of a collection that say the same in different languages, by their vectors alone.

    Candidates are rows of two languages each of which is the nearest row of its language to the other. How close such
    rows are by chance is seen within the languages, where they are no translations: decoys, as in [Elias and Gygi
    (2007)](https://doi.org/10.1038/nmeth1019). The closest candidates are taken, as many as there are while the number
    expected by chance is at most `chance` of them. In a collection without translations, few or none are. Calibrate the
    vectors first: the preference for a language hides translations.

    The search is exact: the time grows with the square of the rows.

    Args:
        vectors: Vectors (n, d) of any length, NumPy or torch, of documents.
        languages: Their languages.
        chance: See above. Decoys are closer than chance is, because texts of a language share subjects and words: on
            TICO-19 and XQuAD-R, with the default, 99 % of the pairs are translations.
        show_progress_bar: Show a bar over the pairs of languages.

    Raises:
        ValueError: If there are not as many languages as vectors, `chance` is negative, or a vector is not finite.

    Example:
        >>> vectors = np.array([[1.0, 0.1, 0.0], [0.0, 0.1, 1.0], [1.0, 0.0, 0.1], [0.1, -1.0, 0.0]])
        >>> found = find_translations(vectors, ["en", "en", "fr", "fr"])
        >>> found.first.tolist(), found.second.tolist()
        ([0], [2])
    """
    rows, codes = unit_rows(vectors, "vectors"), np.array(languages, dtype=object)
    if len(codes) != len(rows):
        raise ValueError(f"{len(rows)} vectors have {len(codes)} languages: each has one")
    if chance < 0:
        raise ValueError(f"chance must not be negative, got {chance}")
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
    taken = (_by_chance(rows, parts, cosines) <= chance * torch.arange(1, len(order) + 1)).nonzero()
    count = int(taken[-1]) + 1 if len(taken) else 0
    return Translations(first[:count], second[:count], cosines[:count])


@torch.no_grad()
def share_translations(
    vectors: Matrix, languages: Sequence[str], *, chance: float = 0.5, show_progress_bar: bool = False
) -> Tensor:
    """Move the vectors of texts that say the same in different languages towards each other.

    The new vector of a text is the mean of its own and of the mean of its translations
    ([`find_translations`][st_xlret.vectors.find_translations]), divided by its length. A query in one language that is
    near to one of them then finds them all. Texts without a translation stay where they are, and queries do. In image
    retrieval this is database-side feature augmentation ([Arandjelović and Zisserman, CVPR
    2012](https://doi.org/10.1109/CVPR.2012.6248018)).

    Args:
        vectors: Vectors (n, d) of documents, calibrated; of any length, NumPy or torch.
        languages: Their languages.
        chance: See `find_translations`.
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
    rows = unit_rows(vectors, "vectors")
    found = find_translations(rows, languages, chance=chance, show_progress_bar=show_progress_bar)
    return shared(rows, found)


def shared(rows: Tensor, found: Translations) -> Tensor:
    """Unit rows (n, d), each moved halfway to the mean of its translations."""
    of, other = torch.cat([found.first, found.second]), torch.cat([found.second, found.first])
    counts = torch.bincount(of, minlength=len(rows))
    means = torch.zeros_like(rows)
    for part in torch.arange(len(of)).split(65_536):
        means.index_add_(0, of[part], rows[other[part]])
    return unit_rows(rows + means / counts.clamp(min=1)[:, None])


def _by_chance(rows: Tensor, parts: list[Tensor], cosines: Tensor) -> Tensor:
    """How many pairs of languages' nearest rows are expected to be as close as each cosine (P,) without translations.

    Of two languages, that is the mean of the shares of their rows that have such a neighbour within their language,
    times the number of rows of the smaller one.
    """
    generator = torch.Generator().manual_seed(0)
    expected = torch.zeros(len(cosines))
    for part in parts:
        if len(part) < 2:
            continue
        drawn = torch.randperm(len(part), generator=generator)[:_SAMPLE]
        own = rows[part]
        found, near = _nearest_other(own, drawn)
        mutual = (_nearest_other(own, near)[1] == drawn) & (found < _COPY)
        decoys = found[mutual].sort().values
        closer = len(decoys) - torch.searchsorted(decoys, cosines)
        others = sum(min(len(part), len(other)) for other in parts if other is not part)
        expected += closer / len(drawn) * others / 2
    return expected


def _nearest_other(rows: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and number of the nearest other row of some rows, both (n,)."""
    scores, near = top_k(rows[asked], rows, 2)
    is_self = (near[:, 0] == asked).long()[:, None]  # a copy with a lower number comes before the row itself
    return scores.gather(1, is_self)[:, 0], near.gather(1, is_self)[:, 0]
