"""The benchmark of reading runs at a toy size. Times are never tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["sentences-gz", "cc100"])
def test_figures_of_each_part(repository: Path, tmp_path: Path, kind: str) -> None:
    output, folder = tmp_path / "figures.json", tmp_path / "data"
    program = [sys.executable, "-m", "benchmarks.reading", "--output", str(output), "--folder", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    options = ["--gigabytes", "0.001", "--format", kind, "--batches", "20"]
    done = subprocess.run([*program, *options], cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads(output.read_text())
    assert figures["gigabytes"] >= 0.001 and figures["sentences"] > 10_000
    stages = figures["stages"]
    reading = stages["read"]
    assert figures["processor_seconds_per_gigabyte"] == reading["processor_seconds"] / figures["gigabytes"]
    assert {name.partition(":")[0] for name in stages} == {"read", "ccp", "msm"}
    for stage in stages.values():
        assert stage["peak_bytes"] >= stage["peak_anonymous_bytes"] >= stage["anonymous_bytes_before"] > 0
    assert stages["ccp: draw 20 batches"]["rows"] >= 20 * 32 < stages["msm: draw 20 batches"]["rows"]
    # Gigabytes are not left behind.
    assert not list(folder.iterdir())
