"""Tables and plots of results: one beside published ones with their sources, several systems with their seeds."""

import csv
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from st_xlret.evaluation.base import BenchmarkEvaluator, BenchmarkResult, name_file_in_errors
from st_xlret.files import atomic_file
from st_xlret.plots import new_figure, save_figure
from st_xlret.tables import markdown_table, percent

NOT_COMPARABLE = "†"
_COMPARED = (
    "split",
    "candidate",
    "corpus_size",
    "sentences",
    "sentences_per_language",
    "threshold",
)


@dataclass(frozen=True)
class PublishedRow:
    """One row of a table in a paper.

    Attributes:
        scores: Language (ISO 639-1) to score; fractions in [0, 1].
        average: Name of an average, such as `"average_14"`, to its value.
        bilingual_data: Whether the system was trained with parallel text; None if the paper does not say.
        protocol: What the scores are, in the words of the paper or close to them.
        setting: How the systems were trained for the task, if the paper has several settings.
        measured_as: Entries of the protocol that a comparable result shares; `"not said"` if the paper does not say.
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
        """The origin of the row, for a table."""
        split = self.measured_as.get("split")
        details = [
            self.setting,
            "split not said" if split == "not said" else split and f"{split} split",
        ]
        shown = "; ".join(detail for detail in details if detail)
        return f"published: {self.short_source}, {self.table}{f' ({shown})' if shown else ''}"

    def differences(self, protocol: Mapping[str, str]) -> dict[str, str]:
        """Name to this row's value of each entry in which the protocol of a result differs."""
        return {
            name: value
            for name, value in self.measured_as.items()
            if protocol.get(name, value) != value
        }


def published_rows(
    benchmark: str, *, metric: str | None = None, ablations: bool = False
) -> list[PublishedRow]:
    """The published rows of a benchmark, by default of every metric, in the order of the papers' tables."""
    rows: list[PublishedRow] = []
    content = (Path(__file__).parent / "published_results.json").read_text(encoding="utf-8")
    for table in json.loads(content).get(benchmark, []):
        origin = {name: value for name, value in table.items() if name not in ("rows", "note")}
        if (ablations or not table.get("ablation")) and metric in (
            None,
            table.get("metric", "accuracy"),
        ):
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
    """A table of a result beside published ones that have any of its languages, one row per system, in percent.

    The columns are `languages` (default: all of the result), their mean where a row has all of them, with
    `published_average` (such as `"average_112"`) also that of the published rows, and which rows are published figures;
    `NOT_COMPARABLE` marks those that were measured differently.
    """
    shown = list(result.scores if languages is None else languages)

    def table_row(
        system: str, scores: Mapping[str, float], average: float | None, source: str
    ) -> list[str]:
        is_whole = bool(shown) and all(language in scores for language in shown)
        mean = sum(scores[language] for language in shown) / len(shown) if is_whole else None
        cells = [system, *(percent(scores.get(language)) for language in shown), percent(mean)]
        return [*cells, *([percent(average)] if published_average else []), source]

    ours = {language: values[metric] for language, values in result.scores.items()}
    split = f", {result.protocol['split']} split" if "split" in result.protocol else ""
    rows = [table_row(model_name, ours, result.average[metric], f"measured here{split}")]
    for system in published:
        average = system.average.get(published_average) if published_average else None
        if average is not None or any(language in system.scores for language in shown):
            mark = f" {NOT_COMPARABLE}" if system.differences(result.protocol) else ""
            rows.append(table_row(system.system + mark, system.scores, average, system.label))
    extra = [f"all {len(result.scores)}"] if published_average else []
    return markdown_table(["system", *shown, "mean", *extra, "source"], rows)


