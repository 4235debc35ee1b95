"""The CSV file of an evaluator's scores during a training, a row for each evaluation."""

import csv
import logging
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

from st_xlret.files import atomic_file, check_output_file

_logger = logging.getLogger(__name__)
_FIRST_COLUMNS = ["epoch", "steps"]


def choose_log_file(first: Path) -> Path:
    """This file, or the first one beside it that is new, or as `append_row` writes it."""
    first.parent.mkdir(parents=True, exist_ok=True)
    file = first
    number = 1
    while (file.exists() or file.is_symlink()) and _rows_if_unedited(file) is None:
        number += 1
        file = first.with_stem(f"{first.stem}_{number}")
    if file != first:
        _logger.warning("%s is not as it was written: the scores go to %s", first, file.name)
    return check_output_file(file)


def append_row(file: Path, row: Mapping[str, object]) -> None:
    """Append a row to a CSV file, which is made if it is not there.

    Where the file lacks a column of the row, it is written anew with that column, which is empty
    in the rows before.
    """
    rows = _rows_if_unedited(file) or []
    content = _as_csv([*rows, row])
    with atomic_file(file) as part:
        part.write_bytes(content.encode())


def _rows_if_unedited(file: Path) -> list[dict[str, object]] | None:
    """The rows of a CSV file; None unless it is, to the last byte, as `_as_csv` writes them.

    So nothing that somebody has put there is lost when the file is written anew.
    """
    if not file.is_file():
        return None
    try:
        text = file.read_bytes().decode()
        header, *lines = csv.reader(StringIO(text, newline=""))
        rows: list[dict[str, object]] = [dict(zip(header, line, strict=True)) for line in lines]
    except (ValueError, csv.Error):
        return None
    is_ours = header[:2] == _FIRST_COLUMNS and _as_csv(rows) == text
    return rows if is_ours else None


def _as_csv(rows: Sequence[Mapping[str, object]]) -> str:
    names = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    text = StringIO(newline="")
    writer = csv.DictWriter(text, list(names))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
