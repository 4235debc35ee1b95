"""Pictures of an evaluation: two languages in the plane, and accuracies by stage. Need the extra ``plots``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_COLOURS = ("tab:blue", "tab:orange")


def principal_plane(embeddings: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Project the embeddings of several languages on the two principal components of all of them together.

    Args:
        embeddings: Language -> (n, d), with d >= 2.

    Returns:
        Language -> (n, 2). The sign of a component is such that its largest loading is positive, so that equal
        embeddings give equal pictures everywhere.

    Raises:
        ValueError: If there are fewer than two rows in all.

    Example:
        >>> plane = principal_plane({"en": torch.tensor([[3.0, 0.0, 1.0], [-3.0, 0.0, 1.0]])})
        >>> plane["en"].abs().tolist()
        [[3.0, 0.0], [3.0, 0.0]]
    """
    rows = torch.cat([cloud.double() for cloud in embeddings.values()])
    if len(rows) < 2:
        raise ValueError(f"a plane wants two rows or more, got {len(rows)}")
    mean = rows.mean(dim=0)
    axes = torch.linalg.svd(rows - mean, full_matrices=False).Vh[:2]
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))
    axes = axes * largest.sign()
    return {language: ((cloud.double() - mean) @ axes.T).float() for language, cloud in embeddings.items()}


def plot_language_planes(
    panels: Mapping[str, Mapping[str, Tensor]], path: str | Path, *, highlighted: Sequence[int] = range(5)
) -> Path | None:
    """Draw two languages in the plane, once per panel, with a few translations joined (CCP, Figure 1).

    Each panel has principal components of its own.

    Args:
        panels: Title -> language -> (n, d): two languages, row-aligned translations.
        path: PNG file, written whole or not at all.
        highlighted: Rows whose two sides are numbered and joined by a line.

    Returns:
        The file, or None where matplotlib is not installed.

    Raises:
        ValueError: If a panel does not hold two languages with as many rows.
    """
    for title, clouds in panels.items():
        if len(clouds) != 2 or len({len(cloud) for cloud in clouds.values()}) != 1:
            shapes = {language: tuple(cloud.shape) for language, cloud in clouds.items()}
            raise ValueError(f"panel {title!r} must hold two row-aligned languages, got {shapes}")
    pyplot = _pyplot()
    if pyplot is None:
        return None
    figure, axes = pyplot.subplots(1, len(panels), figsize=(5.5 * len(panels), 5), squeeze=False)
    for axis, (title, clouds) in zip(axes[0], panels.items(), strict=True):
        plane = principal_plane(clouds)
        for colour, (language, points) in zip(_COLOURS, plane.items(), strict=True):
            axis.scatter(*points.T, s=8, alpha=0.35, color=colour, label=language)
        first, second = plane.values()
        for number, row in enumerate(highlighted, start=1):
            ends = torch.stack([first[row], second[row]])
            axis.plot(*ends.T, color="black", linewidth=0.8, zorder=3)
            for colour, end in zip(_COLOURS, ends, strict=True):
                axis.scatter(*end, s=90, color=colour, edgecolors="black", zorder=4)
                axis.annotate(str(number), end.tolist(), ha="center", va="center", fontsize=7, zorder=5)
        axis.set(title=title, xticks=[], yticks=[])
        axis.legend(fontsize="small", loc="upper right")
    return _save(figure, path)


def plot_stages(
    stages: Mapping[str, Mapping[str, float]], path: str | Path, *, title: str = "bilingual retrieval"
) -> Path | None:
    """Draw accuracies as groups of bars: a group per kind of language, a bar per stage.

    Args:
        stages: Stage -> group, such as "all" -> accuracy in [0, 1]; every stage has the same groups.
        path: PNG file, written whole or not at all.
        title: Of the picture.

    Returns:
        The file, or None where matplotlib is not installed.
    """
    pyplot = _pyplot()
    if pyplot is None:
        return None
    groups = list(next(iter(stages.values())))
    width = 0.8 / len(stages)
    figure, axis = pyplot.subplots(figsize=(7, 4))
    for number, (stage, accuracies) in enumerate(stages.items()):
        places = [group + (number - (len(stages) - 1) / 2) * width for group in range(len(groups))]
        bars = axis.bar(places, [100 * accuracies[group] for group in groups], width * 0.95, label=stage)
        axis.bar_label(bars, fmt="%.1f", fontsize=7)
    axis.set_xticks(range(len(groups)), [group.replace("_", " ") for group in groups])
    axis.set(title=title, ylabel="accuracy (%)")
    axis.legend(fontsize="small")
    return _save(figure, path)


def _pyplot() -> Any:
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as pyplot
    except ImportError:
        return None
    return pyplot


def _save(figure: Any, path: str | Path) -> Path:
    figure.tight_layout()
    temporary = Path(path).with_suffix(".tmp.png")
    figure.savefig(temporary, dpi=120)
    _pyplot().close(figure)
    return temporary.replace(path)
