"""Curves of a training run."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def plot_training(history: list[dict[str, Any]], path: str | Path) -> Path | None:
    """Draw the losses and the evaluations of a run over its steps.

    Args:
        history: ``trainer.state.log_history``.
        path: PNG file.

    Returns:
        The file, or None where matplotlib is not installed (extra ``plots``) or there is nothing to draw.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return None
    losses = sorted({key for line in history for key in line if key.startswith("loss_")})
    scores = sorted({key for line in history for key in line if key.startswith("eval_") and "average" in key})
    panels = [(title, keys) for title, keys in (("training loss", losses), ("evaluation", scores)) if keys]
    if not panels:
        return None
    figure, axes = plt.subplots(1, len(panels), figsize=(6 * len(panels), 4), squeeze=False)
    for axis, (title, keys) in zip(axes[0], panels, strict=True):
        for key in keys:
            points = [(line["step"], line[key]) for line in history if key in line]
            axis.plot(*zip(*points, strict=True), marker=".", label=key.removeprefix("loss_").removeprefix("eval_"))
        axis.set(title=title, xlabel="step")
        axis.legend(fontsize="small")
        axis.grid(alpha=0.3)
    figure.tight_layout()
    temporary = Path(path).with_suffix(".tmp.png")
    try:
        figure.savefig(temporary, dpi=120)
        return temporary.replace(path)
    finally:
        plt.close(figure)
        temporary.unlink(missing_ok=True)
