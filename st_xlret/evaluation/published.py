"""The published rows of the benchmarks, and tables of a result beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from st_xlret.evaluation.base import BenchmarkResult
from st_xlret.tables import markdown_table, percent

NOT_COMPARABLE = "†"
_NOT_SAID = "not said"


@dataclass(frozen=True)
class PublishedRow:
    """One row of a table in a paper.

    Attributes:
        scores: Language (ISO 639-1) to score; fractions in [0, 1].
        average: Name of an average, such as `"average_14"`, to its value.
        bilingual_data: Whether the system was trained with parallel text; None if the paper does
            not say.
        protocol: What the scores are, in the words of the paper or close to them.
        setting: How the systems were trained for the task, if the paper has several settings.
        measured_as: Entries of the protocol that a comparable result shares, letter by letter;
            `"not said"` if the paper does not say.
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

    @property
    def place(self) -> str:
        """The paper and the table."""
        return f"{self.short_source}, {self.table}"

    @property
    def label(self) -> str:
        """The origin of the row, for a table."""
        details = []
        if self.setting:
            details.append(self.setting)
        split = self.measured_as.get("split")
        if split == _NOT_SAID:
            details.append("split not said")
        elif split:
            details.append(f"{split} split")
        if details:
            return f"published: {self.place} ({'; '.join(details)})"
        return f"published: {self.place}"

    def has_any(self, languages: Sequence[str]) -> bool:
        """Whether the row has one of these languages."""
        return any(code in self.scores for code in languages)

    def differences(self, protocol: Mapping[str, str]) -> dict[str, str]:
        """Name to this row's value of each entry in which the protocol of a result differs."""
        measured = self.measured_as.items()
        return {name: value for name, value in measured if protocol.get(name, value) != value}


def published_rows(benchmark: str, *, metric: str | None = None) -> list[PublishedRow]:
    """The published rows of a benchmark, in the order of the papers' tables.

    By default they are of every metric.
    """
    file = Path(__file__).parent / "published_results.json"
    tables = json.loads(file.read_text(encoding="utf-8"))
    rows = []
    for table in tables.get(benchmark, []):
        table_metric = table.get("metric", "accuracy")
        if metric not in (None, table_metric):
            continue
        origin = {name: value for name, value in table.items() if name not in ("rows", "note")}
        rows += [PublishedRow(**row, **origin) for row in table["rows"]]
    return rows


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

    The published ones are those that have any of its languages. The columns are `languages`
    (default: all of the result), their mean where a row has all of them, with `published_average`
    (such as `"average_112"`) also that of the published rows, and which rows are published figures;
    `NOT_COMPARABLE` marks those that were measured differently.
    """
    shown = list(result.scores if languages is None else languages)
    header = ["system", *shown, "mean"]
    if published_average:
        header.append(f"all {len(result.scores)}")
    header.append("source")

    def table_row(
        system: str, scores: Mapping[str, float], average: float | None, source: str
    ) -> list[str]:
        cells = [system]
        cells += [percent(scores.get(language)) for language in shown]
        cells.append(percent(_mean_of_all(scores, shown)))
        if published_average:
            cells.append(percent(average))
        cells.append(source)
        return cells

    ours = {language: values[metric] for language, values in result.scores.items()}
    source = "measured here"
    if "split" in result.protocol:
        source = f"measured here, {result.protocol['split']} split"
    rows = [table_row(model_name, ours, result.average[metric], source)]
    for row in published:
        average = row.average.get(published_average) if published_average else None
        if average is None and not row.has_any(shown):
            continue
        name = row.system
        if row.differences(result.protocol):
            name = f"{name} {NOT_COMPARABLE}"
        rows.append(table_row(name, row.scores, average, row.label))
    return markdown_table(header, rows)


def _mean_of_all(scores: Mapping[str, float], languages: Sequence[str]) -> float | None:
    """The mean over the languages; None unless there are some and each has a score."""
    values = [scores[language] for language in languages if language in scores]
    if not values or len(values) < len(languages):
        return None
    return sum(values) / len(values)


def published_comparisons(result: BenchmarkResult, model_name: str) -> list[str]:
    """One table per metric that the papers report, and notes on the published rows."""
    from st_xlret.evaluation import BENCHMARKS

    if result.benchmark not in BENCHMARKS:
        return []
    kind = BENCHMARKS[result.benchmark]
    parts = []
    for metric in kind.published_metrics:
        if metric in result.average:
            parts += _comparison_parts(result, model_name, metric, kind.languages_in_all)
    return parts


def _comparison_parts(
    result: BenchmarkResult, model_name: str, metric: str, languages_in_all: int
) -> list[str]:
    """A metric beside published figures, in parts of a page; none without published rows."""
    every = published_rows(result.benchmark, metric=metric)
    shown = [code for code in result.scores if any(code in row.scores for row in every)]
    whole = None
    if len(result.scores) == languages_in_all:
        whole = f"average_{languages_in_all}"
    rows = [row for row in every if whole in row.average or row.has_any(shown)]
    if not rows:
        return []
    table = results_table(
        result,
        model_name=model_name,
        published=rows,
        metric=metric,
        languages=shown,
        published_average=whole,
    )
    title = f"{metric} beside published figures (the papers' own; other training data and sizes):"
    protocols = dict.fromkeys(f"- {row.place}: {row.protocol}" for row in rows)
    parts = [f"{title}\n\n{table}"]
    notes = _difference_notes(result, rows)
    if notes:
        parts.append(notes)
    parts.append("\n".join(["Of the published figures:\n", *protocols]))
    return parts


def _difference_notes(result: BenchmarkResult, published: Sequence[PublishedRow]) -> str:
    """How the marked rows of a table were measured differently; empty if none is marked."""
    # Entry of the protocol -> value -> the tables that have it, in their order.
    places_of: dict[str, dict[str, list[str]]] = {}
    for row in published:
        for name, value in row.differences(result.protocol).items():
            places = places_of.setdefault(name, {}).setdefault(value, [])
            if row.place not in places:
                places.append(row.place)
    if not places_of:
        return ""
    lines = [
        f"{NOT_COMPARABLE} measured differently, or in a way that is not said, and therefore not "
        "comparable:\n"
    ]
    for name, values in places_of.items():
        others = [f"{value} in {' and '.join(places)}" for value, places in values.items()]
        lines.append(f"- {name}: {result.protocol[name]} here; {'; '.join(others)}")
    return "\n".join(lines)
