"""What a calibration of means costs in thin factors, against the same in full width, in one run.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.calibration --output runs/calibration.json

Vectors of 11 languages, 300 each, are generated. "thin" is `fit_and_compare` as it is, in coordinates in the span of
the means; "full" does the same with B = I, so that every calibration multiplies whole vectors. The memory is that
above the vectors', and the values are the scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import torch

from benchmarks import measuring
from benchmarks.measuring import Comparison, Step
from st_xlret.calibration import calibration, fit_and_compare


def fit(dimension: int, of_means: frozenset[str]) -> Step:
    """Fit and compare, with these steps in thin factors."""
    generator = np.random.default_rng(0)
    topics, clouds = generator.standard_normal((300, dimension)), {}
    for i in range(11):
        rows = topics + generator.standard_normal(dimension) + 0.5 * generator.standard_normal((300, dimension))
        clouds[f"l{i:02d}"] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def run() -> torch.Tensor:
        calibration.OF_MEANS = of_means
        return torch.tensor(fit_and_compare(clouds, strength="auto", keep_mean=0.25)[1].after.score())

    return Step(run)


def comparisons() -> Mapping[str, Comparison]:
    """What is compared, by dimension."""
    ways = {"thin": calibration.OF_MEANS, "full": frozenset[str]()}
    return {
        str(dimension): Comparison(
            f"Calibration of 11 x 300 vectors of {dimension}",
            {name: partial(fit, dimension, of_means) for name, of_means in ways.items()},
            [("thin", "full")],
            rounds=3,
        )
        for dimension in (128, 384, 768, 1536)
    }


if __name__ == "__main__":
    measuring.main(comparisons, __doc__)
