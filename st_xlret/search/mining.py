"""Mining of parallel sentences by margin (Artetxe and Schwenk, 2019)."""

from __future__ import annotations

from array import array
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from st_xlret.search.approximate import approximate_neighbours_both_ways
from st_xlret.search.blocks import Rows
from st_xlret.search.both_ways import NeighboursBothWays, neighbours_both_ways

Margin = Literal["ratio", "distance", "absolute", "csls"]
Pair = tuple[float, int, int]

_BLOCK = 65_536


class MinedPairs(NamedTuple):
    """Pairs of rows that are likely translations, best first, each row in at most one pair.

    Attributes:
        scores: Margin scores, (P,) float32 on the CPU.
        source: Rows of the source, (P,) int64.
        target: Rows of the target, (P,) int64.
    """

    scores: Tensor
    source: Tensor
    target: Tensor


def mine_bitext(
    source: Rows,
    target: Rows,
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
    found = mine_pairs(
        source,
        target,
        k=k,
        margin=margin,
        threshold=threshold,
        block_size=block_size,
        device=device,
        show_progress_bar=show_progress_bar,
    )
    return list(zip(found.scores.tolist(), found.source.tolist(), found.target.tolist(), strict=True))


def mine_pairs(
    source: Rows,
    target: Rows,
    *,
    k: int = 4,
    margin: Margin = "ratio",
    threshold: float | None = None,
    approximate: bool = False,
    block_size: int | None = None,
    device: str | torch.device | None = None,
    show_progress_bar: bool = False,
) -> MinedPairs:
    """The same as [`mine_bitext`][st_xlret.search.mine_bitext] for millions of rows: the result is three tensors.

    Embeddings may be read from the disk by slices (`CachedEmbeddings`). Beside them, about 120 bytes for each row of
    either side are in memory with k = 4, and blocks of scores.

    Args:
        source: (S, d), NumPy, torch, or read by slices.
        target: (T, d).
        k: See `mine_bitext`.
        margin: See `mine_bitext`.
        threshold: See `mine_bitext`.
        approximate: Search most of the neighbours by a faiss index on the CPU instead of all of them: the time grows
            with the rows to the power of 1.5 instead of 2, and a byte for each dimension of each row of one side is in
            memory. See `approximate_top_k`.
        block_size: See `neighbours_both_ways`.
        device: See `mine_bitext`.
        show_progress_bar: Whether to show bars over the rows.

    Returns:
        The pairs.

    Raises:
        ValueError: As `mine_bitext`.

    Example:
        >>> mine_pairs(torch.eye(3), torch.eye(3)[:2], k=2).source.tolist()
        [0, 1]
    """
    if margin not in get_args(Margin):
        raise ValueError(f"margin must be one of {list(get_args(Margin))}, got {margin!r}.")
    if approximate and len(source) and len(target):
        neighbours = approximate_neighbours_both_ways(source, target, k, show_progress_bar=show_progress_bar)
    else:
        neighbours = neighbours_both_ways(
            source, target, k, block_size=block_size, device=device, show_progress_bar=show_progress_bar
        )
    if not len(source) or not len(target):
        return MinedPairs(torch.empty(0), *torch.empty(2, 0, dtype=torch.int64))
    return greedy_pairs(*margin_candidates(neighbours, margin), threshold=threshold)


def margin_candidates(neighbours: NeighboursBothWays, margin: Margin = "ratio") -> tuple[Tensor, Tensor, Tensor]:
    """The best candidate of every source row, followed by that of every target row.

    Returns:
        Margin scores, source rows and target rows, each (S + T,).
    """
    forward_mean = neighbours.forward_scores.mean(dim=1)
    backward_mean = neighbours.backward_scores.mean(dim=1)
    forward = _best(neighbours.forward_scores, neighbours.forward, forward_mean, backward_mean, margin)
    backward = _best(neighbours.backward_scores, neighbours.backward, backward_mean, forward_mean, margin)
    rows = [torch.arange(len(best), device=best.device) for best, _ in (forward, backward)]
    return (
        torch.cat([forward[0], backward[0]]),
        torch.cat([rows[0], backward[1]]),
        torch.cat([forward[1], rows[1]]),
    )


def greedy_pairs(scores: Tensor, source: Tensor, target: Tensor, *, threshold: float | None = None) -> MinedPairs:
    """Choose one-to-one pairs from candidates: best first, if neither of their rows is taken.

    Example:
        >>> greedy_pairs(torch.tensor([0.5, 1.0, 0.75]), torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]))
        MinedPairs(scores=tensor([1.]), source=tensor([0]), target=tensor([1]))
    """
    scores, source, target = scores.cpu(), source.cpu(), target.cpu()
    if threshold is not None:
        kept = scores >= threshold
        scores, source, target = scores[kept], source[kept], target[kept]
    order = target.argsort(stable=True)
    order = order[source[order].argsort(stable=True)]
    order = order[scores[order].argsort(descending=True, stable=True)]
    taken_source = bytearray(int(source.max()) + 1 if len(source) else 0)
    taken_target = bytearray(int(target.max()) + 1 if len(target) else 0)
    chosen = array("q")
    for part in order.split(_BLOCK):
        for place, i, j in zip(part.tolist(), source[part].tolist(), target[part].tolist(), strict=True):
            if not taken_source[i] and not taken_target[j]:
                taken_source[i] = taken_target[j] = 1
                chosen.append(place)
    best = torch.tensor(chosen, dtype=torch.int64)
    return MinedPairs(scores[best], source[best], target[best])


def _best(cosines: Tensor, rows: Tensor, own_mean: Tensor, other_mean: Tensor, margin: Margin) -> tuple[Tensor, Tensor]:
    """Margin score and row of the best neighbour of each row, (n,); computed block by block."""
    best, chosen = torch.empty_like(own_mean), torch.empty_like(rows[:, 0])
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        scores = _margin(cosines[part], own_mean[part, None], other_mean[rows[part]], margin)
        best[part], place = scores.max(dim=1)
        chosen[part] = rows[part].gather(1, place[:, None])[:, 0]
    return best, chosen


def _margin(cosines: Tensor, one_mean: Tensor, other_mean: Tensor, margin: Margin) -> Tensor:
    mean = (one_mean + other_mean) / 2
    if margin == "absolute":
        return cosines
    if margin == "distance":
        return cosines - mean
    if margin == "csls":
        return 2 * (cosines - mean)
    return torch.where(mean == 0, 0.0, cosines / mean)
