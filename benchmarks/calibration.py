"""What a calibration of means costs in thin factors, against the same in full width, in one run.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.calibration --output runs/calibration.json

Vectors of 11 languages, 300 each, are generated. "thin" is `fit_and_compare` as it is, in coordinates in the span of
the means; "full" does the same with B = I, so that every calibration multiplies whole vectors. Each side is a process
of its own, they take turns, and medians are reported: processor seconds, and the peak of memory above the vectors'.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.measuring import machine
from st_xlret.files import write_json

_SIDE = """
import re, sys, time, numpy as np, torch
from st_xlret.calibration import calibration, fit_and_compare
calibration.OF_MEANS = calibration.OF_MEANS if sys.argv[1] == "thin" else frozenset()
dimension, generator = int(sys.argv[2]), np.random.default_rng(0)
topics, clouds = generator.standard_normal((300, dimension)), {}
for i in range(11):
    rows = topics + generator.standard_normal(dimension) + 0.5 * generator.standard_normal((300, dimension))
    clouds[f"l{i:02d}"] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
memory = lambda name: int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
open("/proc/self/clear_refs", "w").write("5")
start, before = time.process_time(), memory("VmRSS")
_, comparison = fit_and_compare(clouds, strength="auto", keep_mean=0.25)
print(time.process_time() - start, memory("VmHWM") - before, comparison.after.score())
"""


def measure(dimension: int, rounds: int) -> dict[str, Any]:
    """Processor seconds and added MB of both sides, and thin as a share of full."""
    found: dict[str, list[list[float]]] = {"thin": [], "full": []}
    for _ in range(rounds):
        for side, results in found.items():
            command = [sys.executable, "-c", _SIDE, side, str(dimension)]
            words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            results.append([float(word) for word in words])
    names = ("processor seconds", "MB added", "score")
    figures: dict[str, Any] = {
        side: {name: statistics.median(column) for name, column in zip(names, zip(*results, strict=True), strict=True)}
        for side, results in found.items()
    }
    shares = {f"{name}, thin / full": figures["thin"][name] / figures["full"][name] for name in names[:2]}
    return figures | shares


def main() -> None:
    """Measure each dimension, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[128, 384, 768, 1536])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("runs/calibration.json"))
    given = parser.parse_args()
    figures = {dimension: measure(dimension, given.rounds) for dimension in given.dimensions}
    print(json.dumps(figures, indent=2))
    write_json(given.output, {"machine": machine(), "figures": figures})


if __name__ == "__main__":
    main()
