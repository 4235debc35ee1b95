"""The table of a study as Markdown and CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from st_xlret.evaluation import markdown_table
from st_xlret.evaluation.tables import half_interval
from st_xlret.files import write_text


class Measured(NamedTuple):
    """What is measured of a row: the folders of its seeds, its learning rate, and whose rate it is."""

    folders: list[Path]
    rate: float | None
    rate_of: str | None


def figure(folder: Path, path: str) -> float | None:
    """A figure of a run, None if it is not there.

    Args:
        folder: Folder of the run.
        path: File and keys, such as `results.json/scores/de,fr/accuracy`; several keys stand for the mean of theirs.
    """
    name, *keys = path.split("/")

    def read(value: Any, keys: list[str]) -> float | None:
        if not keys or value is None:
            return value
        values = [read(value.get(key), keys[1:]) for key in keys[0].split(",")]
        known = [each for each in values if each is not None]
        return sum(known) / len(known) if len(known) == len(values) else None

    return read(json.loads((folder / name).read_text(encoding="utf-8")), keys) if (folder / name).is_file() else None


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


def interval(values: list[float]) -> str:
    """The 95 % confidence interval of their mean, by Student's t; nothing for a single value.

    Example:
        >>> interval([50.0, 51.0, 52.0]), interval([50.0])
        ('48.5 to 53.5', '')
    """
    half = half_interval(values)
    mean = sum(values) / max(1, len(values))
    return "" if half is None else f"{mean - half:.1f} to {mean + half:.1f}"


def write_table(study: Mapping[str, Any], rows: Mapping[str, Measured], output: Path) -> str:
    """Write `study.md` and `study.csv`, which has the confidence intervals too; returns the former.

    Args:
        study: Content of the YAML file: `columns` are shown in percent, `counts` as whole numbers.
        rows: Row -> what is measured of it. Rows of which nothing is are named on standard error.
        output: Folder of the files.
    """
    if unfinished := [row for row, measured in rows.items() if not measured.folders]:
        print(f"not in the table, because they are not finished: {'; '.join(unfinished)}", file=sys.stderr)
    counts, columns = study.get("counts", {}), study["columns"]
    lines, intervals = [], []
    for row, (folders, rate, rate_of) in ((row, measured) for row, measured in rows.items() if measured.folders):
        figures = [[figure(folder, path) for folder in folders] for path in (*counts.values(), *columns.values())]
        known = [[value for value in values if value is not None] for values in figures]
        whole = [f"{sum(values) / len(values):.0f}" if values else "" for values in known[: len(counts)]]
        percent = [[100 * value for value in values] for values in known[len(counts) :]]
        shown = "" if rate is None else f"{rate:g}" + (f" of {rate_of}" if rate_of else "")
        lines.append([row, str(len(folders)), shown, *whole, *map(mean_and_spread, percent)])
        intervals.append(list(map(interval, percent)))
    header = ["row", "seeds", "learning rate", *counts, *columns]
    table, text = markdown_table(header, lines), StringIO()
    together = zip([header, *lines], [[f"{column}, 95 %" for column in columns], *intervals], strict=True)
    csv.writer(text, lineterminator="\n").writerows(line + more for line, more in together)
    write_text(output / "study.md", table + "\n")
    write_text(output / "study.csv", text.getvalue())
    return table
