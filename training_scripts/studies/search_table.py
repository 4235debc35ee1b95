"""The table of the study of search: the mean of the seeds of each row, in percent, and half of their range."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from st_xlret.evaluation import markdown_table

COLUMNS = {
    "raw pool": "pool",
    "raw preference": "preference",
    "raw own": "own",
    "raw Tatoeba": "Tatoeba 13",
    "raw Tatoeba of all": "all",
    "calibrated pool": "lsar: pool",
    "calibrated own": "own",
    "aligned pool": "coral: pool",
    "aligned own": "own",
    "mining": "mining F1",
}
"""Figures in the table, and the heads of their columns."""

Rows = Mapping[str, list[dict[str, Any]]]
"""Row -> the figures of its seeds."""


def figures_of(folder: Path) -> dict[str, Any]:
    """What is known of a model: its scores, its steps, tokens and learning rate."""
    found: dict[str, Any] = {}
    for name in ("measured.json", "held-out.json"):
        if (file := folder / name).is_file():
            found |= json.loads(file.read_text())
    if (file := folder / "results.json").is_file():
        results = json.loads(file.read_text())
        found |= {name: results[name] for name in ("steps", "tokens", "seconds", "command") if name in results}
    return found


def table_of(rows: Rows, rates: Mapping[str, str]) -> str:
    """The study as a Markdown table, with the learning rates of rows that are trained."""
    lines = []
    for row, found in rows.items():
        tokens = sum(entry.get("tokens", 0) for entry in found) // len(found)
        cells = [mean_and_spread([100 * entry[name] for entry in found if name in entry]) for name in COLUMNS]
        lines.append([row, str(len(found)), rates.get(row, ""), f"{tokens:,}" if tokens else "", *cells])
    return markdown_table(["row", "seeds", "rate", "tokens", *COLUMNS.values()], lines)


def means_of(rows: Rows) -> dict[str, dict[str, float]]:
    """Row -> the means of its seeds in percent, of rows that are measured with and without calibration."""
    names = ("raw pool", "raw own", "aligned pool", "aligned own")
    return {
        row: {name: 100 * sum(entry[name] for entry in seeds) / len(seeds) for name in names}
        for row, seeds in rows.items()
        if all(name in entry for entry in seeds for name in names)
    }


def mean_and_spread(values: list[float]) -> str:
    """The mean of some values and half of their range.

    Example:
        >>> mean_and_spread([50.0, 52.0]), mean_and_spread([50.0]), mean_and_spread([])
        ('51.0 ± 1.0', '50.0', '')
    """
    if not values:
        return ""
    mean = f"{sum(values) / len(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {(max(values) - min(values)) / 2:.1f}"
