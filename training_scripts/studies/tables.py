"""The table of a study as Markdown and CSV, and a figure with some of its rows.

    python -m training_scripts.studies.tables --table docs/studies.csv --study training_scripts/studies/search.yaml \\
        --output docs/assets/study-search.png
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from st_xlret.evaluation import markdown_table
from st_xlret.evaluation.tables import half_interval
from st_xlret.files import atomic_file, write_text
from st_xlret.options import parse


class Found(NamedTuple):
    """What is there of a row: the folders of its seeds, its learning rate, and whose rate it is."""

    folders: list[Path]
    rate: float | None
    rate_of: str | None


def figure(folder: Path, path: str) -> float | None:
    """A figure of a run, None if it is not there.

    Args:
        folder: Folder of the run.
        path: File and keys, such as `results.json/scores/de,fr/accuracy`; several keys stand for the mean of theirs, a
            list for the mean of its last tenth.
    """
    name, *keys = path.split("/")
    if not (folder / name).is_file():
        return None

    def read(value: Any, keys: list[str]) -> float | None:
        if isinstance(value, list):
            last = value[-max(1, len(value) // 10) :]
            return sum(last) / len(last) if last else None
        if not keys or value is None:
            return value
        found = [read(value.get(key), keys[1:]) for key in keys[0].split(",")]
        known = [each for each in found if each is not None]
        return sum(known) / len(known) if len(known) == len(found) else None

    return read(json.loads((folder / name).read_text(encoding="utf-8")), keys)


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

    That of two values is very wide, and may leave what is possible.

    Example:
        >>> interval([50.0, 51.0, 52.0]), interval([50.0])
        ('48.5 to 53.5', '')
    """
    half = half_interval(values)
    mean = sum(values) / max(1, len(values))
    return "" if half is None else f"{mean - half:.1f} to {mean + half:.1f}"


def write_table(study: Mapping[str, Any], rows: Mapping[str, Found], output: Path) -> str:
    """Write `study.md` and `study.csv`, which has the confidence intervals too; returns the former.

    Args:
        study: Content of the YAML file: `columns` are shown in percent, `counts` as whole numbers.
        rows: Row -> what is there of it. Rows of which nothing is measured are named on standard error.
        output: Folder of the files.
    """
    if unfinished := [row for row, found in rows.items() if not found.folders]:
        print(f"not in the table, because they are not finished: {'; '.join(unfinished)}", file=sys.stderr)
    counts, columns = study.get("counts", {}), study["columns"]
    lines, intervals = [], []
    for row, found in rows.items():
        if not found.folders:
            continue

        def known(path: str, folders: list[Path] = found.folders) -> list[float]:
            return [value for folder in folders if (value := figure(folder, path)) is not None]

        rate = "" if found.rate is None else f"{found.rate:g}" + (f" of {found.rate_of}" if found.rate_of else "")
        whole = [f"{sum(values) / len(values):.0f}" if (values := known(path)) else "" for path in counts.values()]
        percent = [[100 * value for value in known(path)] for path in columns.values()]
        lines.append([row, str(len(found.folders)), rate, *whole, *map(mean_and_spread, percent)])
        intervals.append(list(map(interval, percent)))
    header = ["row", "seeds", "learning rate", *counts, *columns]
    table, text = markdown_table(header, lines), StringIO()
    of_intervals = [f"{column}, 95 %" for column in columns]
    together = [line + more for line, more in zip([header, *lines], [of_intervals, *intervals], strict=True)]
    csv.writer(text, lineterminator="\n").writerows(together)
    write_text(output / "study.md", table + "\n")
    write_text(output / "study.csv", text.getvalue())
    return table


def plot(table: Path, figure: Mapping[str, Any], path: Path) -> None:
    """Draw some rows of a table, as trained and calibrated.

    Args:
        table: CSV file of a table.
        figure: `x` and `y`, two columns each; `rows`: row -> side of its label (right, left or below).
        path: PNG file.
    """
    from matplotlib.figure import Figure

    with open(table, encoding="utf-8", newline="") as file:
        lines = {line["row"]: line for line in reversed(list(csv.DictReader(file)))}  # the first of each name
    sides = {"right": (9, -4, "left"), "left": (-9, -4, "right"), "below": (0, -17, "center")}
    drawing = Figure(figsize=(8.5, 5), layout="constrained")
    axis = drawing.subplots()
    for row, side in figure["rows"].items():
        xs, ys = ([float(lines[row][column].split()[0]) for column in figure[name]] for name in "xy")
        axis.plot(xs, ys, color="lightgrey", zorder=1)
        axis.scatter(xs, ys, s=50, color=["tab:blue", "tab:orange"], zorder=2)
        *offset, align = sides[side]
        axis.annotate(row, (xs[0], ys[0]), (offset[0], offset[1]), textcoords="offset points", ha=align, fontsize=10)
    for label, colour in (("as trained", "tab:blue"), ("calibrated", "tab:orange")):
        axis.scatter([], [], color=colour, label=label)
    axis.set(xlabel="mAP@20 within the question's language", ylabel="mAP@20 in one pool of all languages")
    axis.margins(x=0.25, y=0.1)
    left, right = axis.get_xlim()
    axis.set_xlim(left, right + 0.25 * (right - left))  # room for labels on the right
    axis.legend(loc="lower left")
    axis.grid(alpha=0.3)
    with atomic_file(path) as temporary:
        drawing.savefig(temporary, format="png", dpi=110)


@dataclass
class Arguments:
    """What to draw."""

    table: str = field(metadata={"help": "CSV file of a table."})
    study: str = field(metadata={"help": "YAML file with `figure`."})
    output: str = field(metadata={"help": "PNG file."})


if __name__ == "__main__":
    (given,) = parse([Arguments], description=__doc__)
    plot(Path(given.table), yaml.safe_load(Path(given.study).read_text(encoding="utf-8"))["figure"], Path(given.output))
