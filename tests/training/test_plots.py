"""Curves of a run."""

from __future__ import annotations

import builtins
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from st_xlret.training.plots import plot_training

HISTORY: list[dict[str, Any]] = [
    {"step": 5, "loss": 2.0, "loss_ccp": 2.5, "loss_pairs": 1.5},
    {"step": 10, "loss": 1.0, "loss_ccp": 1.2},
    {"step": 10, "eval_pairs_average_accuracy": 0.4, "eval_pairs_fr_accuracy": 0.4},
    {"step": 10, "train_runtime": 3.0},
]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are saved."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    saved: list[Any] = []
    save = figure.savefig
    monkeypatch.setattr(figure, "savefig", lambda self, *a, **k: (saved.append(self), save(self, *a, **k))[1])
    return saved


def test_a_panel_for_the_losses_and_one_for_the_scores(tmp_path: Path, figures: list[Any]) -> None:
    path = plot_training(HISTORY, tmp_path / "training.png")
    assert path == tmp_path / "training.png" and path.read_bytes().startswith(b"\x89PNG")
    assert os.listdir(tmp_path) == ["training.png"]
    losses, scores = figures[0].axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in losses.lines}
    assert lines == {"ccp": [[5, 2.5], [10, 1.2]], "pairs": [[5, 1.5]]}
    assert [line.get_label() for line in scores.lines] == ["pairs_average_accuracy"]
    assert (losses.get_title(), scores.get_title()) == ("training loss", "evaluation")


def test_one_panel_where_nothing_was_evaluated(tmp_path: Path, figures: list[Any]) -> None:
    plot_training(HISTORY[:2], str(tmp_path / "training.png"))
    assert len(figures[0].axes) == 1


@pytest.mark.parametrize("history", [[], HISTORY[3:]])
def test_nothing_to_draw(tmp_path: Path, history: list[dict[str, Any]]) -> None:
    assert plot_training(history, tmp_path / "training.png") is None
    assert not os.listdir(tmp_path)


def test_without_matplotlib_there_is_no_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert plot_training(HISTORY, tmp_path / "training.png") is None


def test_a_full_disk_leaves_the_old_plot_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure

    def full(self: Any, path: Path, **kwargs: Any) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "training.png").write_text("old")
    monkeypatch.setattr(figure, "savefig", full)
    with pytest.raises(OSError, match="No space left"):
        plot_training(HISTORY, tmp_path / "training.png")
    assert os.listdir(tmp_path) == ["training.png"] and (tmp_path / "training.png").read_text() == "old"
