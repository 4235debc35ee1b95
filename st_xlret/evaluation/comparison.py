"""Several results of one benchmark in a table: one row per system, the mean of its seeds with an interval."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from st_xlret.evaluation.base import BenchmarkResult
from st_xlret.evaluation.tables import markdown_table
from st_xlret.files import check_output_file, write_text


@dataclass(frozen=True)
class ComparedRow:
    """A system: each metric's mean over its seeds, half of the 95 % interval (None for one seed), and the seeds."""

    name: str
    means: dict[str, float]
    intervals: dict[str, float | None]
    seeds: int


def compare(results: Mapping[str, Sequence[BenchmarkResult]]) -> list[ComparedRow]:
    """Average the seeds of each system.

    The interval is that of Student's t at 95 %, for the mean over seeds: it says how much another set of seeds may move
    the mean, not how much another test set would.

    Args:
        results: Name of each system to the results of its seeds. The metrics that all results share are compared.

    Raises:
        ValueError: If nothing is given, or the results differ in benchmark, languages or protocol of measurement.

    Example:
        >>> seeds = [BenchmarkResult("own", {}, {"accuracy": value}) for value in (0.5, 0.6)]
        >>> compare({"ours": seeds})[0].means
        {'accuracy': 0.55}
    """
    every = [(name, result) for name, seeds in results.items() for result in seeds]
    if not every:
        raise ValueError("there are no results to compare.")
    first_name, first = every[0]
    for name, result in every[1:]:
        for what, one, other in (
            ("benchmark", first.benchmark, result.benchmark),
            ("languages", sorted(first.scores), sorted(result.scores)),
            *((entry, first.protocol.get(entry), result.protocol.get(entry)) for entry in ("split", "candidate")),
        ):
            if one != other:
                raise ValueError(f"{name!r} and {first_name!r} differ in their {what}: {other} and {one}.")
    metrics = [metric for metric in first.average if all(metric in result.average for _, result in every)]
    rows = []
    for name, seeds in results.items():
        values = {metric: [result.average[metric] for result in seeds] for metric in metrics}
        means = {metric: round(fmean(found), 12) for metric, found in values.items()}
        intervals = {metric: _half_interval(found) for metric, found in values.items()}
        rows.append(ComparedRow(name, means, intervals, len(seeds)))
    return rows


def _half_interval(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


def read_results(files: Sequence[str]) -> dict[str, list[BenchmarkResult]]:
    """Read results that `st-xlret evaluate` has written: `file.json`, or `NAME=file.json` with a name for the table.

    Files with the same name are the seeds of one system. Without a name, a file is named after itself.

    Raises:
        ValueError: If a file is no such result.
        FileNotFoundError: If it is missing.
    """
    results: dict[str, list[BenchmarkResult]] = {}
    for given in files:
        name, equals, path = given.partition("=")
        file = Path(path if equals else given)
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            fields = {key: content[key] for key in ("benchmark", "scores", "average", "protocol")}
            averages = {metric: float(value) for metric, value in fields["average"].items()}
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"{file} is no result that st-xlret evaluate has written ({reason}).") from error
        results.setdefault(name if equals else file.stem, []).append(BenchmarkResult(**{**fields, "average": averages}))
    return results


def comparison_tables(rows: Sequence[ComparedRow]) -> dict[str, str]:
    """The table as `".md"`, `".csv"` (fractions) and `".tex"`; in percent, with ± half of the interval."""
    from tabulate import tabulate

    metrics = list(rows[0].means)

    def cells(row: ComparedRow) -> list[str]:
        halves = [row.intervals[metric] for metric in metrics]
        intervals = ["" if half is None else f" ± {100 * half:.1f}" for half in halves]
        means = [f"{100 * row.means[metric]:.1f}{half}" for metric, half in zip(metrics, intervals, strict=True)]
        return [row.name, *means, str(row.seeds)]

    header, lines = ["system", *metrics, "seeds"], [cells(row) for row in rows]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["system", "seeds", *(f"{metric}{of}" for metric in metrics for of in ("", "_interval"))])
    for row in rows:
        halves = [(row.means[metric], row.intervals[metric]) for metric in metrics]
        writer.writerow([row.name, row.seeds, *("" if each is None else each for pair in halves for each in pair)])
    alignment = ["left", *("right" for _ in header[1:])]
    latex = tabulate(lines, header, tablefmt="latex", colalign=alignment, disable_numparse=True)
    tex = latex.replace("±", r"$\pm$")
    return {".md": f"{markdown_table(header, lines)}\n", ".csv": text.getvalue(), ".tex": f"{tex}\n"}


def write_comparison(files: Sequence[str], output: str | os.PathLike[str]) -> str:
    """Compare results in files and write the tables beside each other: `output` with `.md`, `.csv` and `.tex`.

    Returns:
        The table in Markdown.
    """
    targets = {ending: Path(output).with_suffix(ending) for ending in (".md", ".csv", ".tex")}
    for target in targets.values():
        check_output_file(target)
    tables = comparison_tables(compare(read_results(files)))
    for ending, target in targets.items():
        write_text(target, tables[ending])
    return tables[".md"]
