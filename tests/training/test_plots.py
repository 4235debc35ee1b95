"""The picture of a run has a panel for the losses and one for the scores."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from st_xlret.training import plots

HISTORY: list[dict[str, Any]] = [
    {"step": 5, "loss": 2.0, "loss_ccp": 2.5, "loss_pairs": 1.5},
    {"step": 10, "loss": 1.0, "loss_ccp": 1.2},
    {"step": 10, "eval_pairs_average_accuracy": 0.4, "eval_pairs_fr_accuracy": 0.4},
    {"step": 10, "train_runtime": 3.0},
]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are drawn."""
    pytest.importorskip("matplotlib")
    drawn: list[Any] = []
    new_figure = plots.new_figure

    def kept(*size: Any) -> Any:
        drawn.append(new_figure(*size))
        return drawn[-1]

    monkeypatch.setattr(plots, "new_figure", kept)
    return drawn


def test_losses_and_average_scores_are_drawn_over_the_steps(
    tmp_path: Path, figures: list[Any]
) -> None:
    path = plots.plot_training(HISTORY, tmp_path / "training.png")
    assert path == tmp_path / "training.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    [figure] = figures
    losses, scores = figure.axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in losses.lines}
    assert lines == {"ccp": [[5, 2.5], [10, 1.2]], "pairs": [[5, 1.5]]}
    assert [line.get_label() for line in scores.lines] == ["pairs_average_accuracy"]


def test_nothing_is_drawn_of_a_history_without_losses_and_scores(tmp_path: Path) -> None:
    assert plots.plot_training(HISTORY[3:], tmp_path / "nothing.png") is None
    assert os.listdir(tmp_path) == []


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert plots.plot_training(HISTORY, tmp_path / "none.png") is None
    assert os.listdir(tmp_path) == []
    assert "none.png" in caplog.text
    assert "[plots]" in caplog.text
