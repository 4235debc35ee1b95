"""Rows of tables whose cells stand between commas or tabs."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from st_xlret.data.reading import BadLines, decoded_lines
from st_xlret.files import PathLike

csv.field_size_limit(1 << 30)  # a cell may be a document


def read_table(
    path: PathLike,
    bad_lines: BadLines | None = None,
    *,
    delimiter: str = ",",
    has_quotes: bool = True,
    strict: bool = True,
) -> Iterator[tuple[int, list[str]]]:
    """Stream (number of its last line, cells) of the rows of a table.

    Cells may stand in quotes, and have several lines then; or quotes are a part of the text. If not
    strict, so are quotes amid a quoted cell, which are else an error.
    """
    bad_lines = bad_lines or BadLines()
    lines = _Lines(path, bad_lines)
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE
    rows = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=strict)
    while True:
        first = lines.number + 1
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            problem = f"no row of a table; it begins in line {first} ({error})"
            bad_lines(problem, path, lines.number)
            continue
        if any(cell.strip() for cell in cells):
            yield lines.number, cells


def read_tabbed_table(
    path: PathLike, bad_lines: BadLines | None = None
) -> Iterator[tuple[int, list[str]]]:
    """As `read_table`, of a table with tabs; `has_quoted_cells` says what its quotes are."""
    has_quotes = has_quoted_cells(path)
    return read_table(path, bad_lines, delimiter="\t", has_quotes=has_quotes)


class _Lines:
    """The lines of a table, with the number of the last one that was read."""

    def __init__(self, path: PathLike, bad_lines: BadLines) -> None:
        self.number = 0
        self._lines = decoded_lines(path, bad_lines)

    def __iter__(self) -> Iterator[str]:
        for number, line in self._lines:
            self.number = number
            # A lone \r is white space, and none that ends a row.
            yield line.replace("\r", " ") + "\n"


def has_quoted_cells(path: PathLike, delimiter: str = "\t") -> bool:
    r"""Whether quotes stand around cells, as spreadsheets and pandas write them, or are text.

    They stand around cells if a row has those that are needed for what its cells hold (the
    delimiter, a line break or a quote), or the names of the columns have them, and all rows can be
    read so. They are text if the lines of a row of several are whole rows themselves, or if a row
    has as many cells as the others without them alone: `"I went.` in a table of sentences may be
    closed in another row, or in another cell.
    """
    width = 0
    are_needed = False
    try:
        for row in _rows_and_their_lines(path, delimiter):
            plain = [line.split(delimiter) for line in row.lines if line.strip()]
            has_changed = [row.cells] != plain
            is_header = not width
            width = width or len(row.cells)
            if not has_changed:
                continue
            are_rows = all(len(cells) == width for cells in plain)
            if are_rows and (len(plain) > 1 or len(row.cells) != width):
                return False
            if is_header or _as_written(row.cells, delimiter) == row.text:
                are_needed = True
    except csv.Error:
        return False
    return are_needed


class _Row(NamedTuple):
    """The cells of a row, and the lines that they were read from."""

    cells: list[str]
    lines: list[str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def _rows_and_their_lines(path: PathLike, delimiter: str) -> Iterator[_Row]:
    """Each row that the csv module reads, and the lines that it took for that row alone."""
    lines = []

    def kept(read: Iterable[str]) -> Iterator[str]:
        for line in read:
            lines.append(line.rstrip("\n"))
            yield line

    source = kept(_Lines(path, BadLines(skip=True)))
    for cells in csv.reader(source, delimiter=delimiter, strict=True):
        if cells:
            yield _Row(cells, list(lines))
        lines.clear()


def _as_written(cells: list[str], delimiter: str) -> str:
    """The row as the csv module writes it."""
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(cells)
    return text.getvalue().removesuffix("\n")
