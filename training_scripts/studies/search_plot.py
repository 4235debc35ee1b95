"""The study of search as a picture: what a row gains in the pool of all languages, and what it keeps within one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from st_xlret.files import atomic_file

logger = logging.getLogger("study_search")

_KINDS = {"raw": "as it is", "aligned": "calibrated (shift, coral)"}


def plot_rows(rows: Mapping[str, Mapping[str, float]], path: Path) -> Path | None:
    """Draw a number for each row, without calibration and with it, joined by a line; the numbers are explained beside.

    Rows that keep less than 60 % of the best row's score within a language have collapsed, and would leave the others
    no room: they are named and not drawn.

    Args:
        rows: Row -> "raw pool", "raw own", "aligned pool" and "aligned own", in percent.
        path: PNG file.

    Returns:
        The file, or None where matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        logger.warning("no plot in %s, because matplotlib is not installed: pip install 'st-xlret[plots]'", path)
        return None
    # As high as the names beside it, a line of which takes a sixth of an inch.
    figure = Figure(figsize=(11, max(6.5, len(rows) / 6)), layout="constrained")
    axis = figure.subplots()
    enough = 0.6 * max((scores["raw own"] for scores in rows.values()), default=0.0)
    names = []
    for number, (row, scores) in enumerate(rows.items(), start=1):
        drawn = scores["raw own"] >= enough
        names.append(f"{number}  {row}" + ("" if drawn else " (collapsed, not drawn)"))
        if not drawn:
            continue
        points = [(scores[f"{kind} own"], scores[f"{kind} pool"]) for kind in _KINDS]
        axis.plot(*zip(*points, strict=True), color="lightgrey", zorder=1)
        for (own, pool), colour in zip(points, ("tab:blue", "tab:orange"), strict=True):
            axis.scatter(own, pool, s=140, color=colour, zorder=2)
            axis.annotate(str(number), (own, pool), ha="center", va="center", color="white", fontsize=8, zorder=3)
    for colour, label in zip(("tab:blue", "tab:orange"), _KINDS.values(), strict=True):
        axis.scatter([], [], color=colour, label=label)
    axis.set(xlabel="mAP@20 among sentences of the question's language", ylabel="mAP@20 in one pool of all languages")
    axis.grid(alpha=0.3)
    axis.legend(loc="upper left")
    figure.text(1.01, 0.98, "\n".join(names), va="top", fontsize=8, linespacing=1.5)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110, bbox_inches="tight")
    return path