def result_report(result: BenchmarkResult, model_name: str) -> str:
    """The whole result for a terminal or a Markdown file, beside published figures if there are any."""
    short_name = os.path.basename(os.path.normpath(model_name))
    entries = [name for name in ("split", "direction", "corpus_size") if name in result.protocol]
    averages, protocol = (
        [*map(percent, result.average.values())],
        [result.protocol[name] for name in entries],
    )
    line = [result.benchmark, short_name, *averages, str(len(result.scores)), *protocol]
    languages = [[code, *map(percent, values.values())] for code, values in result.scores.items()]
    parts = [
        f"{result.benchmark}, {model_name}, in percent",
        markdown_table(
            ["benchmark", "model", *result.average, "languages", *entries], [line], left=2
        ),
        markdown_table(["language", *result.average], [*languages, ["average", *averages]]),
        "\n".join(f"- {name}: {value}" for name, value in result.protocol.items()),
    ]
    return "\n\n".join(
        part for part in [*parts, *_published_comparisons(result, short_name)] if part
    )


def _published_comparisons(result: BenchmarkResult, model_name: str) -> list[str]:
    """One table per metric that the papers report, and notes on the published rows."""
    from st_xlret.evaluation import BENCHMARKS

    kind, parts = BENCHMARKS.get(result.benchmark, BenchmarkEvaluator), []
    for metric in kind.published_metrics:
        published = published_rows(result.benchmark, metric=metric)
        shown = [
            language
            for language in result.scores
            if any(language in row.scores for row in published)
        ]
        whole = (
            f"average_{kind.languages_in_all}"
            if len(result.scores) == kind.languages_in_all
            else None
        )
        published = [
            row
            for row in published
            if whole in row.average or any(code in row.scores for code in shown)
        ]
        if not published or metric not in result.average:
            continue
        options: Any = {
            "published": published,
            "metric": metric,
            "languages": shown,
            "published_average": whole,
        }
        table = results_table(result, model_name=model_name, **options)
        parts.append(
            f"{metric} beside published figures (the papers' own; other training data and sizes):\n\n{table}"
        )
        parts.append(_difference_notes(result, published))
        protocols = dict.fromkeys(
            f"- {row.short_source}, {row.table}: {row.protocol}" for row in published
        )
        parts.append("\n".join(["Of the published figures:\n", *protocols]))
    return parts


def _difference_notes(result: BenchmarkResult, published: list[PublishedRow]) -> str:
    """How the marked rows of a table were measured differently; empty if none is marked."""
    tables_by_value: dict[str, dict[str, dict[str, None]]] = {}
    for row in published:
        for name, value in row.differences(result.protocol).items():
            tables_by_value.setdefault(name, {}).setdefault(value, {})[
                f"{row.short_source}, {row.table}"
            ] = None
    lines = [
        f"- {name}: {result.protocol[name]} here; "
        + "; ".join(f"{value} in {' and '.join(tables)}" for value, tables in values.items())
        for name, values in tables_by_value.items()
    ]
    title = f"{NOT_COMPARABLE} measured differently, or in a way that is not said, and therefore not comparable:\n"
    return "\n".join([title, *lines]) if lines else ""


def seed_means(
    runs: Mapping[str, Sequence[BenchmarkResult]],
) -> dict[str, dict[str, tuple[float, float | None]]]:
    """System to metric to its mean over the seeds (results) and half of the 95 % interval, which is None for one seed.

    The interval is that of Student's t: how much another set of seeds may move the mean. The metrics are those that all
    results share; a ValueError says where the results differ in benchmark, languages or protocol of measurement.
    """
    every = [result for seeds in runs.values() for result in seeds]
    measured = [
        (each.benchmark, *sorted(each.scores), *map(each.protocol.get, _COMPARED)) for each in every
    ]
    if other := next((each for each in measured if each != measured[0]), None):
        raise ValueError(
            f"the results differ in benchmark, languages or protocol: {measured[0]} and {other}"
        )
    metrics = [
        metric for metric in every[0].average if all(metric in result.average for result in every)
    ]
    means = {}
    for name, seeds in runs.items():
        values = {metric: [result.average[metric] for result in seeds] for metric in metrics}
        means[name] = {
            metric: (round(fmean(each), 12), half_interval(each)) for metric, each in values.items()
        }
    return means


