"""Tables of results: one beside published ones with their sources, and several systems with the means of seeds."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from st_xlret.evaluation.base import BenchmarkResult
from st_xlret.evaluation.benchmarks import BENCHMARKS
from st_xlret.files import check_output_file, write_text

NOT_COMPARABLE = "†"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Render a Markdown table, without a line break at its end.

    Args:
        header: Names of the columns.
        rows: One sequence of cells per row. Characters that would break the table are escaped.
        left: How many columns are aligned to the left. The others, which hold figures, are aligned to the right.

    Raises:
        ValueError: If a row has another number of cells than the header.
    """
    from tabulate import tabulate

    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"the header has {len(header)} cells and this row {len(row)}: {list(row)}.")
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (header, *rows)]
    alignment = ["left" if column < left else "right" for column in range(len(header))]
    return tabulate(cells[1:], cells[0], tablefmt="pipe", colalign=alignment if rows else None, disable_numparse=True)


def percent(value: float | None) -> str:
    """A fraction as a percentage with one decimal, `-` for None."""
    return "-" if value is None else f"{100 * value:.1f}"


def scores_table(result: BenchmarkResult) -> str:
    """A table with one row per language and one column per metric, in percent; the average is the last row."""
    header = ["language", *result.average]
    rows = [[language, *map(percent, values.values())] for language, values in result.scores.items()]
    return markdown_table(header, [*rows, ["average", *map(percent, result.average.values())]])


@dataclass(frozen=True)
class PublishedRow:
    """One row of a table in a paper.

    Attributes:
        system: The name of the system, as the paper writes it.
        scores: Language (ISO 639-1) to score; fractions in [0, 1]. Only what the paper reports.
        average: Name of an average, such as `"average_14"`, to its value as printed in the paper.
        bilingual_data: Whether the system was trained with parallel text; None if the paper does not say.
        source: The paper.
        table: Which table, such as `"Table 1"`.
        protocol: What the scores are, in the words of the paper or close to them.
        short_source: The paper in a few words, for tables.
        metric: The metric, by its name in the results of this library.
        setting: How the systems were trained for the task, if the paper has several settings.
        measured_as: Entries of the protocol that a result must share to be comparable, in the words of this library's
            results, such as `{"split": "test"}`; `"not said"` if the paper does not say.
        ablation: Whether the row is of an ablation, which is of interest beside a study rather than beside a result.
    """

    system: str
    scores: dict[str, float]
    average: dict[str, float]
    bilingual_data: bool | None
    source: str
    table: str
    protocol: str
    short_source: str
    metric: str = "accuracy"
    setting: str = ""
    measured_as: Mapping[str, str] = field(default_factory=dict)
    ablation: bool = False

    @property
    def label(self) -> str:
        """The origin of the row, for a table: a published figure, not a measurement of this library."""
        split = self.measured_as.get("split")
        details = [self.setting, "split not said" if split == "not said" else split and f"{split} split"]
        shown = "; ".join(detail for detail in details if detail)
        return f"published: {self.short_source}, {self.table}{f' ({shown})' if shown else ''}"

    def differences(self, protocol: Mapping[str, str]) -> dict[str, str]:
        """Name to this row's value of each entry in which the protocol of a result differs."""
        return {name: value for name, value in self.measured_as.items() if protocol.get(name, value) != value}


def published_rows(benchmark: str, *, metric: str | None = None, ablations: bool = False) -> list[PublishedRow]:
    """The published rows of one benchmark, in the order of the papers' tables.

    Args:
        benchmark: Such as `"tatoeba"`.
        metric: Only rows of one metric, such as `"mrr_at_100"`. Default: all.
        ablations: Include the rows of ablations.

    Raises:
        ValueError: If there are none for this benchmark.
    """
    if benchmark not in _published():
        raise ValueError(f"no published rows for {benchmark!r}; there are some for {sorted(_published())}.")
    rows = [
        PublishedRow(
            system=row["system"],
            scores={language: _fraction(value, table) for language, value in row.get("scores", {}).items()},
            average={name: _fraction(value, table) for name, value in row.get("average", {}).items()},
            bilingual_data=row["bilingual_data"],
            **{name: value for name, value in table.items() if name not in ("rows", "unit", "note")},
        )
        for table in _published()[benchmark]
        for row in table["rows"]
        if ablations or not table.get("ablation", False)
    ]
    return [row for row in rows if metric is None or row.metric == metric]


