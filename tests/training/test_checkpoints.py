"""Which checkpoints of a run are complete, and of which run they are."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from datasets import Dataset

from st_xlret.training.checkpoints import (
    MANIFEST_FILE,
    ManifestCallback,
    differences,
    fingerprint,
    is_complete,
    last_checkpoint,
)

CONTENTS = {"trainer_state.json": '{"global_step": 1}', "model.safetensors": "weights", "eval/scores.csv": "1,2"}


def checkpoint(folder: Path, step: int, *, whole: bool = True, record: dict[str, Any] | None = None) -> Path:
    path = folder / f"checkpoint-{step}"
    for name, text in CONTENTS.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    if whole:
        state: Any = SimpleNamespace(global_step=step)
        args: Any = SimpleNamespace(output_dir=str(folder), should_save=True)
        ManifestCallback(record or {}).on_save(args, state, None)  # type: ignore[arg-type]
    return path


def test_the_manifest_lists_every_file(tmp_path: Path) -> None:
    manifest = json.loads((checkpoint(tmp_path, 1) / MANIFEST_FILE).read_text())
    assert set(manifest["files"]) == set(CONTENTS)
    assert manifest["files"]["model.safetensors"] == len("weights")


def test_the_last_complete_checkpoint_is_the_one_of_the_highest_step(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path / "missing") is None and last_checkpoint(tmp_path) is None
    half = checkpoint(tmp_path, 1000, whole=False)
    # By number, not by name or by time.
    for step in (100, 20, 3):
        checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-best").mkdir()
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-100"
    assert not half.exists() and (tmp_path / "checkpoint-best").is_dir()


@pytest.mark.parametrize("name", [*CONTENTS, MANIFEST_FILE])
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, name: str, damage: str) -> None:
    checkpoint(tmp_path, 2)
    file = checkpoint(tmp_path, 4) / name
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(content[: len(content) // 2])
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-2"


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"files": []}', '{"files": {"a": 1}, "run": {}}'])
def test_a_manifest_that_is_none(tmp_path: Path, content: str) -> None:
    path = checkpoint(tmp_path, 2)
    (path / MANIFEST_FILE).write_text(content)
    assert not is_complete(path)


def test_what_differs_is_named(tmp_path: Path) -> None:
    then = {"options": {"learning_rate": 1e-3, "pairs": ["a"], "seed": 1}, "data": {"ccp": "7 rows, ab"}}
    now = {"options": {"learning_rate": 1e-2, "pairs": ["a"], "window_size": 3}, "data": {"ccp": "7 rows, ab"}}
    path = checkpoint(tmp_path, 1, record=then)
    assert differences(path, then) == []
    assert differences(path, now) == [
        "learning_rate was 0.001, is 0.01",
        "seed was 1, is None",
        "window_size was None, is 3",
    ]


def test_the_fingerprint_of_data_is_that_of_their_rows() -> None:
    rows = {"sentence": [str(i) for i in range(200)]}
    same, shorter = Dataset.from_dict(rows), Dataset.from_dict({"sentence": rows["sentence"][:-1]})
    other = Dataset.from_dict({"sentence": ["x", *rows["sentence"][1:]]})
    between = Dataset.from_dict({"sentence": [*rows["sentence"][:1], "one row", *rows["sentence"][2:]]})
    assert fingerprint(between) != fingerprint(same)
    of_same = fingerprint({"ccp": Dataset.from_dict(rows)})
    assert of_same == fingerprint({"ccp": same})
    assert of_same != fingerprint({"ccp": shorter}) and of_same != fingerprint({"ccp": other})
    assert fingerprint(Dataset.from_dict({"sentence": []}))["data"].startswith("0 rows")
