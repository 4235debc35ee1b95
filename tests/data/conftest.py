"""Tables are kept in a temporary folder."""

from pathlib import Path

import datasets
import pytest


@pytest.fixture(autouse=True)
def _kept_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
