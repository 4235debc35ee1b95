"""Figures of comparisons as Markdown and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from st_xlret.evaluation.reporting.tables import markdown_table
from st_xlret.files import write_json_atomically, write_text_atomically

HEADER = ["ours / rival", "time, s", "ratio", "goal", "memory, MiB", "ratio", "goal"]


def as_markdown(results: dict[str, Any]) -> str:
    """One table per comparison, with one row for each pair that is compared."""
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
    """Write the figures to a JSON file, and their tables to a Markdown file beside it."""
    write_json_atomically(output, results)
    write_text_atomically(output.with_suffix(".md"), as_markdown(results) + "\n")


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
