"""The benchmark runs at toy sizes, and what it compares computes the same thing. Times are never tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
OPTIONAL = {"ntxent": "pytorch_metric_learning", "supcon": "pytorch_metric_learning"}
ALWAYS = {
    "encoder",
    "in_batch",
    "naive_narrow",
    "naive_wide",
    "naive_languages",
    "vocabulary",
    "vocabulary_frozen",
    "vocabulary_host",
}


@pytest.fixture(scope="module")
def results(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    output = tmp_path_factory.mktemp("benchmark") / "new" / "figures.json"
    program = [sys.executable, "-m", "benchmarks.ccp_losses", "--quick", "--output", output]
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    done = subprocess.run(program, cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [file.name for file in output.parent.iterdir()] == [output.name]
    return json.loads(output.read_text(encoding="utf-8"))


def test_every_comparison_is_there(results: dict[str, Any]) -> None:
    assert set(results) == {"machine", "quick", "comparisons"}
    assert set(results["machine"]) == {"cpu", "cores", "torch"} and results["quick"] is True
    installed = {name for name, package in OPTIONAL.items() if find_spec(package)}
    assert set(results["comparisons"]) == ALWAYS | installed


def test_every_step_has_figures_and_every_ratio_its_parts(results: dict[str, Any]) -> None:
    for name, comparison in results["comparisons"].items():
        measured = {"seconds", "loss", "runs"}
        if name != "encoder" and Path("/proc/self/clear_refs").exists():
            measured |= {"peak_bytes"}
        for figures in comparison["figures"].values():
            assert set(figures) == measured
        assert comparison["ratios"]
        for ratio in comparison["ratios"]:
            assert set(ratio) == {"of", "to", "measure", "ratio", "goal", "met"}
            key = {"time": "seconds", "memory": "peak_bytes"}[ratio["measure"]]
            one, other = (comparison["figures"][ratio[part]][key] for part in ("of", "to"))
            assert ratio["ratio"] == pytest.approx(one / other)


@pytest.mark.parametrize("name", sorted((ALWAYS | set(OPTIONAL)) - {"encoder", "in_batch"}))
def test_rivals_compute_the_same_loss(results: dict[str, Any], name: str) -> None:
    if name in OPTIONAL:
        pytest.importorskip(OPTIONAL[name])
    ours, theirs = (figures["loss"] for figures in results["comparisons"][name]["figures"].values())
    assert ours == pytest.approx(theirs, rel=1e-5)
