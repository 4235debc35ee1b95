"""Rows of the tables: tab-separated text whose errors name the file and the line."""

from __future__ import annotations

import csv
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

NONE = "-"
"""What a cell holds that has no content."""


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        where: File and line, for messages.
        cells: Column -> text.
    """

    where: str
    cells: dict[str, str]

    def words(self, column: str, allowed: Collection[str] | None = None, what: str = "") -> tuple[str, ...]:
        """Split a cell into words.

        Args:
            column: Name of the column.
            allowed: The words that the cell may hold; by default, all.
            what: What the allowed words are, e.g. `"a noun"`, for the message.

        Raises:
            ValueError: For another word.
        """
        text = self.cells[column]
        words = () if text == NONE else tuple(text.split())
        unknown = [word for word in words if allowed is not None and word not in allowed]
        if unknown:
            raise self.error(f"column {column!r} has {', '.join(map(repr, unknown))}, which no table defines as {what}")
        return words

    def word(self, column: str, allowed: Collection[str], what: str) -> str:
        """The only word of a cell; see `words`."""
        words = self.words(column, allowed, what)
        if len(words) != 1:
            raise self.error(f"column {column!r} needs one word, {what}, but has {self.cells[column]!r}")
        return words[0]

    def error(self, message: str) -> ValueError:
        """An error that names the file and the line."""
        return ValueError(f"{self.where}: {message}")


def read_rows(path: Path, columns: tuple[str, ...]) -> list[Row]:
    """Read a table whose header is the given columns.

    Raises:
        ValueError: For another header, and for a row with too few, too many or empty cells.
    """
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        header = tuple(next(reader, []))
        if header != columns:
            raise ValueError(f"{path.name}, line 1: the header is {' '.join(header)!r}, not {' '.join(columns)!r}")
        rows = []
        for cells in reader:
            row = Row(f"{path.name}, line {reader.line_num}", dict(zip(columns, cells, strict=False)))
            if len(cells) != len(columns):
                raise row.error(f"the row has {len(cells)} cells, but the table has {len(columns)} columns")
            if not all(cells):
                raise row.error(f"column {columns[cells.index('')]!r} is empty; write {NONE!r} for no content")
            rows.append(row)
    return rows


def by_first_column(rows: list[Row]) -> dict[str, Row]:
    """Rows by what their first column holds.

    Raises:
        ValueError: For two rows that hold the same.
    """
    found: dict[str, Row] = {}
    for row in rows:
        name = next(iter(row.cells.values()))
        if name in found:
            raise row.error(f"{name!r} is already defined in {found[name].where}")
        found[name] = row
    return found
