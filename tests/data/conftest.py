"""Loaders that keep their tables in a temporary folder, and give their reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from st_xlret.data import Report, load_documents, load_pairs, load_retrieval


def reporting(load: Callable[..., Any]) -> Any:
    """A fixture: sources and options -> table, report."""

    @pytest.fixture
    def loader(tmp_path: Path) -> Any:
        def run(sources: Any, **options: Any) -> Any:
            report = Report()
            return load(sources, report=report, cache_dir=tmp_path / "cache", **options), report

        return run

    return loader


read, load, questions = map(reporting, (load_documents, load_pairs, load_retrieval))
