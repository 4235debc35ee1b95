"""Exact search by dot product, nearest neighbours of two sets, and mining of translations.

Everything runs block by block: no score matrix is held as a whole. Of equal scores, the lower row
comes first.
"""

from st_xlret.search.exact import neighbours_both_ways, top_k
from st_xlret.search.inputs import unit_rows
from st_xlret.search.mining import MinedPairs, mine_bitext, mine_pairs
from st_xlret.search.selection import BestColumns, best_columns, best_of_groups, merge_top_k

__all__ = [
    "BestColumns",
    "MinedPairs",
    "best_columns",
    "best_of_groups",
    "merge_top_k",
    "mine_bitext",
    "mine_pairs",
    "neighbours_both_ways",
    "top_k",
    "unit_rows",
]
