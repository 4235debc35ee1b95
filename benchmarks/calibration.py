"""What a calibration of means costs in thin factors, against the same in full width, in one run.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
        python -m benchmarks.calibration --output runs/calibration.json

Vectors of 11 languages, 300 each, are generated. "thin" is `fit_and_compare` as it is, in
coordinates in the span of the means; "full" does the same with B = I, so that every calibration
multiplies whole vectors.
"""

from functools import partial
from unittest.mock import patch

import numpy as np
from numpy.typing import ArrayLike

from benchmarks import measuring
from benchmarks.measuring import Comparison, Step
from st_xlret.calibration import FitOptions, fit_and_compare

LANGUAGES = 11
TEXTS = 300
DIMENSIONS = (128, 384, 768, 1536)


def make_clouds(dimension: int) -> dict[str, ArrayLike]:
    """Vectors of unit length: the same topics in every language, each in a region of its own."""
    generator = np.random.default_rng(0)
    topics = generator.standard_normal((TEXTS, dimension))
    clouds: dict[str, ArrayLike] = {}
    for number in range(LANGUAGES):
        of_language = generator.standard_normal(dimension)
        noise = generator.standard_normal((TEXTS, dimension))
        rows = topics + of_language + 0.5 * noise
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        clouds[f"l{number:02d}"] = (rows / lengths).astype(np.float32)
    return clouds


def compare_thin(dimension: int) -> Step:
    """Fit and compare as the package does it."""
    clouds = make_clouds(dimension)

    def run() -> None:
        _, comparison = fit_and_compare(clouds, options=FitOptions(keep_mean=0.25))
        comparison.after.score()

    return run


def compare_full(dimension: int) -> Step:
    """The same, where no step is known to change vectors in the span of the means alone."""
    run = compare_thin(dimension)

    def run_in_full_width() -> None:
        with patch("st_xlret.calibration.fit.OF_MEANS", frozenset[str]()):
            run()

    return run_in_full_width


COMPARISONS = {}
for size in DIMENSIONS:
    COMPARISONS[str(size)] = Comparison(
        f"Calibration of {LANGUAGES} x {TEXTS} vectors of {size}",
        {"thin": partial(compare_thin, size), "full": partial(compare_full, size)},
        rounds=3,
    )


if __name__ == "__main__":
    measuring.main(COMPARISONS, __doc__)
