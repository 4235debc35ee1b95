"""What the loaders report: counts per language (or source), bad lines, and what was left out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from st_xlret.data.reading.jsonl import BadLines

if TYPE_CHECKING:
    from typing_extensions import Self

Counts = TypeVar("Counts", bound=Any)


@dataclass
class Report(Generic[Counts]):
    """What a loader kept and what it left out; `str(report)` is a small table.

    Pass an empty report to a loader as `report=`, and the loader fills it. Every loader also logs its report at the
    level INFO.

    Attributes:
        languages: Counts by name.
        other_languages: Number of items left out by the language filter, by name.
        bad_lines: (file, line, reason) of the first 1,000 lines that were skipped.
        bad_line_count: Number of lines that were skipped.
        cut_sentences: (file, line, characters) of the first 1,000 sentences that were too long and cut.
        cut_sentence_count: Number of sentences that were cut.
        skipped_files: Files found in folders that hold other kinds of records.
        reused: Whether an earlier result for the same unchanged sources was taken.
    """

    languages: dict[str, Counts] = field(default_factory=dict)
    other_languages: dict[str, int] = field(default_factory=dict)
    bad_lines: list[tuple[str, int, str]] = field(default_factory=list)
    bad_line_count: int = 0
    cut_sentences: list[tuple[str, int, int]] = field(default_factory=list)
    cut_sentence_count: int = 0
    skipped_files: list[str] = field(default_factory=list)
    reused: bool = False

    counts_class: ClassVar[type]
    """The dataclass of the counts."""
    header: ClassVar[Sequence[str]]
    """Heads of the columns of the table: what the counts are of, then one for each field of `counts_class`."""

    def counts(self, name: str) -> Counts:
        """The counts of one language, language pair or source, added if they are not there yet."""
        if name not in self.languages:
            self.languages[name] = self.counts_class()
        return self.languages[name]

    def total(self, name: str) -> int:
        """Sum of one field of the counts."""
        return sum(getattr(counts, name) for counts in self.languages.values())

    def leave_out(self, name: str, count: int = 1) -> None:
        """Count items that the language filter leaves out."""
        self.other_languages[name] = self.other_languages.get(name, 0) + count

    def take_bad_lines(self, bad_lines: BadLines) -> None:
        """Report the lines that were skipped, and the sentences that were cut."""
        self.bad_lines, self.bad_line_count = bad_lines.examples, bad_lines.count
        self.cut_sentences, self.cut_sentence_count = bad_lines.cut_examples, bad_lines.cut_count

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """A report that was stored by `dataclasses.asdict`, marked as reused."""
        languages = {name: cls.counts_class(**counts) for name, counts in stored["languages"].items()}
        bad_lines = [(file, line, reason) for file, line, reason in stored["bad_lines"]]
        cut = [(file, line, characters) for file, line, characters in stored["cut_sentences"]]
        lists = {"languages": languages, "bad_lines": bad_lines, "cut_sentences": cut}
        return cls(**{**stored, **lists, "reused": True})

    def publish(self, report: Self | None, logger: logging.Logger) -> None:
        """Fill the caller's report in place, and log it."""
        if report is not None:
            report.restore(self)
        logger.info("%s", self)

    def restore(self, other: Self) -> None:
        """Take the counts of another report."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def __str__(self) -> str:
        rows = [[name, *asdict(counts).values()] for name, counts in sorted(self.languages.items())]
        totals = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)] or [0] * (
            len(self.header) - 1
        )
        table = [list(self.header), *rows, ["total", *totals]]
        cells = [[f"{c:,}" if isinstance(c, int) else c for c in row] for row in table]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in cells
        ]
        if self.other_languages:
            by_count = sorted(self.other_languages.items(), key=lambda item: (-item[1], item[0]))
            lines.append("left out by the language filter: " + ", ".join(f"{name} {n:,}" for name, n in by_count))
        if self.bad_line_count:
            lines.append(f"bad lines skipped: {self.bad_line_count:,}, the first of them:")
            lines.extend(f"  {file}, line {line}: {reason}" for file, line, reason in self.bad_lines[:3])
        if self.cut_sentence_count:
            lines.append(f"sentences cut because they were too long: {self.cut_sentence_count:,}, the first of them:")
            lines.extend(f"  {file}, line {line}: {size:,} characters" for file, line, size in self.cut_sentences[:3])
        if self.skipped_files:
            lines.append(f"files with other kinds of records: {len(self.skipped_files)}")
        return "\n".join(lines)
