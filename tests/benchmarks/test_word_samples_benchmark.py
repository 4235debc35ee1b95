"""The benchmark runs at a toy size. Times are never tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_figures_of_both_dictionary_sizes(repository: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "figures.json"
    program = [sys.executable, "-m", "benchmarks.word_samples", "--output", str(output)]
    sizes = ["--pairs", "300", "--words", "200", "--entries", "50", "400", "--vocabulary", "400"]
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    done = subprocess.run([*program, *sizes], cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "a million takes" in done.stdout
    small, large = json.loads(output.read_text())["cases"].values()
    assert (small["entries"], large["entries"]) == (50, 400) and small["pairs"] == 300
    # The entries that no sentence has change nothing.
    assert small["samples"] == large["samples"] >= small["used"] > 250
    assert small["pairs_per_second"] == pytest.approx(300 / small["seconds"])
