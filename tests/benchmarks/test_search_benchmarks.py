"""The benchmarks of search and mining run at toy sizes, and what they compare finds the same. Times are not tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mining_steps import one_pass, two_faiss_searches, two_semantic_searches
from benchmarks.search_steps import faiss_flat, streamed_from_disk, ways, write_corpus

SEARCH = ["--queries", "12", "--corpus", "700", "--dimension", "8", "--k", "5", "--few", "3", "--rounds", "1"]
MINING = ["--rows", "150", "--dimension", "8", "--rounds", "0"]


def figures_of(repository: Path, folder: Path, program: str, options: list[str]) -> dict[str, Any]:
    output = folder / "new" / "figures.json"
    command = [sys.executable, "-m", f"benchmarks.{program}", *options, "--output", str(output)]
    environment = {**os.environ, "PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(file.name for file in output.parent.iterdir()) == ["figures.json", "figures.md"]
    table = output.with_suffix(".md").read_text(encoding="utf-8")
    figures = json.loads(output.read_text(encoding="utf-8"))
    assert all(comparison["title"] in table for comparison in figures["comparisons"].values())
    return figures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "options", "names"),
    [("search", SEARCH, {"rivals", "growth", "3 queries"}), ("mining", MINING, {"mining"})],
)
def test_programs_write_figures_and_tables(
    repository: Path, tmp_path: Path, program: str, options: list[str], names: set[str]
) -> None:
    results = figures_of(repository, tmp_path, program, options)
    assert set(results) == {"machine", "sizes", "comparisons"} and set(results["comparisons"]) == names
    for comparison in results["comparisons"].values():
        for ratio in comparison["ratios"]:
            key = {"time": "seconds", "memory": "peak_bytes"}[ratio["measure"]]
            one, other = (comparison["figures"][ratio[part]][key] for part in ("of", "to"))
            assert ratio["ratio"] == pytest.approx(one / other)
            assert ratio["met"] is None or ratio["met"] == (ratio["ratio"] <= ratio["goal"])


def test_all_searches_find_the_same() -> None:
    sizes = 12, 60_000, 8, 5
    found = {name: float(way().run()) for name, way in ways(*sizes).items()}
    found["faiss flat"] = float(faiss_flat(*sizes).run())
    assert len(found) == 5
    assert all(value == pytest.approx(found["top_k"], rel=1e-5) for value in found.values()), found


def test_the_corpus_on_disk_is_the_one_in_memory(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus.npy", 700, 8)
    from_disk = float(streamed_from_disk(12, tmp_path / "corpus.npy", 5).run())
    assert from_disk == pytest.approx(float(ways(12, 700, 8, 5)["top_k"]().run()), rel=1e-3)


def test_all_ways_of_mining_find_the_same() -> None:
    ours, *others = (float(way(150, 8, 4).run()) for way in (one_pass, two_faiss_searches, two_semantic_searches))
    assert ours > 0 and all(other == pytest.approx(ours, rel=1e-5) for other in others)
