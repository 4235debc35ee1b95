"""Writing the files that the tests read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_bytes(file: Path, data: bytes) -> Path:
    """Write bytes, gzipped if the name ends in `.gz`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)
    return file


def write_text(file: Path, text: str, encoding: str = "utf-8") -> Path:
    """Write a text, gzipped if the name ends in `.gz`."""
    return write_bytes(file, text.encode(encoding))


def write_jsonl(file: Path, records: Iterable[Any]) -> Path:
    """Write records, one per line; strings are written as they are."""
    lines = (record if isinstance(record, str) else json.dumps(record, ensure_ascii=False) for record in records)
    return write_text(file, "".join(f"{line}\n" for line in lines))
