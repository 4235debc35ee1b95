"""Vectors of several languages, each in a region of its own, and what a calibration makes of them."""

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
    return {
        code: topics * generator.uniform(0.5, 2, dimension)
        + offset * generator.normal(size=dimension)
        + 0.3 * generator.normal(size=(texts, dimension))
        + 1
        for code in CODES
    }


def mean_of(rows: dict[str, NDArray]) -> NDArray:
    return np.stack([part.mean(axis=0) for part in rows.values()])


def apply(calibration: VectorCalibration, rows: NDArray, role: str, code: str = "") -> NDArray:
    """Mapped rows in float64, not scaled to unit length."""
    weight, bias = calibration.dense(
        role, calibration.languages.index(code) if calibration.languages else 0
    )  # type: ignore[arg-type]
    return rows @ weight.T + bias
