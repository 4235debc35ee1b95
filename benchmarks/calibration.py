"""What a calibration of means costs in thin factors, against the same in full width, in one run.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.calibration --output runs/calibration.json

Vectors of 11 languages, 300 each, are generated. "thin" is `fit_and_compare` as it is, in coordinates in the span of
the means; "full" does the same with B = I, so that every calibration multiplies whole vectors.
"""

from functools import partial

import numpy as np

from benchmarks import measuring
from benchmarks.measuring import Comparison, Step
from st_xlret.calibration import calibration, fit_and_compare


def fit(dimension: int, of_means: frozenset[str]) -> Step:
    """Fit and compare, with these steps in thin factors."""
    generator = np.random.default_rng(0)
    topics, clouds = generator.standard_normal((300, dimension)), {}
    for i in range(11):
        rows = (
            topics
            + generator.standard_normal(dimension)
            + 0.5 * generator.standard_normal((300, dimension))
        )
        clouds[f"l{i:02d}"] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(
            np.float32
        )

    def run() -> None:
        calibration.OF_MEANS = of_means
        fit_and_compare(clouds, strength="auto", keep_mean=0.25)[1].after.score()

    return run


COMPARISONS = {
    str(dimension): Comparison(
        f"Calibration of 11 x 300 vectors of {dimension}",
        {
            "thin": partial(fit, dimension, calibration.OF_MEANS),
            "full": partial(fit, dimension, frozenset()),
        },
        rounds=3,
    )
    for dimension in (128, 384, 768, 1536)
}


if __name__ == "__main__":
    measuring.main(COMPARISONS, __doc__)
