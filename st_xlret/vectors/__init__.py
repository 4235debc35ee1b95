"""Vectors that are stored already, in files and databases: reading them, and writing mapped ones beside them."""

from __future__ import annotations

from st_xlret.vectors.applying import Applied, apply_calibration
from st_xlret.vectors.base import VectorRows, VectorSource, VectorTarget
from st_xlret.vectors.calibration import VectorCalibration
from st_xlret.vectors.opening import open_vectors

__all__ = [
    "Applied",
    "VectorCalibration",
    "VectorRows",
    "VectorSource",
    "VectorTarget",
    "apply_calibration",
    "open_vectors",
]
