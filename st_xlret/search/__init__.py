"""Exact nearest-neighbour search, shared by evaluation, calibration and mining."""

from __future__ import annotations

from st_xlret.search.neighbours import (
    MutualNeighbours,
    csls_nearest,
    csls_scores,
    mean_neighbour_similarity,
    mutual_nearest_neighbours,
)
from st_xlret.search.top_k import top_k

__all__ = [
    "MutualNeighbours",
    "csls_nearest",
    "csls_scores",
    "mean_neighbour_similarity",
    "mutual_nearest_neighbours",
    "top_k",
]
