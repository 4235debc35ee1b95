"""`apply_calibration` on files against the same product in NumPy on vectors in memory, in one run.

    OMP_NUM_THREADS=1 python -m benchmarks.apply_command --rows 1000000 --folder runs/apply

The vectors are generated: float16 of unit length, in `.npy` and in Parquet. NumPy casts chunks of 8 192 rows to
float32, multiplies, adds the bias, scales to unit length and casts to float16 again. `apply` reads them from the disk,
checks them, does the same, and writes a new file. All take turns; times are processor times, medians of the rounds.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.measuring import Step, interleaved
from st_xlret import VectorCalibration
from st_xlret.calibration.steps import Maps
from st_xlret.evaluation import markdown_table
from st_xlret.stores import apply_calibration, open_store

_CHUNK, _DIMENSION = 8192, 384


def write_vectors(folder: Path, rows: int) -> None:
    """The same vectors as `.npy` and as Parquet, chunk by chunk."""
    generator = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    stored = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float16, (rows, _DIMENSION))
    schema = pa.schema({"vector": pa.list_(pa.float16(), _DIMENSION), "language": pa.string()})
    with pq.ParquetWriter(folder / "vectors.parquet", schema, use_dictionary=["language"], compression="none") as file:
        for start in range(0, rows, 8 * _CHUNK):
            part = generator.standard_normal((min(8 * _CHUNK, rows - start), _DIMENSION), dtype=np.float32)
            part /= np.linalg.norm(part, axis=1, keepdims=True)
            stored[start : start + len(part)] = part
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(part.astype(np.float16).ravel()), _DIMENSION)
            file.write_batch(pa.record_batch([vectors, pa.array(["en"] * len(part))], schema=schema))
    stored.flush()


def multiply(folder: Path, calibration: VectorCalibration) -> Step:
    """The product in NumPy, of vectors in memory."""
    stored = np.load(folder / "vectors.npy")

    def run() -> torch.Tensor:
        weight, bias = (part.astype(np.float32).T for part in calibration.dense())
        for start in range(0, len(stored), _CHUNK):
            mapped = stored[start : start + _CHUNK].astype(np.float32) @ weight
            mapped += bias
            mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
            mapped.astype(np.float16)
        return torch.tensor(len(stored))

    return Step(run)


def apply(folder: Path, suffix: str, calibration: VectorCalibration) -> Step:
    """Map a file into another, which is removed before the next run."""
    into = folder / f"mapped{suffix}"

    def run() -> torch.Tensor:
        with open_store(folder / f"vectors{suffix}") as source:
            apply_calibration(calibration, source, str(into))
        return torch.tensor(0)

    return Step(run, partial(into.unlink, missing_ok=True))


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("runs/apply"), help="where the files are written")
    options = parser.parse_args()
    write_vectors(options.folder, options.rows)
    weight = np.random.default_rng(1).standard_normal((1, _DIMENSION, _DIMENSION), dtype=np.float32)
    maps = Maps(weight, np.zeros((1, _DIMENSION), dtype=np.float32))
    calibration = VectorCalibration(np.eye(_DIMENSION, dtype=np.float32), maps)
    ways = {
        "the product in NumPy": partial(multiply, options.folder, calibration),
        "`apply`, `.npy` to `.npy`": partial(apply, options.folder, ".npy", calibration),
        "`apply`, Parquet to Parquet": partial(apply, options.folder, ".parquet", calibration),
    }
    seconds = {name: figures["s"] for name, figures in interleaved(ways, options.rounds).items()}
    fastest = seconds["the product in NumPy"]
    rows = [[name, f"{t:.3g}", f"{options.rows / t:.0f}", f"{fastest / t:.2f}"] for name, t in seconds.items()]
    print(markdown_table(["", "time, s", "rows a second", "speed of NumPy"], rows))


if __name__ == "__main__":
    main()
