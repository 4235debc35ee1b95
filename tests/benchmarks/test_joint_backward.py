"""The benchmark runs at a toy size, and its ways compute the same loss. Memory is not tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_figures_of_every_way(repository: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "figures.json"
    program = [sys.executable, "-m", "benchmarks.joint_backward", "--quick", "--output", str(output)]
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    done = subprocess.run(program, cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(output.read_text(encoding="utf-8"))
    figures = result["figures"]
    assert set(figures) == {"sum", "sequential", "semantic", "language", "retrieval"}
    assert figures["sum"]["loss"] == pytest.approx(figures["sequential"]["loss"], rel=1e-5)
    if Path("/proc/self/clear_refs").exists():
        peaks = {way: figure["peak_bytes"] for way, figure in figures.items()}
        assert result["ratios"]["sequential / sum"] == pytest.approx(peaks["sequential"] / peaks["sum"])
    assert "sequential / sum" in done.stdout or "ratios" not in result
