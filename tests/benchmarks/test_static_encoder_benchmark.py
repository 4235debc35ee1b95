"""The benchmark of static encoders runs at toy sizes, and its ways start alike. Times are not tested."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import static_encoder


@pytest.mark.slow
def test_figures_and_table_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "new" / "static.json"
    sizes = ["--vocabulary", "40", "--features", "4", "--texts", "6", "--words", "3", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["static_encoder", *sizes, "--output", str(output)])
    static_encoder.main()
    ratios = json.loads(output.read_text(encoding="utf-8"))["comparisons"]["update"]["ratios"]
    assert {(ratio["of"], ratio["to"]) for ratio in ratios} == {("lazy Adam", "SparseAdam"), ("lazy Adam", "AdamW")}
    assert "An update of 40 x 4 by 6 texts of 3 words" in output.with_suffix(".md").read_text(encoding="utf-8")


def test_lazy_and_sparse_adam_give_the_same_losses() -> None:
    lazy, sparse = (static_encoder.step(way, (40, 4, 6, 3)) for way in ("lazy Adam", "SparseAdam"))
    losses = [(float(lazy.run()), float(sparse.run())) for _ in range(3)]
    assert all(mine == pytest.approx(theirs, abs=1e-5) for mine, theirs in losses)
    assert losses[0] != losses[1]