def half_interval(values: Sequence[float]) -> float | None:
    """Half of the 95 % confidence interval of the mean, by Student's t; None for a single value."""
    if len(values) < 2:
        return None
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


def read_results(files: Sequence[str]) -> dict[str, list[BenchmarkResult]]:
    """Results of `st-xlret evaluate` by system: `NAME=file.json` for each seed, or `file.json`, named after itself."""
    results: dict[str, list[BenchmarkResult]] = {}
    words = [word.partition("=") for word in files]
    named = [
        (name, Path(path)) if equals else (Path(name).stem, Path(name))
        for name, equals, path in words
    ]
    if len({(name, file.resolve()) for name, file in named}) < len(named):
        raise ValueError(
            f"a result is given twice, and would count as two seeds: {' '.join(files)}"
        )
    for name, file in named:
        with name_file_in_errors(file):
            content = json.loads(file.read_text(encoding="utf-8"))
            fields = {key: content[key] for key in ("benchmark", "scores", "average", "protocol")}
            fields["average"] = {
                metric: float(value) for metric, value in fields["average"].items()
            }
            results.setdefault(name, []).append(BenchmarkResult(**fields))
    return results


def write_comparison(files: Sequence[str], output: str | os.PathLike[str]) -> str:
    """Compare results in files, write tables with ± half of the interval, and return the first.

    They are `output` with the endings `.md`, in percent, and `.csv`, in fractions.
    """
    with ExitStack() as outputs:
        parts = {
            end: outputs.enter_context(
                atomic_file(Path(output).with_suffix(end), ours="evaluate --compare")
            )
            for end in (".md", ".csv")
        }
        compared = seed_means(results := read_results(files))
        metrics = list(next(iter(compared.values())))
        header, lines = ["system", *metrics, "seeds"], []
        columns = (f"{metric}{of}" for metric in metrics for of in ("", "_interval"))
        fractions: list[list[Any]] = [["system", "seeds", *columns]]
        for name, values in compared.items():
            cells = [
                percent(mean) + ("" if half is None else f" ± {percent(half)}")
                for mean, half in values.values()
            ]
            lines.append([name, *cells, str(len(results[name]))])
            fractions.append([name, len(results[name]), *chain.from_iterable(values.values())])
        with open(parts[".csv"], "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(fractions)
        parts[".md"].write_text(markdown := f"{markdown_table(header, lines)}\n", encoding="utf-8")
    return markdown


def plot_training(
    history: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]
) -> Path | None:
    """Draw the losses of a run, and its average scores or MRR@10, over the steps of `trainer.state.log_history`.

    None is returned where matplotlib is not installed or the history holds no losses and no scores.
    """
    names = {key for line in history for key in line}
    losses = sorted(key for key in names if key.startswith("loss_")) or sorted(names & {"loss"})
    scores = sorted(
        key
        for key in names
        if key.startswith("eval_") and ("average" in key or key.endswith("mrr@10"))
    )
    panels = [
        (title, keys) for title, keys in (("training loss", losses), ("evaluation", scores)) if keys
    ]
    if not panels or (figure := new_figure(path, 6 * len(panels), 4.5)) is None:
        return None
    axes = figure.subplots(1, len(panels), squeeze=False)
    for axis, (title, keys) in zip(axes[0], panels, strict=True):
        for key in keys:
            points = [(line["step"], line[key]) for line in history if key in line]
            axis.plot(
                *zip(*points, strict=True),
                marker=".",
                label=key.removeprefix("loss_").removeprefix("eval_"),
            )
        axis.set(title=title, xlabel="step")
        axis.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.18))
        axis.grid(alpha=0.3)
    return save_figure(figure, path)
