from __future__ import annotations

import sys
from pathlib import Path

import pytest
from datasets import Dataset

from training_scripts.studies.common import folders_in, keep_command, run_all, run_logged, shared_tokenizer

PRINT_THREADS = [sys.executable, "-c", "import os; print(os.environ.get('OMP_NUM_THREADS'))"]
FAIL = [sys.executable, "-c", "import sys; sys.exit('no')"]


def test_folders_that_are_there_or_all(tmp_path: Path) -> None:
    assert folders_in(tmp_path, ["a", "b/c"]) == [str(tmp_path / "a"), str(tmp_path / "b/c")]
    (tmp_path / "b/c").mkdir(parents=True)
    assert folders_in(tmp_path, ["a", "b/c"]) == [str(tmp_path / "b/c")]


def test_a_tokenizer_is_trained_once(tmp_path: Path) -> None:
    text = {"text": ["one two three", "eins zwei drei"] * 20, "language": ["en", "de"] * 20}
    folder = tmp_path / "tokenizer"
    rows = [dict(zip(text, row, strict=True)) for row in zip(*text.values(), strict=True)]
    sources = [(Dataset.from_list(rows), "text", "language")]
    assert shared_tokenizer(folder, lambda: sources, 60) == str(folder)
    trained = (folder / "tokenizer.json").read_bytes()
    shared_tokenizer(folder, lambda: pytest.fail("trained again"), 60)
    assert (folder / "tokenizer.json").read_bytes() == trained


def test_every_row_is_run() -> None:
    ran: list[tuple[str, int]] = []
    run_all([("a", 1), ("b", 2), ("c", 3)], lambda name, size: ran.append((name, size)), jobs=2)
    assert sorted(ran) == [("a", 1), ("b", 2), ("c", 3)]


def test_several_at_a_time_have_one_thread_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert run_logged([PRINT_THREADS], tmp_path / "run", 1)
    assert run_logged([PRINT_THREADS], tmp_path / "run", 2, append=True)
    assert (tmp_path / "run" / "log.txt").read_text().split() == ["None", "1"]


def test_after_a_failure_nothing_more_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not run_logged([FAIL, PRINT_THREADS], tmp_path / "run", 1)
    assert (tmp_path / "run" / "log.txt").read_text().strip() == "no"
    assert "run failed: see" in capsys.readouterr().err


def test_the_command_can_be_run_again(tmp_path: Path) -> None:
    keep_command("/elsewhere/training_scripts/study.py", ["--rows", "+ CCP"], tmp_path)
    assert (tmp_path / "command.txt").read_text() == "python -m training_scripts.studies.study --rows '+ CCP'\n"
