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


def row(strength: float, kept: float, same_language: float) -> plots.StrengthRow:
    return plots.StrengthRow(
        strength=strength,
        neighbours_kept=kept,
        removed=0.0,
        same_language_share=same_language,
        chance=0.5,
        score=0.0,
    )


def test_strengths_go_from_left_to_right_and_the_chosen_one_is_marked(figures: list[Any]) -> None:
    rows = [row(0.0, 1.0, 0.75), row(1.0, 0.5, 0.25)]
    plots.plot_strengths(rows, "strength.png", chosen=0.75)
    axis = figures[0].axes[0]
    in_others, kept, without_bias, chosen = axis.lines
    left, right = axis.get_xlim()
    assert left < right
    assert in_others.get_xydata().tolist() == [[0, 25], [1, 75]]
    assert kept.get_xydata().tolist() == [[0, 100], [1, 50]]
    assert without_bias.get_ydata() == [50, 50]
    assert chosen.get_xdata() == [0.75, 0.75]
    assert chosen.get_label() == "chosen strength: 0.75"


def test_a_heat_map_has_a_title(figures: list[Any]) -> None:
    plots.plot_language_bias(["en", "fr"], np.eye(2), "bias.png", title="before the calibration")
    axis = figures[0].axes[0]
    assert axis.get_title() == "before the calibration"
