"""Loaders that keep their tables in a temporary folder, and give their reports."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from st_xlret.data import Report, load_documents, load_pairs, load_retrieval


def _reporting(load: Callable[..., Any], folder: Path, sources: Any, **options: Any) -> Any:
    report = Report()
    return load(sources, report=report, cache_dir=folder / "cache", **options), report


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Sources and options -> sentences, report."""
    return partial(_reporting, load_documents, tmp_path)


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Sources and options -> pairs, report."""
    return partial(_reporting, load_pairs, tmp_path)


@pytest.fixture
def questions(tmp_path: Path) -> Any:
    """Sources and options -> questions, report."""
    return partial(_reporting, load_retrieval, tmp_path)
