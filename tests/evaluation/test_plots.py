"""What is drawn, and that nothing is drawn over anything else."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from st_xlret.evaluation.tables import plot_language_bias, plot_strengths, plot_training


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are saved."""
    figure, saved = pytest.importorskip("matplotlib.figure").Figure, list[Any]()
    save = figure.savefig
    monkeypatch.setattr(figure, "savefig", lambda self, *a, **k: (saved.append(self), save(self, *a, **k))[1])
    return saved


def test_a_panel_for_the_losses_and_one_for_the_scores(tmp_path: Path, figures: list[Any], monkeypatch, caplog) -> None:
    history: list[dict[str, Any]] = [
        {"step": 5, "loss": 2.0, "loss_ccp": 2.5, "loss_pairs": 1.5},
        {"step": 10, "loss": 1.0, "loss_ccp": 1.2},
        {"step": 10, "eval_pairs_average_accuracy": 0.4, "eval_pairs_fr_accuracy": 0.4},
        {"step": 10, "train_runtime": 3.0},
    ]
    path = plot_training(history, tmp_path / "training.png")
    assert path == tmp_path / "training.png" and path.read_bytes().startswith(b"\x89PNG")
    losses, scores = figures[0].axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in losses.lines}
    assert lines == {"ccp": [[5, 2.5], [10, 1.2]], "pairs": [[5, 1.5]]}
    assert [line.get_label() for line in scores.lines] == ["pairs_average_accuracy"]
    assert plot_training(history[3:], tmp_path / "nothing.png") is None
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert plot_training(history, tmp_path / "none.png") is None and os.listdir(tmp_path) == ["training.png"]
    assert "none.png" in caplog.text and "st-xlret[plots]" in caplog.text


def test_a_heat_map_of_hundreds_of_languages_is_no_larger(tmp_path: Path, figures: list[Any]) -> None:
    for count in (3, 41, 200):
        plot_language_bias([f"l{number}" for number in range(count)], np.eye(count), tmp_path / "bias.png")
    few, some, many = figures
    assert many.get_size_inches().tolist() == some.get_size_inches().tolist() > few.get_size_inches().tolist()
    assert (len(few.axes[0].texts), len(many.axes[0].texts)) == (3, 0)
    assert [label.get_text() for label in many.axes[0].get_yticklabels()] == [f"l{row}" for row in range(0, 200, 4)]


def test_a_point_for_each_strength(tmp_path: Path, figures: list[Any]) -> None:
    row = {"strength": 0.0, "neighbours_kept": 1.0, "same_language_share": 0.75, "chance": 0.5}
    plot_strengths([row, {**row, "strength": 1.0, "neighbours_kept": 0.5}], tmp_path / "strength.png")
    (axis,) = figures[0].axes
    assert axis.lines[0].get_xydata().tolist() == [[100, 25], [50, 25]]
    assert [text.get_text() for text in axis.texts] == ["0", "1"]
