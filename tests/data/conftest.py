"""Loaders that keep their results in a temporary folder, and give their reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from st_xlret.data import (
    LoadReport,
    PairOptions,
    PairReport,
    RetrievalReport,
    load_documents,
    load_pairs,
    load_retrieval,
)


@pytest.fixture
def where(tmp_path: Path) -> dict[str, Any]:
    return {"cache_dir": tmp_path / "cache", "show_progress_bar": False}


@pytest.fixture
def read(where: dict[str, Any]) -> Any:
    """Sources and options -> sentences, report."""

    def read(sources: Any, **options: Any) -> Any:
        options = {**where, "report": LoadReport(), **options}
        return load_documents(sources, **options), options["report"]

    return read


@pytest.fixture
def load(where: dict[str, Any]) -> Any:
    """Sources and options -> pairs, report."""

    def load(sources: Any, **options: Any) -> Any:
        report = PairReport()
        return load_pairs(sources, PairOptions(**options), report=report, **where), report

    return load


@pytest.fixture
def questions(where: dict[str, Any]) -> Any:
    """Sources and options -> questions, report."""

    def questions(sources: Any, **options: Any) -> Any:
        options = {**where, "report": RetrievalReport(), **options}
        return load_retrieval(sources, **options), options["report"]

    return questions
