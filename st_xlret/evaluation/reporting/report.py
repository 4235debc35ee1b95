"""The result of a benchmark as JSON, as a Markdown row, and as text beside published rows."""

from __future__ import annotations

import os
from typing import Any

from st_xlret.evaluation.benchmarks import BENCHMARKS
from st_xlret.evaluation.reporting.published import PublishedRow, published_benchmarks, published_rows
from st_xlret.evaluation.reporting.tables import (
    NOT_COMPARABLE,
    BenchmarkResult,
    markdown_table,
    percent,
    results_table,
    scores_table,
)


def result_as_json(result: BenchmarkResult, model_name: str) -> dict[str, Any]:
    """The content of result files: `{"benchmark", "model", "scores", "average", "protocol"}`, fractions in [0, 1]."""
    return {
        "benchmark": result.benchmark,
        "model": model_name,
        "scores": result.scores,
        "average": result.average,
        "protocol": result.protocol,
    }


def markdown_row(result: BenchmarkResult, model_name: str) -> str:
    """A table of one row: benchmark, model, averages in percent, and over what they are averaged.

    Example:
        >>> result = BenchmarkResult("lareqa", {"fr": {"map_at_20": 0.5}}, {"map_at_20": 0.5}, {"split": "test"})
        >>> print(markdown_row(result, "tiny"))
        | benchmark   | model   |   map_at_20 |   languages |   split |
        |:------------|:--------|------------:|------------:|--------:|
        | lareqa      | tiny    |        50.0 |           1 |    test |
    """
    protocol = {
        name: result.protocol[name] for name in ("split", "direction", "corpus_size") if name in result.protocol
    }
    header = ["benchmark", "model", *result.average, "languages", *protocol]
    row = [result.benchmark, model_name, *map(percent, result.average.values()), str(len(result.scores))]
    return markdown_table(header, [[*row, *protocol.values()]], left=2)


def report(result: BenchmarkResult, model_name: str) -> str:
    """The whole result for a terminal or a Markdown file, beside published figures if there are any.

    A published row that was measured differently, such as on another split, is marked, and the differences are listed
    below the table.

    Args:
        result: The result.
        model_name: Name of the model in the tables.
    """
    protocol = "\n".join(f"- {name}: {value}" for name, value in result.protocol.items())
    short_name = os.path.basename(os.path.normpath(model_name))
    parts = [
        f"{result.benchmark}, {model_name}, in percent",
        markdown_row(result, short_name),
        scores_table(result),
        protocol,
    ]
    if result.benchmark in published_benchmarks():
        parts += _beside_published(result, short_name)
    return "\n\n".join(part for part in parts if part)


def _beside_published(result: BenchmarkResult, model_name: str) -> list[str]:
    """One table per metric that the papers report, and notes on the published rows."""
    known = BENCHMARKS.get(result.benchmark)
    parts = []
    for metric in known.metrics if known else ():
        published = published_rows(result.benchmark, metric=metric)
        shown = [language for language in result.scores if any(language in row.scores for row in published)]
        if not shown or metric not in result.average or known is None:
            continue
        whole = known.published_average if len(result.scores) == known.languages else None
        published = [
            row for row in published if whole in row.average or any(language in row.scores for language in shown)
        ]
        table = results_table(
            result,
            model_name=model_name,
            published=published,
            metric=metric,
            languages=shown,
            published_average=whole,
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
