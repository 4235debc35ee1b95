"""Vectors of several languages, each in a region of its own, and what a calibration does."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from st_xlret import VectorCalibration

CODES = ("de", "en", "fr", "sw")


def clouds(
    seed: int = 0, *, texts: int = 80, dimension: int = 12, offset: float = 2.0
) -> dict[str, NDArray]:
    """Topics that all languages share, moved and spread by language; float64."""
    generator = np.random.default_rng(seed)
    topics = generator.normal(size=(texts, dimension))
    by_language = {}
    for code in CODES:
        spread = generator.uniform(0.5, 2, dimension)
        moved = generator.normal(size=dimension)
        noise = generator.normal(size=(texts, dimension))
        by_language[code] = topics * spread + offset * moved + 0.3 * noise + 1
    return by_language


def mean_of(rows: dict[str, NDArray]) -> NDArray:
    return np.stack([part.mean(axis=0) for part in rows.values()])


def weight_and_bias(
    calibration: VectorCalibration, role: Any, number: int
) -> tuple[NDArray, NDArray]:
    """W (d, d) and b (d,) of one map `y = W x + b`, in float64."""
    basis = calibration.basis
    origin = np.zeros((1, basis.shape[1]))
    added_to_unit_vectors = calibration.added_coordinates(basis, role, number) @ basis.T
    added_to_origin = calibration.added_coordinates(origin, role, number) @ basis.T
    bias = added_to_origin[0]
    added = added_to_unit_vectors - bias
    return np.eye(len(basis)) + added.T, bias


def apply(calibration: VectorCalibration, rows: NDArray, role: Any, code: str = "") -> NDArray:
    """Mapped rows in float64, not scaled to unit length."""
    number = 0
    if calibration.languages:
        number = calibration.languages.index(code)
    weight, bias = weight_and_bias(calibration, role, number)
    return rows @ weight.T + bias


def maps_of(calibration: VectorCalibration, role: Any = "document") -> list[NDArray]:
    """The weight and the bias of each map, side by side."""
    maps = []
    for number in range(max(1, len(calibration.languages))):
        weight, bias = weight_and_bias(calibration, role, number)
        maps.append(np.column_stack([weight, bias]))
    return maps
