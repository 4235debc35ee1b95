"""The picture of the study of search."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from training_scripts.studies.search_plot import plot_rows

ROWS = {
    "checkpoint": {"raw pool": 25.0, "raw own": 80.0, "aligned pool": 53.0, "aligned own": 81.0},
    "collapsed": {"raw pool": 1.0, "raw own": 5.0, "aligned pool": 1.0, "aligned own": 6.0},
}


def test_rows_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    whole = plot_rows(ROWS, tmp_path / "plots" / "study.png")
    assert whole is not None and whole.read_bytes().startswith(b"\x89PNG")
    assert plot_rows({}, tmp_path / "empty.png") is not None


def test_rows_that_collapsed_are_named_and_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure
    texts = []
    monkeypatch.setattr(figure, "text", lambda self, x, y, text, **_: texts.append(text))
    plot_rows(ROWS, tmp_path / "study.png")
    assert texts == ["1  checkpoint\n2  collapsed (collapsed, not drawn)"]


def test_without_matplotlib_there_is_no_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert plot_rows(ROWS, tmp_path / "study.png") is None
    assert "st-xlret[plots]" in caplog.text and not list(tmp_path.iterdir())
