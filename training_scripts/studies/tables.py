"""The table of a study as Markdown and CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from statistics import fmean
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


def mean_and_interval(values: list[float]) -> tuple[str, str]:
    """The mean of some values and, of several, half of its 95 % confidence interval by Student's t.

    Example:
        >>> mean_and_interval([50.0, 51.0, 52.0]), mean_and_interval([50.0]), mean_and_interval([])
        (('51.0', '2.5'), ('50.0', ''), ('', ''))
    """
    half = half_interval(values)
    return f"{fmean(values):.1f}" if values else "", "" if half is None else f"{half:.1f}"


def write_table(study: Mapping[str, Any], rows: Mapping[str, Measured], output: Path) -> str:
    """Write `study.md`, with ± half of the 95 % interval, and `study.csv`, where it has a column; returns the former.

    Args:
        study: Content of the YAML file: `columns` are shown in percent, `counts` as whole numbers.
        rows: Row -> what is measured of it. Rows of which nothing is are named on standard error.
        output: Folder of the files.
    """
    if unfinished := [row for row, measured in rows.items() if not measured.folders]:
        print(f"not in the table, because they are not finished: {'; '.join(unfinished)}", file=sys.stderr)
    counts, columns = study.get("counts", {}), study["columns"]
    lines, cells = [], []
    for row, (folders, rate, rate_of) in ((row, measured) for row, measured in rows.items() if measured.folders):
        figures = [[figure(folder, path) for folder in folders] for path in (*counts.values(), *columns.values())]
        known = [[value for value in values if value is not None] for values in figures]
        whole = [f"{sum(values) / len(values):.0f}" if values else "" for values in known[: len(counts)]]
        percent = [[100 * value for value in values] for values in known[len(counts) :]]
        shown = "" if rate is None else f"{rate:g}" + (f" of {rate_of}" if rate_of else "")
        first, means = [row, str(len(folders)), shown, *whole], [mean_and_interval(values) for values in percent]
        lines.append([*first, *(" ± ".join(filter(None, both)) for both in means)])
        cells.append([*first, *(mean for mean, _ in means), *(half for _, half in means)])
    header = ["row", "seeds", "learning rate", *counts, *columns]
    table, text = markdown_table(header, lines), StringIO()
    csv.writer(text, lineterminator="\n").writerows([[*header, *(f"{column} ± (95 %)" for column in columns)], *cells])
    write_text(output / "study.md", table + "\n")
    write_text(output / "study.csv", text.getvalue())
    return table
