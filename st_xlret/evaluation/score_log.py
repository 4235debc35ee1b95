"""The scores of a training, row after row in a CSV file; nothing that is there is changed."""

import csv
import logging
from collections.abc import Iterable, Mapping
from io import StringIO
from pathlib import Path

_logger = logging.getLogger(__name__)


def append_row(first: Path, row: Mapping[str, object]) -> None:
    """Append a row to a CSV file, or to the first one beside it that is new or has its columns.

    The columns are the keys of the row, in their order.
    """
    first.parent.mkdir(parents=True, exist_ok=True)
    header = _csv_line(row)
    file = first
    number = 1
    while (file.exists() or file.is_symlink()) and not _has_columns(file, header):
        number += 1
        file = first.with_stem(f"{first.stem}_{number}")
    if file != first:
        _logger.warning("%s has other columns: the scores go to %s", first, file.name)
    start = b"" if file.exists() else header
    with open(file, "ab") as log:
        log.write(start + _csv_line(row.values()))


def _has_columns(file: Path, header: bytes) -> bool:
    """Whether a file has this header, and ends with a line."""
    content = file.read_bytes() if file.is_file() else b""
    return content.startswith(header) and content.endswith(b"\r\n")


def _csv_line(values: Iterable[object]) -> bytes:
    """A line of a CSV file, which ends as `_has_columns` expects."""
    text = StringIO(newline="")
    csv.writer(text).writerow(values)
    return text.getvalue().encode()
