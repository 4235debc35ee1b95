"""Nearest-neighbour search and mining of translations, shared by evaluation, calibration and the commands."""

from __future__ import annotations

from st_xlret.search.approximate import ApproximateTopK, approximate_top_k
from st_xlret.search.blocks import unit_rows
from st_xlret.search.both_ways import NeighboursBothWays, neighbours_both_ways
from st_xlret.search.exact import top_k
from st_xlret.search.merging import merge_top_k, merge_top_k_across_ranks
from st_xlret.search.mining import MinedPairs, mine_bitext, mine_pairs
from st_xlret.search.neighbours import (
    MutualNeighbours,
    csls_nearest,
    csls_scores,
    mean_neighbour_similarity,
    mutual_nearest_neighbours,
)

__all__ = [
    "ApproximateTopK",
    "MinedPairs",
    "MutualNeighbours",
    "NeighboursBothWays",
    "approximate_top_k",
    "csls_nearest",
    "csls_scores",
    "mean_neighbour_similarity",
    "merge_top_k",
    "merge_top_k_across_ranks",
    "mine_bitext",
    "mine_pairs",
    "mutual_nearest_neighbours",
    "neighbours_both_ways",
    "top_k",
    "unit_rows",
]
