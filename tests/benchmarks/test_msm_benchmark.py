"""The benchmark of MSM runs at toy sizes, and what it compares computes the same thing. Times are never tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    output = tmp_path_factory.mktemp("benchmark") / "new" / "figures.json"
    program = [sys.executable, "-m", "benchmarks.msm", "--quick", "--output", output]
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    done = subprocess.run(program, cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "document side / encoder" in done.stdout
    assert [file.name for file in output.parent.iterdir()] == [output.name]
    return json.loads(output.read_text(encoding="utf-8"))


def test_the_ways_compute_the_same_loss(results: dict[str, Any]) -> None:
    values = [results["figures"][name]["loss"] for name in ("document side", "document side, one go", "every copy")]
    assert values == pytest.approx(values[:1] * 3, rel=1e-5)


def test_the_encoder_is_counted_for_all_sentences(results: dict[str, Any]) -> None:
    figures = results["figures"]
    assert figures["encoder"]["seconds"] == pytest.approx(3 * figures["micro-batch"]["seconds"])
    ratios = {(ratio["of"], ratio["to"], ratio["measure"]): ratio["ratio"] for ratio in results["ratios"]}
    expected = figures["document side"]["seconds"] / figures["encoder"]["seconds"]
    assert ratios["document side", "encoder", "time"] == pytest.approx(expected)
    if Path("/proc/self/clear_refs").exists():
        expected = figures["document side"]["peak_bytes"] / figures["every copy"]["peak_bytes"]
        assert ratios["document side", "every copy", "memory"] == pytest.approx(expected)
