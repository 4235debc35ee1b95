"""The cards of this repository, rendered from the results of its studies and of the demo."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from st_xlret.evaluation.reporting.tables import markdown_table
from st_xlret.files import write_text_atomically
from st_xlret.hub.card_sections import QUESTION, SENTENCES

Rows = Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True)
class DataSource:
    """One set of text that a model was trained on.

    Args:
        name: What it is called.
        licence: Its licence, as its owner names it.
        use: What it was used for, for example "documents" or "pairs, 5 000 per language".
        url: Where it comes from.
    """

    name: str
    licence: str
    use: str
    url: str | None = None


@dataclass(frozen=True)
class ResultTable:
    """One benchmark's results: the rows of this work, and a paper's rows to compare them with.

    Args:
        benchmark: Its name, which heads the table.
        metric: The name of the metric, in words.
        rows: System -> column (a language, "average", ...) -> value. Fractions in [0, 1], or `None`.
        published: The same for rows that are copied from papers; the card marks each as "(published)".
        model_row: The row that is this card's model, for the metadata. It need not be named if there is one row only.
        percent: Show the fractions as percentages with one decimal, as the papers do.
        note: Protocol and differences, printed below the table.
        in_metadata: Whether the figures are the card's model's own; not so where it was fine-tuned before.
    """

    benchmark: str
    metric: str
    rows: Rows
    published: Rows = field(default_factory=dict)
    model_row: str | None = None
    percent: bool = True
    note: str = ""
    in_metadata: bool = True

    def columns(self) -> list[str]:
        """All columns: those of this work's rows first, in their order."""
        return list(dict.fromkeys(c for row in [*self.rows.values(), *self.published.values()] for c in row))

    def to_markdown(self) -> str:
        """Render the table, its metric above it and its note below it.

        Example:
            >>> table = ResultTable("Tatoeba", "accuracy", {"ours": {"fr": 0.5}}, {"CCP": {"fr": 0.9}})
            >>> print(table.to_markdown())
            Metric: accuracy (%).
            <BLANKLINE>
            | system          |   fr |
            |:----------------|-----:|
            | ours            | 50.0 |
            | CCP (published) | 90.0 |
        """
        columns = self.columns()
        rows = [
            [system + mark, *(self._cell(row.get(column)) for column in columns)]
            for of_system, mark in ((self.rows, ""), (self.published, " (published)"))
            for system, row in of_system.items()
        ]
        table = markdown_table(["system", *columns], rows)
        lines = [f"Metric: {self.metric}{' (%)' if self.percent else ''}.", "", table]
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines)

    def eval_results(self) -> list[EvalResult]:
        """Give the model's own row as metadata, one entry a column, for the Hub's `model-index`.

        Raises:
            ValueError: If `model_row` is no row, or none is named and there are several.
        """
        if not self.rows or not self.in_metadata:
            return []
        system = self.model_row if self.model_row is not None or len(self.rows) > 1 else next(iter(self.rows))
        if system is None or system not in self.rows:
            raise ValueError(f"model_row {system!r} is not a row; the rows are {list(self.rows)}")
        return [
            EvalResult(
                task_type="sentence-similarity",
                task_name="Cross-lingual retrieval",
                dataset_type=_slug(self.benchmark),
                dataset_name=self.benchmark,
                dataset_config=column,
                metric_type=_slug(self.metric),
                metric_name=f"{self.metric} ({column})",
                metric_value=round(float(value), 6),
            )
            for column, value in self.rows[system].items()
            if value is not None and math.isfinite(value)
        ]

    def _cell(self, value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return ""
        return f"{100 * value:.1f}" if self.percent else f"{value:.4g}"


def table_from_evaluations(
    evaluations: Mapping[str, Mapping[str, Any]],
    metric: str,
    *,
    published: Rows | None = None,
    note: str = "",
) -> ResultTable:
    """Make a table from what `evaluation/run.py` wrote: a row a file, a column a language and the average.

    Args:
        evaluations: Row label -> the JSON object ``{"benchmark", "scores": {language: {metric: value}},
            "average": {metric: value}}``. All must be of one benchmark.
        metric: The metric to show.
        published: The papers' rows, by language and "average".
        note: Printed below the table.

    Returns:
        The table.

    Raises:
        ValueError: When there are no evaluations, they mix benchmarks or lack the metric.

    Example:
        >>> run = {"benchmark": "tatoeba", "scores": {"fr": {"accuracy": 0.5}}, "average": {"accuracy": 0.5}}
        >>> table_from_evaluations({"CCP": run}, "accuracy").rows
        {'CCP': {'fr': 0.5, 'average': 0.5}}
    """
    benchmarks = {str(evaluation["benchmark"]) for evaluation in evaluations.values()}
    if len(benchmarks) != 1:
        raise ValueError(f"one table shows one benchmark, got {sorted(benchmarks) or 'no evaluations'}")
    rows: dict[str, dict[str, float | None]] = {}
    for label, evaluation in evaluations.items():
        if metric not in evaluation["average"]:
            raise ValueError(f"{label}: no metric {metric!r}; it has {sorted(evaluation['average'])}")
        row = {language: scores.get(metric) for language, scores in evaluation["scores"].items()}
        rows[label] = {**row, "average": evaluation["average"][metric]}
    return ResultTable(benchmarks.pop(), metric, rows, published or {}, note=note)


def write_model_card(
    path: str | os.PathLike[str],
    *,
    model_name: str,
    title: str,
    summary: str,
    languages: Sequence[str],
    data: Sequence[DataSource],
    training_command: str,
    results: Sequence[ResultTable],
    citations: Sequence[str],
    limits: Sequence[str],
    evaluation_commands: Sequence[str] = (),
    seconds: Mapping[str, float] | None = None,
    hardware: str | None = None,
    task_language: str | None = None,
    base_model: str | None = None,
    license: str | None = None,
    tags: Sequence[str] = (),
    sections: Mapping[str, str] | None = None,
) -> str:
    """Render a Hugging Face model card from a run and write it, whole or not at all.

    Args:
        path: A file ending in `.md`, or a folder, which gets a `README.md`.
        model_name: What `SentenceTransformer(...)` in the usage example loads: a Hub name or a path.
        title: The heading.
        summary: What the model is, in a paragraph of Markdown.
        languages: Language codes.
        data: What it was trained on.
        training_command: The command, or several lines of them.
        results: Tables, built from the run's JSON.
        citations: BibTeX entries; equal ones are printed once.
        limits: What it cannot do, a list of sentences.
        evaluation_commands: Commands that give the figures of the tables.
        seconds: Stage -> seconds that it took.
        hardware: On what.
        task_language: For a calibrated model: a language for `encode(..., task=...)` in the usage example.
        base_model: The Hub name of the encoder that training started from, if any.
        license: The model's own licence, as a Hub identifier such as "apache-2.0".
        tags: More tags for the Hub.
        sections: More sections, heading -> Markdown, before the citation.

    Returns:
        The text of the card.

    Raises:
        ValueError: When there are no languages, or a table's `model_row` does not exist.
        OSError: When it cannot be written.
    """
    if not languages:
        raise ValueError("languages is empty; a card names the languages that the model was trained for")
    metadata = ModelCardData(
        language=list(languages),
        license=license,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        base_model=base_model,
        tags=["sentence-transformers", "sentence-similarity", "feature-extraction", "st-xlret", *tags],
        model_name=title,
        eval_results=[entry for table in results for entry in table.eval_results()] or None,
    )
    parts = [f"# {title}", summary.strip(), "## Usage", _usage(model_name, task_language)]
    parts += ["## Languages", ", ".join(f"`{language}`" for language in languages)]
    parts += ["## Training data", _data_table(data)]
    parts += ["## Training", _fence("bash", training_command)]
    if seconds or hardware:
        parts.append(_times(seconds or {}, hardware))
    if results:
        parts.append("## Results")
        for before, table in zip([None, *results], results, strict=False):
            title_of_table = [] if before and before.benchmark == table.benchmark else [f"### {table.benchmark}"]
            parts += [*title_of_table, table.to_markdown()]
        if any(table.published for table in results):
            parts.append("Rows marked (published) are copied from the papers; all others were measured here.")
    if evaluation_commands:
        parts += ["Commands:", _fence("bash", "\n".join(evaluation_commands))]
    if limits:
        parts += ["## Limits", "\n".join(f"- {limit}" for limit in limits)]
    for heading, body in (sections or {}).items():
        parts += [f"## {heading}", body.strip()]
    if citations:
        entries = dict.fromkeys(citation.strip() for citation in citations)
        parts += ["## Citation", *(_fence("bibtex", entry) for entry in entries)]
    text = f"---\n{metadata.to_yaml()}\n---\n\n" + "\n\n".join(parts) + "\n"
    ModelCard(text)  # parses the metadata back: a card that the Hub would refuse is never written
    target = Path(path)
    write_text_atomically(target if target.suffix == ".md" else target / "README.md", text)
    return text


def _usage(model_name: str, task_language: str | None) -> str:
    english, foreign = (', task="en"', f', task="{task_language}"') if task_language else ("", "")
    passages = [SENTENCES[code] for code in ([task_language] if task_language else ["fr", "de"])]
    code = (
        "from sentence_transformers import SentenceTransformer\n\n"
        f'model = SentenceTransformer("{model_name}")\n'
        f'queries = model.encode(["{QUESTION}"]{english})\n'
        f"passages = model.encode({json.dumps(passages, ensure_ascii=False)}{foreign})\n"
        "print(model.similarity(queries, passages))"
    )
    hint = " `task` is the language of the texts." if task_language else ""
    return f"It needs Sentence Transformers only.{hint}\n\n" + _fence("python", code)


def _data_table(data: Sequence[DataSource]) -> str:
    names = [f"[{source.name}]({source.url})" if source.url else source.name for source in data]
    rows = [[name, source.licence, source.use] for name, source in zip(names, data, strict=True)]
    return markdown_table(["source", "licence", "used for"], rows, left=3)


def _times(seconds: Mapping[str, float], hardware: str | None) -> str:
    lines = [f"Hardware: {hardware}."] if hardware else []
    if seconds:
        lines += [""] if lines else []
        lines.append(markdown_table(["stage", "seconds"], [[name, f"{value:,.0f}"] for name, value in seconds.items()]))
    return "\n".join(lines)


def _fence(language: str, code: str) -> str:
    return f"```{language}\n{code.strip()}\n```"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
