"""Tables of results on a card, and the metadata that the Hub reads the model's own scores from."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from huggingface_hub import EvalResult

from st_xlret.evaluation.reporting.tables import markdown_table
from st_xlret.hub.model_card import card_data

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Rows = Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True)
class ResultTable:
    """One benchmark's results: rows that were measured, and a paper's rows to compare them with.

    The row of the card's model is marked, and is the only one in the metadata.

    Attributes:
        benchmark: Its name, which heads the table.
        metric: The name of the metric, in words.
        rows: System -> column (a language, "average", ...) -> value. Fractions in [0, 1], or `None`.
        published: The same for rows that are copied from papers; each is marked as published.
        model_row: The row of the card's model. It need not be named if there is one row only.
        note: Protocol and differences, printed below the table.
        in_metadata: Whether the figures are those of the card's model as it is, and not after fine-tuning.
    """

    benchmark: str
    metric: str
    rows: Rows
    published: Rows = field(default_factory=dict)
    model_row: str | None = None
    note: str = ""
    in_metadata: bool = True

    def to_markdown(self) -> str:
        """The table in per cent, its metric above it and its note below it.

        Example:
            >>> table = ResultTable("Tatoeba", "accuracy", {"ours": {"fr": 0.5}}, {"CCP": {"fr": 0.9}})
            >>> print(table.to_markdown())
            Metric: accuracy (%).
            <BLANKLINE>
            | system            |   fr |
            |:------------------|-----:|
            | ours (this model) | 50.0 |
            | CCP (published)   | 90.0 |
        """
        columns = list(dict.fromkeys(c for row in [*self.rows.values(), *self.published.values()] for c in row))
        marks = {name: "" for name in self.rows}
        if own := self._own_row():
            marks[own] = " (this model)" if self.in_metadata else " (this model, fine-tuned)"
        rows = [[name + marks[name], *map(_cell, map(row.get, columns))] for name, row in self.rows.items()]
        rows += [[f"{name} (published)", *map(_cell, map(row.get, columns))] for name, row in self.published.items()]
        parts = [f"Metric: {self.metric} (%).", markdown_table(["system", *columns], rows), self.note]
        return "\n\n".join(filter(None, parts))

    def eval_results(self) -> list[EvalResult]:
        """The model's own row as metadata, one entry a column, for the Hub's `model-index`.

        Raises:
            ValueError: If `model_row` is no row, or none is named and there are several.
        """
        own = self._own_row()
        if own is None or not self.in_metadata:
            return []
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
            for column, value in self.rows[own].items()
            if value is not None and math.isfinite(value)
        ]

    def _own_row(self) -> str | None:
        """The row of the card's model; None where all rows are of others."""
        if not self.rows or (self.model_row is None and not self.in_metadata):
            return None
        own = self.model_row if self.model_row is not None or len(self.rows) > 1 else next(iter(self.rows))
        if own is None or own not in self.rows:
            raise ValueError(f"model_row {own!r} is not a row; the rows are {list(self.rows)}")
        return own


def set_results(model: SentenceTransformer, tables: Sequence[ResultTable], *, more: str = "") -> None:
    """Put tables of results on the card of a model, and its own scores in the metadata.

    Args:
        model: The model.
        tables: The tables. Those of one benchmark stand together.
        more: Markdown below the tables, such as the commands.

    Raises:
        ValueError: If a table does not say which row is the model's.
    """
    card = card_data(model)
    card.results = [entry for table in tables for entry in table.eval_results()]
    parts = []
    for before, table in zip([None, *tables], tables, strict=False):
        heading = [] if before and before.benchmark == table.benchmark else [f"### {table.benchmark}"]
        parts += [*heading, table.to_markdown()]
    if any(table.published for table in tables):
        parts.append("Rows marked (published) are copied from the papers; all others were measured here.")
    card.sections["Results"] = "\n\n".join(filter(None, [*parts, more]))


def _cell(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else f"{100 * value:.1f}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
