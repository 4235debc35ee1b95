"""Tiny texts, and train_ccp.py as a function."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType

import pytest

from tests.training_scripts.scripts import Train, load_script, runner
from tests.training_scripts.train_ccp_runs import (
    SIZES,
    WORDS,
    sentence,
    write_lines,
)


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    dice = random.Random(0)
    records = [
        {
            "language": language,
            "sentences": [sentence(language, dice.choices(range(12), k=4)) for _ in "1234"],
        }
        for _ in range(12)
        for language in WORDS
    ]
    return write_lines(tmp_path / "documents.jsonl", records)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    dice = random.Random(1)
    meanings = [dice.choices(range(12), k=4) for _ in range(120)]
    records = [
        {"source_language": "en", "target_language": "fr"}
        | {side: sentence(language, meaning) for side, language in (("source", "en"), ("target", "fr"))}
        for meaning in meanings
    ]
    return write_lines(tmp_path / "pairs.jsonl", records)


@pytest.fixture
def program(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with a cache of its own for the data."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return load_script(repository, "train_ccp", monkeypatch)


@pytest.fixture
def train(program: ModuleType, tmp_path: Path) -> Train:
    """Run the script on a tiny static encoder; further options, a string of several or paths, override."""
    return runner(program, tmp_path, f"{SIZES} --use_cpu", "--from_scratch static")
