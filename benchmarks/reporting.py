"""Figures of comparisons as Markdown and JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from st_xlret.evaluation.reporting.tables import markdown_table

HEADER = ["ours / rival", "time, s", "ratio", "goal", "memory, MiB", "ratio", "goal"]


def as_markdown(results: dict[str, Any]) -> str:
    """One table a comparison, one row for each pair that is compared."""
    parts = []
    for comparison in results["comparisons"].values():
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for ratio in comparison["ratios"]:
            rows.setdefault((ratio["of"], ratio["to"]), {})[ratio["measure"]] = ratio
        table = [_row(comparison["figures"], *pair, measures) for pair, measures in rows.items()]
        parts.append(f"{comparison['title']}\n\n{markdown_table(HEADER, table)}")
    about = ", ".join(f"{name} {value}" for name, value in results["machine"].items())
    return "\n\n".join([*parts, f"One thread; {about}."])


def write(results: dict[str, Any], output: Path) -> None:
    """The figures to a JSON file, and their tables to a Markdown file beside it."""
    output.parent.mkdir(parents=True, exist_ok=True)
    for path, text in ((output, json.dumps(results, indent=2)), (output.with_suffix(".md"), as_markdown(results))):
        unfinished = path.with_name(path.name + ".part")
        unfinished.write_text(text + "\n", encoding="utf-8")
        os.replace(unfinished, path)


def _row(figures: dict[str, Any], one: str, other: str, measures: dict[str, Any]) -> list[str]:
    ours, rival = figures[one], figures[other]
    cells = [f"{one} / {other}"]
    for measure, key, unit in (("time", "seconds", 1.0), ("memory", "peak_bytes", 2.0**20)):
        if measure not in measures:
            cells += ["-", "-", "-"]
            continue
        ratio = measures[measure]
        goal = "" if ratio["goal"] is None else f"{ratio['goal']:.2f}: {'met' if ratio['met'] else 'missed'}"
        cells += [f"{ours[key] / unit:.4g} / {rival[key] / unit:.4g}", f"{ratio['ratio']:.3f}", goal]
    return cells
