"""The result of a benchmark, and Markdown tables of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from st_xlret.evaluation.reporting.published import PublishedRow

NOT_COMPARABLE = "†"


@dataclass(frozen=True)
class BenchmarkResult:
    """The scores of a model on a benchmark, with the protocol by which they were measured.

    Attributes:
        benchmark: The benchmark's name, such as `"tatoeba"`.
        scores: Language to metric to value; fractions in [0, 1].
        average: Metric to its mean over the languages.
        protocol: What a reader must know for a comparison: direction, pooling, calibration, number of sentences.
    """

    benchmark: str
    scores: dict[str, dict[str, float]]
    average: dict[str, float]
    protocol: dict[str, str] = field(default_factory=dict)


def macro_average(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Average every metric that all languages have over the languages.

    Example:
        >>> macro_average({"fr": {"accuracy": 1.0}, "de": {"accuracy": 0.5}})
        {'accuracy': 0.75}
    """
    first = next(iter(scores.values()), {})
    metrics = [metric for metric in first if all(metric in values for values in scores.values())]
    return {metric: sum(values[metric] for values in scores.values()) / len(scores) for metric in metrics}


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Render a Markdown table.

    Args:
        header: Names of the columns.
        rows: One sequence of cells per row. Characters that would break the table are escaped.
        left: How many columns are aligned to the left. The others, which hold figures, are aligned to the right.

    Returns:
        The table, without a line break at its end.

    Raises:
        ValueError: If a row has another number of cells than the header.

    Example:
        >>> print(markdown_table(["model", "fr"], [["ours", "91.5"], ["theirs", "9.0"]]))
        | model   |   fr |
        |:--------|-----:|
        | ours    | 91.5 |
        | theirs  |  9.0 |
    """
    from tabulate import tabulate

    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"the header has {len(header)} cells and this row {len(row)}: {list(row)}.")
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (header, *rows)]
    alignment = ["left" if column < left else "right" for column in range(len(header))]
    return tabulate(cells[1:], cells[0], tablefmt="pipe", colalign=alignment if rows else None, disable_numparse=True)


def percent(value: float | None) -> str:
    """A fraction as a percentage with one decimal, `-` for None.

    Example:
        >>> percent(0.8768), percent(None)
        ('87.7', '-')
    """
    return "-" if value is None else f"{100 * value:.1f}"


def scores_table(result: BenchmarkResult) -> str:
    """A table with one row per language and one column per metric, in percent; the average is the last row."""
    header = ["language", *result.average]
    rows = [[language, *map(percent, values.values())] for language, values in result.scores.items()]
    return markdown_table(header, [*rows, ["average", *map(percent, result.average.values())]])


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

    The columns are languages and their mean. A published row has a mean if the paper has all of these languages. The
    last column says which rows are published figures and which were measured here, and on which split.
    `NOT_COMPARABLE` marks the rows that were measured differently from the result.

    Args:
        result: The result.
        model_name: Name of its row.
        published: Rows to show below it. Rows without any of the languages are left out, unless they have the
            published average.
        metric: The metric that is compared.
        languages: The columns. Default: all languages of the result.
        published_average: An average of the published rows over the languages of the result, such as `"average_112"`
            for all of Tatoeba. A further column then compares the averages.

    Returns:
        A Markdown table.

    Raises:
        ValueError: If a language was not evaluated.

    Example:
        >>> result = BenchmarkResult("tatoeba", {"fr": {"accuracy": 0.5}}, {"accuracy": 0.5})
        >>> print(results_table(result, model_name="tiny"))
        | system   |   fr |   mean |        source |
        |:---------|-----:|-------:|--------------:|
        | tiny     | 50.0 |   50.0 | measured here |
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
