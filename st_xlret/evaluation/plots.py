"""Plots of training runs and of evaluations. They need matplotlib (the extra `plots`)."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from st_xlret.files import atomic_file

logger = logging.getLogger(__name__)

_LABELLED_LANGUAGES, _MOST_LABELS = 40, 60
_INCHES_PER_BAR, _CHARACTERS_PER_LABEL = 0.2, 22


def plot_training(history: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> Path | None:
    """Draw the losses of a run, and its average scores or MRR@10, over the steps of `trainer.state.log_history`.

    None is returned where matplotlib is not installed or the history holds no losses and no scores.
    """
    names = {key for line in history for key in line}
    losses = sorted(key for key in names if key.startswith("loss_")) or sorted(names & {"loss"})
    scores = sorted(key for key in names if key.startswith("eval_") and ("average" in key or key.endswith("mrr@10")))
    panels = [(title, keys) for title, keys in (("training loss", losses), ("evaluation", scores)) if keys]
    if not panels or (figure := _figure(path, 6 * len(panels), 4.5)) is None:
        return None
    axes = figure.subplots(1, len(panels), squeeze=False)
    for axis, (title, keys) in zip(axes[0], panels, strict=True):
        for key in keys:
            points = [(line["step"], line[key]) for line in history if key in line]
            axis.plot(*zip(*points, strict=True), marker=".", label=key.removeprefix("loss_").removeprefix("eval_"))
        axis.set(title=title, xlabel="step")
        axis.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.18))
        axis.grid(alpha=0.3)
    return _save(figure, path)


def plot_stages(
    stages: Mapping[str, Mapping[str, float]],
    path: str | os.PathLike[str],
    *,
    title: str = "bilingual retrieval",
    metric: str = "accuracy",
) -> Path | None:
    """Draw scores as groups of horizontal bars: one group per benchmark or kind of language, one bar per stage.

    Args:
        stages: Stage -> group, such as "all" -> score in [0, 1]. Every stage has the same groups.
        path: PNG file.
        title: Title of the plot.
        metric: What the scores are, for the label of the axis.
    """
    groups = list(next(iter(stages.values())))
    bars = len(groups) * (len(stages) + 1)
    figure = _figure(path, 8, 1.2 + _INCHES_PER_BAR * (bars + len(stages) / 2))
    if figure is None:
        return None
    axis = figure.subplots()
    width = 1 / (len(stages) + 1)  # the space of one bar lies between two groups
    for number, (stage, scores) in enumerate(stages.items()):
        places = [group + (number - (len(stages) - 1) / 2) * width for group in range(len(groups))]
        drawn = axis.barh(places, [100 * scores[group] for group in groups], 0.95 * width, label=stage)
        axis.bar_label(drawn, fmt="%.1f", fontsize=7, padding=2)
    axis.set_yticks(range(len(groups)), [fill(group.replace("_", " "), _CHARACTERS_PER_LABEL) for group in groups])
    axis.invert_yaxis()  # the first group and the first stage at the top, as in the legend
    axis.margins(x=0.08, y=0.02)
    axis.set(title=title, xlabel=f"{metric} (%)")
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(fontsize="small", loc="outside lower center", ncols=2)
    return _save(figure, path)


def plot_language_bias(languages: Sequence[str], shares: Any, path: str | os.PathLike[str]) -> Path | None:
    """Draw a heat map of `shares` (L, L): the language of a query against the languages of its nearest neighbours.

    The figures are written into the squares of up to 40 languages. Of more, the picture stays as large, and of more
    than 60, every second, third and so on is labelled.
    """
    step = -(-len(languages) // _MOST_LABELS)
    places = range(0, len(languages), step)
    size = 2.5 + 0.42 * min(len(languages), _LABELLED_LANGUAGES)
    if (figure := _figure(path, size + 1, size)) is None:
        return None
    axis = figure.subplots()
    image = axis.imshow(100 * shares, cmap="viridis", vmin=0, vmax=100)
    font = 10 * min(1, _LABELLED_LANGUAGES / len(places))
    axis.set_xticks(places, languages[::step], rotation=90, fontsize=font)
    axis.set_yticks(places, languages[::step], fontsize=font)
    axis.set(xlabel="language of the neighbours", ylabel="language of the query")
    for i, row in enumerate(shares) if len(languages) <= _LABELLED_LANGUAGES else ():
        for j, share in enumerate(row):
            if share >= 0.005:
                colour = "black" if share > 0.6 else "white"
                axis.text(j, i, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(image, label="share of the nearest neighbours (%)", shrink=0.8)
    return _save(figure, path)


def plot_strengths(rows: Sequence[Mapping[str, float]], path: str | os.PathLike[str]) -> Path | None:
    """Draw what a calibration keeps within a language against what it finds in others, a point for each strength.

    Args:
        rows: A mapping with `strength`, `neighbours_kept`, `same_language_share` and `chance` for each strength.
        path: PNG file.
    """
    if (figure := _figure(path, 6, 4.5)) is None:
        return None
    axis = figure.subplots()
    points = [(100 * row["neighbours_kept"], 100 * (1 - row["same_language_share"])) for row in rows]
    axis.plot(*zip(*points, strict=True), marker="o")
    for row, point in zip(rows, points, strict=True):
        axis.annotate(f"{row['strength']:g}", point, xytext=(5, 5), textcoords="offset points", fontsize="small")
    axis.axhline(100 * (1 - rows[0]["chance"]), linestyle="--", color="grey", label="without language bias")
    axis.set(xlabel="neighbours kept within a language (%)", ylabel="results in other languages (%)", title="strength")
    axis.invert_xaxis()  # from the vectors as they are, at the left
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right")
    return _save(figure, path)


def _figure(path: str | os.PathLike[str], width: float, height: float) -> Any:
    """A figure outside of pyplot, whose global state belongs to the caller's program."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        logger.warning(
            '%s is not drawn, as matplotlib is not installed: pip install "st-xlret[plots]"', Path(path).name
        )
        return None
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Any, path: str | os.PathLike[str]) -> Path:
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=120)
    return Path(path)
