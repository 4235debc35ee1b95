"""The picture of the language bias."""

from typing import Any

import numpy as np
import pytest

from st_xlret.calibration import plots


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are drawn; none is saved, which takes seconds."""
    pytest.importorskip("matplotlib")
    drawn: list[Any] = []
    new_figure = plots.new_figure

    def kept(*size: Any) -> Any:
        drawn.append(new_figure(*size))
        return drawn[-1]

    monkeypatch.setattr(plots, "new_figure", kept)
    monkeypatch.setattr(plots, "save_figure", lambda *_: None)
    return drawn


def test_a_heat_map_of_many_languages_is_no_larger(figures: list[Any]) -> None:
    for count in (3, 41, 121):
        names = [f"l{number}" for number in range(count)]
        plots.plot_language_bias(names, np.eye(count), "bias.png")
    few, some, many = figures
    assert many.get_size_inches().tolist() == some.get_size_inches().tolist()
    assert many.get_size_inches().tolist() > few.get_size_inches().tolist()


def test_a_heat_map_of_many_languages_has_fewer_words(figures: list[Any]) -> None:
    for count in (3, 121):
        names = [f"l{number}" for number in range(count)]
        plots.plot_language_bias(names, np.eye(count), "bias.png")
    few, many = figures
    assert len(few.axes[0].texts) == 3
    assert len(many.axes[0].texts) == 0
    labels = [label.get_text() for label in many.axes[0].get_yticklabels()]
    assert labels == [f"l{row}" for row in range(0, 121, 3)]
