"""Vectors that are stored already, in files and databases.

They are read, and mapped ones are written beside them.
"""

from st_xlret.stores.apply import RowCounts, apply_calibration
from st_xlret.stores.base import Store
from st_xlret.stores.registry import open_store

__all__ = ["RowCounts", "Store", "apply_calibration", "open_store"]
