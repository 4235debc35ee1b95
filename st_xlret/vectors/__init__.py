"""Vectors that are stored already, in files and databases: reading them, and writing mapped ones beside them."""

from __future__ import annotations

from st_xlret.vectors.base import VectorRows, VectorSource, VectorTarget
from st_xlret.vectors.opening import open_vectors

__all__ = ["VectorRows", "VectorSource", "VectorTarget", "open_vectors"]