@cache
def _published() -> dict[str, Any]:
    file = resources.files("st_xlret.evaluation") / "published_results.json"
    return json.loads(file.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def _fraction(value: float, table: dict[str, Any]) -> float:
    return value if table.get("unit") == "fraction" else round(value / 100, 6)


def results_table(
    result: BenchmarkResult,
    *,
    model_name: str,
    published: Sequence[PublishedRow] = (),
    metric: str = "accuracy",
    languages: Sequence[str] | None = None,
    published_average: str | None = None,
) -> str:
    """A table of a result beside published ones, one row per system, in percent.

    The columns are languages and their mean, which a published row has if the paper has all of these languages. The
    last column says which rows are published figures. `NOT_COMPARABLE` marks the rows that were measured differently.

    Args:
        result: The result.
        model_name: Name of its row.
        published: Rows to show below it, if they have any of the languages or the published average.
        metric: The metric that is compared.
        languages: The columns. Default: all languages of the result.
        published_average: An average of the published rows over the languages of the result, such as `"average_112"`
            for all of Tatoeba. A further column then compares the averages.

    Raises:
        ValueError: If a language was not evaluated.
    """
    shown = list(result.scores if languages is None else languages)
    missing = [language for language in shown if language not in result.scores]
    if missing:
        raise ValueError(f"{missing} were not evaluated; there are results for {list(result.scores)}.")

    def row(system: str, scores: Mapping[str, float], average: float | None, source: str) -> list[str]:
        known = [scores[language] for language in shown if language in scores]
        mean = sum(known) / len(known) if known and len(known) == len(shown) else None
        cells = [system, *(percent(scores.get(language)) for language in shown), percent(mean)]
        return [*cells, *([percent(average)] if published_average else []), source]

    ours = {language: values[metric] for language, values in result.scores.items()}
    split = f", {result.protocol['split']} split" if "split" in result.protocol else ""
    rows = [row(model_name, ours, result.average[metric], f"measured here{split}")]
    for system in published:
        average = system.average.get(published_average) if published_average else None
        if average is not None or any(language in system.scores for language in shown):
            mark = f" {NOT_COMPARABLE}" if system.differences(result.protocol) else ""
            rows.append(row(system.system + mark, system.scores, average, system.label))
    extra = [f"all {len(result.scores)}"] if published_average else []
    return markdown_table(["system", *shown, "mean", *extra, "source"], rows)


def markdown_row(result: BenchmarkResult, model_name: str) -> str:
    """A table of one row: benchmark, model, averages in percent, and over what they are averaged."""
    protocol = {
        name: result.protocol[name] for name in ("split", "direction", "corpus_size") if name in result.protocol
    }
    header = ["benchmark", "model", *result.average, "languages", *protocol]
    row = [result.benchmark, model_name, *map(percent, result.average.values()), str(len(result.scores))]
    return markdown_table(header, [[*row, *protocol.values()]], left=2)


def report(result: BenchmarkResult, model_name: str) -> str:
    """The whole result for a terminal or a Markdown file, beside published figures if there are any."""
    protocol = "\n".join(f"- {name}: {value}" for name, value in result.protocol.items())
    short_name = os.path.basename(os.path.normpath(model_name))
    parts = [
        f"{result.benchmark}, {model_name}, in percent",
        markdown_row(result, short_name),
        scores_table(result),
        protocol,
    ]
    if result.benchmark in BENCHMARKS and result.benchmark in _published():
        parts += _beside_published(result, short_name)
    return "\n\n".join(part for part in parts if part)


def _beside_published(result: BenchmarkResult, model_name: str) -> list[str]:
    """One table per metric that the papers report, and notes on the published rows."""
    known = BENCHMARKS[result.benchmark]
    parts = []
    for metric in known.published_metrics:
        published = published_rows(result.benchmark, metric=metric)
        shown = [language for language in result.scores if any(language in row.scores for row in published)]
        count = known.languages_in_all
        whole = f"average_{count}" if len(result.scores) == count else None
        published = [
            row for row in published if whole in row.average or any(language in row.scores for language in shown)
        ]
        if not published or metric not in result.average:
            continue
        table = results_table(
            result, model_name=model_name, published=published, metric=metric, languages=shown, published_average=whole
        )
        parts.append(f"{metric} beside published figures (the papers' own; other training data and sizes):\n\n{table}")
        parts.append(_differences(result, published))
        protocols = dict.fromkeys(f"- {_table_of(row)}: {row.protocol}" for row in published)
        parts.append("\n".join(["Of the published figures:\n", *protocols]))
    return parts


def _table_of(row: PublishedRow) -> str:
    return f"{row.short_source}, {row.table}"


def _differences(result: BenchmarkResult, published: list[PublishedRow]) -> str:
    """How the marked rows of a table were measured differently; an empty string if none is marked."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for row in published:
        for name, value in row.differences(result.protocol).items():
            found.setdefault(name, {}).setdefault(value, {})[_table_of(row)] = None
    lines = [
        f"- {name}: {result.protocol[name]} here; "
        + "; ".join(f"{value} in {' and '.join(tables)}" for value, tables in values.items())
        for name, values in found.items()
    ]
    title = f"{NOT_COMPARABLE} measured differently, or in a way that is not said, and therefore not comparable:\n"
    return "\n".join([title, *lines]) if lines else ""


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
        intervals = {metric: half_interval(found) for metric, found in values.items()}
        rows.append(ComparedRow(name, means, intervals, len(seeds)))
    return rows


def half_interval(values: Sequence[float]) -> float | None:
    """Half of the 95 % confidence interval of the mean, by Student's t; None for a single value."""
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
