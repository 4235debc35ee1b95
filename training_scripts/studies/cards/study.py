"""What a study left in its folder, and the figures of it that a card shows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from st_xlret.evaluation import markdown_table, published_rows
from st_xlret.hub.results import ResultTable
from training_scripts.studies.cards.commands import shown

EMPTY = "Empty cells are absent: not measured here, or not published."


@dataclass(frozen=True)
class Study:
    """A study's folder.

    Attributes:
        folder: Where it is.
        figures: Its study.json.
    """

    folder: Path
    figures: dict[str, Any]

    def command(self, data: str) -> str | None:
        """The command that ran it; None if it was never run to its end."""
        file = self.folder / "command.txt"
        return shown(file.read_text(encoding="utf-8"), data) if file.is_file() else None

    def training(self, run: str) -> dict[str, Any]:
        """The results.json of one of its trainings; empty where it is absent."""
        file = self.folder / run / "results.json"
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}

    def section(self, data: str) -> str:
        """Its own table and command, for a card of which it is not the main study."""
        file = self.folder / "study.md"
        table = file.read_text(encoding="utf-8").strip() if file.is_file() else "The table is absent (no study.md)."
        command = self.command(data)
        return f"{table}\n\nCommand: " + (f"`{command}`" if command else "absent (no command.txt).")


def read_study(folder: str | Path) -> Study:
    """Read a study.

    Raises:
        ValueError: When it has no study.json, or one without runs.
    """
    file = Path(folder, "study.json")
    if not file.is_file():
        raise ValueError(f"{file} does not exist: run the study first, or tabulate what is done by its --table-only")
    figures = json.loads(file.read_text(encoding="utf-8"))
    if not figures:
        raise ValueError(f"{file} holds no runs: let the study finish one, then tabulate it")
    return Study(Path(folder), figures)


def chosen(row: str, found: Iterable[str], study: Study) -> str:
    """The row that the card's model is from.

    Raises:
        ValueError: When the study has no run of it.
    """
    if row not in (rows := list(found)):
        raise ValueError(
            f"{study.folder / 'study.json'} has no run of {row!r}, the card's model; there are {rows}: "
            "finish the study, or choose one of them by --row"
        )
    return row


def mean_of(values: Iterable[float | None]) -> float | None:
    """The mean, None where a value is absent.

    Example:
        >>> mean_of([1, 2]), mean_of([1, None]), mean_of([])
        (1.5, None, None)
    """
    given = list(values)
    known = [value for value in given if value is not None]
    return mean(known) if known and len(known) == len(given) else None


def spread(values: Mapping[str, Sequence[float]], unit: str) -> str:
    """A sentence on the standard deviation over seeds, of the rows that have several.

    Example:
        >>> spread({"MSM": [0.10, 0.12], "CCP": [0.1]}, "the average")
        'Rows with several seeds are means; standard deviation of the average, in points: MSM 1.4 (2 seeds).'
    """
    several = [f"{row} {100 * stdev(v):.1f} ({len(v)} seeds)" for row, v in values.items() if len(v) > 1]
    if not several:
        return ""
    return f"Rows with several seeds are means; standard deviation of {unit}, in points: {', '.join(several)}."


def rows_above(table: ResultTable, column: str = "average") -> list[str]:
    """A sentence on the rows that a column shows above the card's model, for its limits; none if it is the best.

    Example:
        >>> table = ResultTable("x", "MRR", {"a": {"average": 0.5}, "b": {"average": 0.4}}, model_row="b")
        >>> rows_above(table)
        ['By average MRR, rows of this study are above this model (40.0): a 50.0.']
    """
    assert table.model_row is not None
    own = table.rows[table.model_row][column]
    if own is None:
        return []
    scores = {row: cells.get(column) for row, cells in table.rows.items()}
    above = [f"{row} {100 * value:.1f}" for row, value in scores.items() if value is not None and value > own]
    if not above:
        return []
    return [
        f"By {column} {table.metric}, rows of this study are above this model ({100 * own:.1f}): {', '.join(above)}."
    ]


def published(
    benchmark: str,
    *,
    paper: str,
    tables: Sequence[str],
    metric: str | None = None,
    languages: Sequence[str] = (),
    averages: Mapping[str, str] | None = None,
) -> dict[str, dict[str, float]]:
    """A paper's rows, for the columns of a card's table.

    Args:
        benchmark: The benchmark's name in the published results.
        paper: The paper, as the published results shorten it.
        tables: Its tables to take rows from.
        metric: Only rows of this metric.
        languages: Columns to take; what the paper lacks stays absent.
        averages: The published results' name of an average -> its column here.

    Example:
        >>> published("tatoeba", paper="ML-CTL paper", tables=["Table 1"], averages={"average_xtreme": "XTREME"})[
        ...     "CZ-snt, ML-CTL paper, Table 1"
        ... ]
        {'XTREME': 0.41751}
    """
    rows = {}
    for row in published_rows(benchmark, metric=metric):
        if row.short_source == paper and row.table in tables:
            cells = {code: row.scores[code] for code in languages if code in row.scores}
            cells |= {column: row.average[name] for name, column in (averages or {}).items() if name in row.average}
            rows[f"{row.system}, {paper}, {row.table}"] = cells
    return rows


def cost_table(names: Sequence[str], rows: Mapping[str, Sequence[float | None]]) -> str:
    """What each row took, as Markdown; figures that the study lacks are said to be absent."""
    lines = [[row, *("absent" if v is None else f"{v:,.0f}" for v in values)] for row, values in rows.items()]
    return markdown_table(["row", *names], lines)
