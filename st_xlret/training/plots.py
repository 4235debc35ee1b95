"""A picture of a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from st_xlret.files import PathLike
from st_xlret.plots import new_figure, save_figure

_LOSS = "loss_"
_EVALUATION = "eval_"


def plot_training(history: Sequence[Mapping[str, Any]], path: PathLike) -> Path | None:
    """Draw the losses of a run, and its average scores or MRR@10, over the steps.

    `history` is `trainer.state.log_history`. None is returned where matplotlib is not installed or
    the history holds no losses and no scores.
    """
    names = {key for line in history for key in line}
    panels: dict[str, list[str]] = {}
    losses = _names_of_losses(names)
    scores = [name for name in names if _is_score(name)]
    if losses:
        panels["training loss"] = sorted(losses)
    if scores:
        panels["evaluation"] = sorted(scores)
    if not panels:
        return None
    figure = new_figure(path, 6 * len(panels), 4.5)
    if figure is None:
        return None
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, keys) in zip(axes, panels.items(), strict=True):
        for key in keys:
            _draw_line(axis, history, key)
        axis.set(title=title, xlabel="step")
        axis.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.18))
        axis.grid(alpha=0.3)
    return save_figure(figure, path)


def _names_of_losses(names: set[str]) -> list[str]:
    """The losses by name, or their sum where they have none."""
    named = [name for name in names if name.startswith(_LOSS)]
    return named or list(names & {"loss"})


def _is_score(name: str) -> bool:
    """Whether an entry of a log is a score that says most, as `run.py` prints them."""
    says_most = "average" in name or name.endswith("mrr@10")
    return says_most and name.startswith(_EVALUATION)


def _draw_line(axis: Any, history: Sequence[Mapping[str, Any]], key: str) -> None:
    """Draw an entry of the log by its steps, named without what the host puts before it."""
    steps = []
    values = []
    for line in history:
        if key in line:
            steps.append(line["step"])
            values.append(line[key])
    label = key.removeprefix(_LOSS)
    label = label.removeprefix(_EVALUATION)
    axis.plot(steps, values, marker=".", label=label)
