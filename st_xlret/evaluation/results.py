"""Tables of results: one beside published ones, and several systems with their seeds."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, TypeAlias

from st_xlret.evaluation.base import COMPARED, BenchmarkResult, name_file_in_errors
from st_xlret.evaluation.published import published_comparisons
from st_xlret.files import PathLike, atomic_file, file_beside
from st_xlret.tables import MISSING, markdown_table, percent, records_table

_COMMAND = "evaluate --compare"  # which alone replaces what it wrote


def result_text(result: BenchmarkResult, model_name: str) -> str:
    """The whole result for a terminal or a Markdown file, beside published figures if any."""
    short_name = os.path.basename(os.path.normpath(model_name))
    parts = [
        f"{result.benchmark}, {model_name}, in percent",
        _table_of_languages(result),
        _table_of_averages(result),
        "\n".join(f"- {name}: {value}" for name, value in result.protocol.items()),
        *published_comparisons(result, short_name),
    ]
    return "\n\n".join(part for part in parts if part)


def _table_of_languages(result: BenchmarkResult) -> str:
    """All metrics by language, the average last."""
    records = []
    for name, values in [*result.scores.items(), ("average", result.average)]:
        record = {"language": name}
        for metric, value in values.items():
            record[metric] = percent(value)
        records.append(record)
    return records_table(records)


def _table_of_averages(result: BenchmarkResult) -> str:
    """A metric a line, which fits a terminal however many they are."""
    rows = [[metric, percent(value)] for metric, value in result.average.items()]
    return markdown_table(["metric", "average"], rows)


class _SeedMean(NamedTuple):
    """A mean over seeds, and half of its 95 % interval, which is None for one seed."""

    mean: float
    half_interval: float | None

    def __str__(self) -> str:
        if self.half_interval is None:
            return percent(self.mean)
        return f"{percent(self.mean)} ± {percent(self.half_interval)}"


_Runs: TypeAlias = Mapping[str, Sequence[BenchmarkResult]]
"""System to its results, one a seed."""
_Means: TypeAlias = dict[str, dict[str, _SeedMean]]
"""System to metric to its mean."""


def _seed_means(runs: _Runs) -> _Means:
    """System to metric to its mean over the seeds (results) and half of the 95 % interval.

    The interval is that of Student's t: how much another set of seeds may move the mean. The
    metrics of a system are those that all its seeds share; a ValueError says where the results
    differ in benchmark, languages or protocol of measurement.
    """
    every = [result for seeds in runs.values() for result in seeds]
    first = _what_was_measured(every[0])
    for result in every:
        other = _what_was_measured(result)
        if other != first:
            raise ValueError(
                f"the results differ in benchmark, languages or protocol: {first} and {other}"
            )
    return {name: _means_of_system(seeds) for name, seeds in runs.items()}


def _means_of_system(seeds: Sequence[BenchmarkResult]) -> dict[str, _SeedMean]:
    """The mean and the half interval of each metric that all seeds have."""
    means = {}
    for metric in seeds[0].average:
        values = [result.average[metric] for result in seeds if metric in result.average]
        if len(values) < len(seeds):
            continue
        mean = round(fmean(values), 12)
        means[metric] = _SeedMean(mean, half_interval(values))
    return means


def _what_was_measured(result: BenchmarkResult) -> tuple[str | None, ...]:
    """What results that are compared have in common: benchmark, languages, and `COMPARED`."""
    entries = [result.protocol.get(name) for name in COMPARED]
    return (result.benchmark, *sorted(result.scores), *entries)


def half_interval(values: Sequence[float]) -> float | None:
    """Half of the 95 % confidence interval of the mean, by Student's t; None for one value."""
    if len(values) < 2:
        return None
    from scipy.stats import t

    quantile = float(t.ppf(0.975, len(values) - 1))
    return quantile * stdev(values) / math.sqrt(len(values))


def _name_and_file(word: str) -> tuple[str, Path]:
    """The parts of `NAME=file.json`, or `file.json`, which is named after itself."""
    name, equals, path = word.partition("=")
    file = Path(path if equals else word)
    return (name if equals else file.stem), file


def _read_results(files: Sequence[str]) -> dict[str, list[BenchmarkResult]]:
    """Results of `st-xlret evaluate` by system.

    The files are `NAME=file.json` for each seed, or `file.json`, which is named after itself. A
    `ValueError` refuses a file that is given twice.
    """
    named = [_name_and_file(word) for word in files]
    distinct = {(name, file.resolve()) for name, file in named}
    if len(distinct) < len(named):
        raise ValueError(
            f"a result is given twice, and would count as two seeds: {' '.join(files)}"
        )
    results: dict[str, list[BenchmarkResult]] = {}
    for name, file in named:
        results.setdefault(name, []).append(_read_result(file))
    return results


def _read_result(file: Path) -> BenchmarkResult:
    """The result in a file of `evaluate`; a `DataError` names a file that is none."""
    with name_file_in_errors(file):
        content = json.loads(file.read_text(encoding="utf-8"))
        benchmark = content["benchmark"]
        scores = content["scores"]
        average = {metric: float(value) for metric, value in content["average"].items()}
        return BenchmarkResult(benchmark, scores, average, content["protocol"])


def write_comparison(files: Sequence[str], output: PathLike) -> str:
    """Compare results in files, write tables with ± half of the interval, and return the first.

    They are `output`, which ends in `.md`, in percent, and beside it `.csv`, in fractions.
    """
    in_fractions = file_beside(output, ".csv", own=".md")
    with ExitStack() as outputs:
        markdown_part = outputs.enter_context(atomic_file(output, ours=_COMMAND))
        csv_part = outputs.enter_context(atomic_file(in_fractions, ours=_COMMAND))
        results = _read_results(files)
        means = _seed_means(results)
        with open(csv_part, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows(_rows_in_fractions(results, means))
        markdown = f"{_comparison_table(results, means)}\n"
        markdown_part.write_text(markdown, encoding="utf-8")
    return markdown


def _metrics_of_any(means: _Means) -> list[str]:
    """The metrics that any system has."""
    metrics = {}
    for of_system in means.values():
        metrics.update(dict.fromkeys(of_system))
    return list(metrics)


def _comparison_table(results: _Runs, means: _Means) -> str:
    """The comparison in percent, a row for each system."""
    metrics = _metrics_of_any(means)
    rows = []
    for name, seeds in results.items():
        row = [name]
        for metric in metrics:
            row.append(str(means[name].get(metric, MISSING)))
        row.append(str(len(seeds)))
        rows.append(row)
    return markdown_table(["system", *metrics, "seeds"], rows)


def _rows_in_fractions(results: _Runs, means: _Means) -> list[list[Any]]:
    """The comparison for a CSV file, header first; None where a system lacks a metric."""
    metrics = _metrics_of_any(means)
    header: list[Any] = ["system", "seeds"]
    for metric in metrics:
        header += [metric, f"{metric}_interval"]
    rows = [header]
    for name, seeds in results.items():
        row: list[Any] = [name, len(seeds)]
        for metric in metrics:
            row += means[name].get(metric, (None, None))
        rows.append(row)
    return rows
