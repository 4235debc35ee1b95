"""What the readers of documents and of pairs have in common: checking fields, laying out a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any


def required_field(record: Mapping[str, Any], name: str, kind: type) -> Any:
    """Return a field of a record, or raise a ValueError that says what is wrong with it."""
    value = record.get(name)
    if value is None:
        raise ValueError(f"no field {name!r} (the record has {', '.join(map(repr, record)) or 'no fields'})")
    if not isinstance(value, kind):
        raise ValueError(f"field {name!r} must be a {kind.__name__}, found {type(value).__name__}")
    return value


def clean_text(text: Any) -> str:
    """Turn white space into single spaces; refuse what is no text (lone surrogates from JSON escapes)."""
    if not isinstance(text, str):
        raise ValueError(f"a sentence must be a string, found {type(text).__name__} {text!r:.40}")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError(f"text holds half of a surrogate pair, which is no character: {text!r:.60}") from None
    return " ".join(text.split())


def format_report(header: list[str], report: Any) -> str:
    """Lay out a report: a row of counts per entry of ``report.languages``, totals, then what was left out."""
    rows = [[name, *asdict(counts).values()] for name, counts in sorted(report.languages.items())]
    totals = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)] or [0] * (len(header) - 1)
    cells = [[f"{c:,}" if isinstance(c, int) else c for c in row] for row in [header, *rows, ["total", *totals]]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in cells
    ]
    if report.other_languages:
        by_count = sorted(report.other_languages.items(), key=lambda item: (-item[1], item[0]))
        lines.append("left out by the language filter: " + ", ".join(f"{name} {n:,}" for name, n in by_count))
    if report.bad_line_count:
        lines.append(f"bad lines skipped: {report.bad_line_count:,}, the first of them:")
        lines.extend(f"  {file}, line {line}: {reason}" for file, line, reason in report.bad_lines[:3])
    if report.skipped_files:
        lines.append(f"files with other kinds of records: {len(report.skipped_files)}")
    return "\n".join(lines)
