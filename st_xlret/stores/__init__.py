"""Vectors that are stored already, in files and databases: reading them, and writing mapped ones beside them."""

from st_xlret.stores.apply import RowCounts, apply_calibration
from st_xlret.stores.base import Store, open_store

__all__ = ["RowCounts", "Store", "apply_calibration", "open_store"]
