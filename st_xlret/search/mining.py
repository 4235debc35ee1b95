"""Mining of parallel sentences by margin (Artetxe and Schwenk, 2019)."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from st_xlret.search.blocks import Embeddings
from st_xlret.search.both_ways import NeighboursBothWays, neighbours_both_ways

Margin = Literal["ratio", "distance", "absolute", "csls"]
Pair = tuple[float, int, int]


def mine_bitext(
    source: Embeddings,
    target: Embeddings,
    *,
    k: int = 4,
    margin: Margin = "ratio",
    threshold: float | None = None,
    block_size: int | None = None,
    device: str | torch.device | None = None,
    show_progress_bar: bool = False,
) -> list[Pair]:
    """Find pairs of source and target rows that are likely translations, best first, each row in at most one pair.

    Margin-based mining as in [Artetxe and Schwenk (2019)](https://arxiv.org/abs/1811.01136), section 4.3,
    and LASER. With m(x, y) the mean of two averages, the cosines of x with its k nearest target rows and of y
    with its k nearest source rows, a pair scores

    - `"ratio"`: cos(x, y) / m(x, y), 0 where m is 0;
    - `"distance"`: cos(x, y) - m(x, y);
    - `"absolute"`: cos(x, y);
    - `"csls"`: 2 cos(x, y) - 2 m(x, y), which is CSLS ([Conneau et al., 2018](https://arxiv.org/abs/1710.04087))
      and orders pairs as `"distance"` does.

    Each source row and each target row proposes the best of its k neighbours by that score. The candidates are
    accepted greedily, best first, if neither of their rows is taken (LASER's `--retrieval max`). Of equal scores, the
    lower source row comes first, then the lower target row.

    Mine distinct texts, as LASER's `--unify` does, unless copies matter: each copy of a text counts as a neighbour,
    and copies crowd other rows out of the k neighbours.

    Args:
        source: (S, d), NumPy (memory maps too) or torch, not necessarily normalised.
        target: (T, d).
        k: Number of neighbours in the averages and among the candidates. A side with fewer rows gives all of them.
        margin: See above.
        threshold: Lowest score of a pair. Default: no threshold.
        block_size: See `neighbours_both_ways`.
        device: Where to compute. Default: that of the inputs.
        show_progress_bar: Whether to show a bar over the source rows.

    Returns:
        `(score, source row, target row)`, best first; an empty list if a side has no rows.

    Raises:
        ValueError: If the margin is unknown, or as `neighbours_both_ways`: NaN or infinite values, shapes, k.

    Example:
        >>> source = torch.tensor([[1.0, 0.1], [0.1, 1.0], [1.0, 1.0]])
        >>> target = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> [(round(score, 2), i, j) for score, i, j in mine_bitext(source, target, k=2)]
        [(1.42, 0, 1), (1.42, 1, 0)]
    """
    if margin not in get_args(Margin):
        raise ValueError(f"margin must be one of {list(get_args(Margin))}, got {margin!r}.")
    neighbours = neighbours_both_ways(
        source, target, k, block_size=block_size, device=device, show_progress_bar=show_progress_bar
    )
    if not len(source) or not len(target):
        return []
    return greedy_pairs(*margin_candidates(neighbours, margin), threshold=threshold)


def margin_candidates(neighbours: NeighboursBothWays, margin: Margin = "ratio") -> tuple[Tensor, Tensor, Tensor]:
    """The best candidate of every source row, followed by that of every target row.

    Returns:
        Margin scores, source rows and target rows, each (S + T,).
    """
    forward_mean = neighbours.forward_scores.mean(dim=1)
    backward_mean = neighbours.backward_scores.mean(dim=1)
    forward = _margin(neighbours.forward_scores, forward_mean[:, None], backward_mean[neighbours.forward], margin)
    backward = _margin(neighbours.backward_scores, backward_mean[:, None], forward_mean[neighbours.backward], margin)
    forward_best, forward_place = forward.max(dim=1)
    backward_best, backward_place = backward.max(dim=1)
    source_rows = torch.arange(len(forward), device=forward.device)
    target_rows = torch.arange(len(backward), device=backward.device)
    return (
        torch.cat([forward_best, backward_best]),
        torch.cat([source_rows, neighbours.backward.gather(1, backward_place[:, None])[:, 0]]),
        torch.cat([neighbours.forward.gather(1, forward_place[:, None])[:, 0], target_rows]),
    )


def greedy_pairs(scores: Tensor, source: Tensor, target: Tensor, *, threshold: float | None = None) -> list[Pair]:
    """Choose one-to-one pairs from candidates: best first, if neither of their rows is taken.

    Example:
        >>> greedy_pairs(torch.tensor([0.5, 1.0, 0.75]), torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]))
        [(1.0, 0, 1)]
    """
    if threshold is not None:
        kept = scores >= threshold
        scores, source, target = scores[kept], source[kept], target[kept]
    order = target.argsort(stable=True)
    order = order[source[order].argsort(stable=True)]
    order = order[scores[order].argsort(descending=True, stable=True)]
    taken_source: set[int] = set()
    taken_target: set[int] = set()
    pairs: list[Pair] = []
    for score, i, j in zip(scores[order].tolist(), source[order].tolist(), target[order].tolist(), strict=True):
        if i not in taken_source and j not in taken_target:
            taken_source.add(i)
            taken_target.add(j)
            pairs.append((score, i, j))
    return pairs


def _margin(cosines: Tensor, one_mean: Tensor, other_mean: Tensor, margin: Margin) -> Tensor:
    mean = (one_mean + other_mean) / 2
    if margin == "absolute":
        return cosines
    if margin == "distance":
        return cosines - mean
    if margin == "csls":
        return 2 * (cosines - mean)
    return torch.where(mean == 0, 0.0, cosines / mean)
