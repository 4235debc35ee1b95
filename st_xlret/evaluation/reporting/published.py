"""Published results with their sources, to be shown beside measured ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any


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
        """The entries of the protocol in which a result differs. What it does not mention is not compared.

        Args:
            protocol: The protocol of the result.

        Returns:
            Name of each entry that differs, to the entry of this row.

        Example:
            >>> row = published_rows("lareqa")[0]
            >>> row.differences({"split": "test", "candidate": "sentence"})
            {'candidate': 'sentence followed by its paragraph'}
        """
        return {name: value for name, value in self.measured_as.items() if protocol.get(name, value) != value}


def published_benchmarks() -> list[str]:
    """The benchmarks for which there are published rows.

    Example:
        >>> published_benchmarks()
        ['bucc', 'lareqa', 'mewsli-x', 'mrtydi', 'nq', 'paws-x', 'tatoeba', 'tatoeba-pairs', 'xnli', 'xor-retrieve']
    """
    folder = resources.files("st_xlret.evaluation.reporting") / "published_results"
    return sorted(file.name.removesuffix(".json") for file in folder.iterdir() if file.name.endswith(".json"))


def published_rows(
    benchmark: str, *, metric: str | None = None, with_languages_only: bool = False, ablations: bool = False
) -> list[PublishedRow]:
    """The published rows of one benchmark, in the order of the papers' tables.

    Args:
        benchmark: Such as `"tatoeba"`.
        metric: Only rows of one metric, such as `"mrr_at_100"`. Default: all.
        with_languages_only: Leave out rows for which only an average was published.
        ablations: Include the rows of ablations.

    Raises:
        ValueError: If there are none for this benchmark.

    Example:
        >>> rows = {row.system: row for row in published_rows("tatoeba")}
        >>> rows["CCP"].scores["fr"], rows["CCP"].table
        (0.938, 'Table 1')
        >>> [row.average["average_11"] for row in published_rows("lareqa", metric="map_at_20")]
        [0.245, 0.293, 0.334, 0.216]
    """
    if benchmark not in published_benchmarks():
        raise ValueError(f"no published rows for {benchmark!r}; there are some for {published_benchmarks()}.")
    file = resources.files("st_xlret.evaluation.reporting") / "published_results" / f"{benchmark}.json"
    rows = [
        PublishedRow(
            system=row["system"],
            scores={language: _fraction(value, table) for language, value in row.get("scores", {}).items()},
            average={name: _fraction(value, table) for name, value in row.get("average", {}).items()},
            bilingual_data=row["bilingual_data"],
            source=table["source"],
            table=table["table"],
            protocol=table["protocol"],
            short_source=table["short_source"],
            metric=table.get("metric", "accuracy"),
            setting=table.get("setting", ""),
            measured_as=table.get("measured_as", {}),
            ablation=table.get("ablation", False),
        )
        for table in json.loads(file.read_text(encoding="utf-8"))["tables"]
        for row in table["rows"]
        if ablations or not table.get("ablation", False)
    ]
    return [row for row in rows if (metric is None or row.metric == metric) and (row.scores or not with_languages_only)]


def _fraction(value: float, table: dict[str, Any]) -> float:
    return value if table.get("unit") == "fraction" else round(value / 100, 6)
