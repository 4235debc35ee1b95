"""Likely translations between two sets of embeddings, by the margin over their neighbours."""

from __future__ import annotations

from array import array
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from st_xlret.search.exact import SlicedEmbeddings, neighbours_both_ways
from st_xlret.search.inputs import Device, check_k

Margin = Literal["ratio", "distance", "absolute", "csls"]

_PAIRS_AT_ONCE = 65_536  # of which Python objects are made


class MinedPairs(NamedTuple):
    """Likely translations, best first, each row in one pair at most, on the CPU.

    Attributes:
        scores: (P,).
        source: Rows of the source (P,), int64.
        target: Rows of the target (P,), int64.
    """

    scores: Tensor
    source: Tensor
    target: Tensor


class _Candidates(NamedTuple):
    """Pairs that may be accepted, in any order, on any device; a row may be in several.

    Attributes:
        scores: (C,).
        source: Rows of the source (C,), int64.
        target: Rows of the target (C,), int64.
    """

    scores: Tensor
    source: Tensor
    target: Tensor


def mine_bitext(
    source: SlicedEmbeddings,
    target: SlicedEmbeddings,
    *,
    k: int = 4,
    margin: Margin = "ratio",
    threshold: float | None = None,
    device: Device = None,
    show_progress_bar: bool = False,
) -> list[tuple[float, int, int]]:
    """Find pairs (score, source row, target row) that are likely translations, best first.

    Each row is in one pair at most. Margin-based mining as in
    [Artetxe and Schwenk (2019)](https://arxiv.org/abs/1811.01136), section 4.3, and LASER. With
    m(x, y) the mean of two averages, the cosines of x with its k nearest target rows and of y with
    its k nearest source rows, a pair scores

    - `"ratio"`: cos(x, y) / m(x, y), where negative cosines count as 0 in m: a score is 2k at most;
      0 where m is 0;
    - `"distance"`: cos(x, y) - m(x, y);
    - `"absolute"`: cos(x, y);
    - `"csls"`: 2 cos(x, y) - 2 m(x, y).

    Each row proposes the best of its k neighbours. The candidates are accepted greedily, best
    first, if neither of their rows is taken (LASER's `--retrieval max`). Mine distinct texts:
    copies crowd other rows out.

    The sides have the shapes (S, d) and (T, d), and need not be normalised. `threshold` is the
    lowest score of a pair.

    Example:
        >>> source = torch.tensor([[1.0, 0.1], [0.1, 1.0], [1.0, 1.0]])
        >>> pairs = mine_bitext(source, torch.eye(2), k=2)
        >>> [(round(score, 2), i, j) for score, i, j in pairs]
        [(1.42, 0, 0), (1.42, 1, 1)]
    """
    pairs = mine_pairs(
        source,
        target,
        k=k,
        margin=margin,
        threshold=threshold,
        device=device,
        show_progress_bar=show_progress_bar,
    )
    columns = [column.tolist() for column in pairs]
    return list(zip(*columns, strict=True))


def mine_pairs(
    source: SlicedEmbeddings,
    target: SlicedEmbeddings,
    *,
    k: int = 4,
    margin: Margin = "ratio",
    threshold: float | None = None,
    device: Device = None,
    show_progress_bar: bool = False,
) -> MinedPairs:
    """The same as [`mine_bitext`][st_xlret.search.mine_bitext] for millions of rows.

    Three tensors are the result. An unknown margin, or a threshold that is no number, is a
    `ValueError`.
    """
    check_k(k)
    if margin not in get_args(Margin):
        raise ValueError(f"margin={margin!r} is none of {', '.join(get_args(Margin))}")
    if threshold is not None and threshold != threshold:
        raise ValueError(f"threshold={threshold} is no number")
    if not len(source) or not len(target):
        nothing = torch.empty(0, dtype=torch.int64)
        return MinedPairs(torch.empty(0), nothing, nothing)
    near = neighbours_both_ways(
        source, target, k, device=device, show_progress_bar=show_progress_bar
    )
    lowest = 0.0 if margin == "ratio" else -1.0
    mean = near.scores.clamp(min=lowest).mean(dim=1)
    mean_back = near.scores_back.clamp(min=lowest).mean(dim=1)
    means = (mean[:, None] + mean_back[near.target_rows]) / 2
    means_back = (mean_back[:, None] + mean[near.source_rows]) / 2
    scores, targets = _best_neighbours(_margins(near.scores, means, margin), near.target_rows)
    back = _margins(near.scores_back, means_back, margin)
    scores_back, sources = _best_neighbours(back, near.source_rows)
    every_source = torch.arange(len(scores), device=scores.device)
    every_target = torch.arange(len(scores_back), device=scores.device)
    candidates = _Candidates(
        scores=torch.cat([scores, scores_back]),
        source=torch.cat([every_source, sources]),
        target=torch.cat([targets, every_target]),
    )
    return _accept_best(candidates, threshold)


def _margins(cosines: Tensor, means: Tensor, margin: Margin) -> Tensor:
    """The scores of pairs (n, k) by their cosines and the means of their neighbours' cosines."""
    if margin == "absolute":
        return cosines
    if margin == "ratio":
        return torch.where(means > 0, cosines / means, 0.0)
    factor = {"distance": 1, "csls": 2}[margin]
    return (cosines - means) * factor


def _best_neighbours(scores: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
    """The best score of each row (n,), and that one of its neighbours (n, k) which has it."""
    best, place = scores.max(dim=1)
    return best, near.gather(1, place[:, None])[:, 0]


def _accept_best(candidates: _Candidates, threshold: float | None) -> MinedPairs:
    """Accept candidates best first, where neither of their rows is taken; the order is kept."""
    scores, source, target = (column.cpu() for column in candidates)
    if threshold is not None:
        above = scores >= threshold
        scores = scores[above]
        source = source[above]
        target = target[above]
    # By score, then by source row, then by target row.
    order = torch.from_numpy(np.lexsort((target, source, -scores)))
    is_source_taken = bytearray(_row_count(source))
    is_target_taken = bytearray(_row_count(target))
    accepted = array("q")
    for part in order.split(_PAIRS_AT_ONCE):
        rows = zip(part.tolist(), source[part].tolist(), target[part].tolist(), strict=True)
        for place, i, j in rows:
            if is_source_taken[i] or is_target_taken[j]:
                continue
            is_source_taken[i] = 1
            is_target_taken[j] = 1
            accepted.append(place)
    best = torch.tensor(accepted, dtype=torch.int64)
    return MinedPairs(scores[best], source[best], target[best])


def _row_count(rows: Tensor) -> int:
    """One more than the highest row."""
    if not len(rows):
        return 0
    return int(rows.max()) + 1
