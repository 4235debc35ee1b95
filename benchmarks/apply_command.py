"""`apply_calibration` on files against the same product in NumPy on vectors in memory, in one run.

    OMP_NUM_THREADS=1 python -m benchmarks.apply_command --output runs/apply.json

The vectors are generated: float16 of unit length. NumPy casts chunks of 8 192 rows to float32,
multiplies, adds the bias, scales to unit length and casts to float16 again. `apply` reads them from
a file in runs/apply, checks them, does the same, and writes a new file.
"""

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import measuring
from benchmarks.measuring import Comparison, Step
from benchmarks.search import DIMENSION, fill
from st_xlret import VectorCalibration
from st_xlret.calibration.steps import Maps
from st_xlret.stores import apply_calibration, open_store

ROWS = 300_000
CHUNK = 8192
FOLDER = Path("runs/apply")
# A map in as many dimensions as lsar of 11 languages has.
BASIS = np.linalg.qr(np.random.default_rng(1).standard_normal((DIMENSION, 11)))[0]
CALIBRATION = VectorCalibration(BASIS, Maps(-np.eye(11)[None], np.zeros((1, 11))))


def multiply() -> Step:
    """The product in NumPy, of vectors in memory."""
    stored = fill(np.empty((ROWS, DIMENSION), np.float16))

    def run() -> None:
        weight, bias = (part.numpy().T for part in CALIBRATION.layer().map_of(None))
        for start in range(0, len(stored), CHUNK):
            mapped = stored[start : start + CHUNK].astype(np.float32) @ weight
            mapped += bias
            mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
            mapped.astype(np.float16)

    return run


def apply(suffix: str) -> Step:
    """Map a file into another, which is removed before the next run."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    source = FOLDER / f"vectors{suffix}"
    mapped = FOLDER / f"mapped{suffix}"
    vectors = fill(np.empty((ROWS, DIMENSION), np.float16))
    if suffix == ".npy":
        np.save(source, vectors)
    else:
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
        table = pa.table({"vector": column, "language": ["en"] * ROWS})
        pq.write_table(
            table, source, row_group_size=8 * CHUNK, use_dictionary=["language"], compression="none"
        )

    def run() -> None:
        mapped.unlink(missing_ok=True)
        with open_store(source) as store:
            apply_calibration(CALIBRATION, store, str(mapped))

    return run


COMPARISONS = {
    "apply": Comparison(
        f"`apply` on {ROWS} x {DIMENSION} vectors in files against the product in NumPy",
        {
            ".npy to .npy": partial(apply, ".npy"),
            "Parquet to Parquet": partial(apply, ".parquet"),
            "NumPy": multiply,
        },
        goals={"time": 1 / 0.7},
        rounds=3,
    )
}


if __name__ == "__main__":
    measuring.main(COMPARISONS, __doc__)
