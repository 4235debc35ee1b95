"""`apply_calibration` on files against the same product in NumPy on the same vectors, in one run.

    OMP_NUM_THREADS=1 python -m benchmarks.apply_command --rows 1000000 --folder runs/apply --output runs/apply.json

The vectors are generated: float16 of unit length, in `.npy` and in Parquet. NumPy's side has them in memory: in chunks
of 8 192 rows it casts them to float32, multiplies, adds the bias, scales to unit length and casts them to float16
again. `apply` reads them from the disk, checks them, does the same, and writes a new file. "Parquet copied" reads and
writes the Parquet file with pyarrow alone. All take turns; times are processor times, medians of the rounds. The peak
is the resident memory of a process of its own that maps the Parquet file.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import machine
from st_xlret import VectorCalibration
from st_xlret.calibration.steps import Maps
from st_xlret.files import write_json
from st_xlret.stores import apply_calibration, open_store

_CHUNK = 8192
_PEAK = (
    "import re, sys; from st_xlret.commands import main; main(sys.argv[1:]); "
    "print('peak', re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
)


def write_vectors(folder: Path, rows: int, dimension: int) -> None:
    """The same vectors as `.npy` and as Parquet, chunk by chunk."""
    generator = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    stored = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float16, (rows, dimension))
    schema = pa.schema({"vector": pa.list_(pa.float16(), dimension), "language": pa.string()})
    with pq.ParquetWriter(folder / "vectors.parquet", schema, use_dictionary=["language"], compression="none") as file:
        for start in range(0, rows, 8 * _CHUNK):
            part = generator.standard_normal((min(8 * _CHUNK, rows - start), dimension), dtype=np.float32)
            part /= np.linalg.norm(part, axis=1, keepdims=True)
            stored[start : start + len(part)] = part
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(part.astype(np.float16).ravel()), dimension)
            file.write_batch(pa.record_batch([vectors, pa.array(["en"] * len(part))], schema=schema))
    stored.flush()


def multiply(stored: np.ndarray, calibration: VectorCalibration) -> None:
    """The product in NumPy."""
    weight, bias = (part.astype(np.float32).T for part in calibration.dense())
    for start in range(0, len(stored), _CHUNK):
        mapped = stored[start : start + _CHUNK].astype(np.float32) @ weight
        mapped += bias
        mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
        mapped.astype(np.float16)


def apply(folder: Path, suffix: str, calibration: VectorCalibration) -> None:
    """Map a file into another, which is removed."""
    into = folder / f"mapped{suffix}"
    with open_store(folder / f"vectors{suffix}") as source:
        apply_calibration(calibration, source, str(into))
    into.unlink()


def copy(folder: Path) -> None:
    """Read the Parquet file and write it into another, which is removed."""
    with pq.ParquetFile(folder / "vectors.parquet") as source:
        how = {"use_dictionary": ["language"], "write_statistics": ["language"], "compression": "none"}
        with pq.ParquetWriter(folder / "copied.parquet", source.schema_arrow, **how) as target:
            for batch in source.iter_batches(4 * _CHUNK):
                target.write_batch(batch)
    (folder / "copied.parquet").unlink()


def measure(folder: Path, rows: int, dimension: int, rounds: int) -> dict[str, Any]:
    """Seconds and rows a second of each way, and NumPy's time as a share of it."""
    write_vectors(folder, rows, dimension)
    generator = np.random.default_rng(1)
    weight = generator.standard_normal((1, dimension, dimension), dtype=np.float32)
    maps = Maps(weight, generator.standard_normal((1, dimension), dtype=np.float32))
    calibration = VectorCalibration(np.eye(dimension, dtype=np.float32), maps)
    shutil.rmtree(folder / "map", ignore_errors=True)
    calibration.save(folder / "map")
    in_memory = np.load(folder / "vectors.npy")
    ways: dict[str, Callable[[], None]] = {
        "NumPy": lambda: multiply(in_memory, calibration),
        "apply, .npy": lambda: apply(folder, ".npy", calibration),
        "apply, Parquet": lambda: apply(folder, ".parquet", calibration),
        "Parquet copied": lambda: copy(folder),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            begun = time.process_time()
            run()
            seconds[name].append(time.process_time() - begun)
    found: dict[str, Any] = {"rows": rows, "dimension": dimension, "rounds": rounds}
    for name, times in seconds.items():
        ratios = [other / own for other, own in zip(seconds["NumPy"], times, strict=True)]
        median = statistics.median(times)
        found[name] = {"seconds": median, "rows_per_second": rows / median, "ratio": statistics.median(ratios)}
    given = ["apply", str(folder / "map"), "--vectors", str(folder / "vectors.parquet")]
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, *given, "--into", str(folder / "mapped.parquet")],
        stdout=subprocess.PIPE,
        text=True,
    )
    (folder / "mapped.parquet").unlink()
    return found | {"peak_MiB": int(done.stdout.split()[-1]) / 1024}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("runs/apply"), help="Where the files are written.")
    parser.add_argument("--output", help="JSON file of the figures.")
    options = parser.parse_args()
    found = measure(options.folder, options.rows, options.dimension, options.rounds) | {"machine": machine()}
    for name, figures in found.items():
        print(f"{name}: {figures}")
    if options.output:
        write_json(options.output, found)


if __name__ == "__main__":
    main()
