"""Which checkpoints of a run are complete, and of which run they are."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from datasets import Dataset
from transformers import TrainerState

from st_xlret.training.checkpoints import (
    MANIFEST_FILE,
    ManifestCallback,
    correct_best_checkpoint,
    differences,
    fault_of,
    fingerprint,
    last_complete_checkpoint,
    remove_checkpoints,
    remove_unfinished_checkpoint,
    remove_unfinished_checkpoints,
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
    assert manifest["files"]["model.safetensors"]["bytes"] == len("weights")


def test_the_last_complete_checkpoint_is_the_one_of_the_highest_step(tmp_path: Path) -> None:
    assert last_complete_checkpoint(tmp_path / "missing") is None
    assert last_complete_checkpoint(tmp_path) is None
    checkpoint(tmp_path, 1000, whole=False)
    assert last_complete_checkpoint(tmp_path) is None
    # By number, not by name or by time.
    for step in (100, 20, 3):
        checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-best").mkdir()
    assert last_complete_checkpoint(str(tmp_path)) == tmp_path / "checkpoint-100"


@pytest.mark.parametrize("name", [*CONTENTS, MANIFEST_FILE])
@pytest.mark.parametrize("damage", ["missing", "truncated", "changed"])
def test_a_damaged_checkpoint_is_passed_over_and_named(
    tmp_path: Path, name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint(tmp_path, 2)
    file = checkpoint(tmp_path, 4) / name
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(content[: len(content) // 2] if damage == "truncated" else b"#" + content[1:])
    with caplog.at_level(logging.WARNING):
        assert last_complete_checkpoint(tmp_path, read_files=True) == tmp_path / "checkpoint-2"
    assert name in caplog.text and "checkpoint-4" in caplog.text


def test_sizes_are_compared_without_reading(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, 2)
    (path / "model.safetensors").write_text("WEIGHTS")
    assert fault_of(path, read_files=False) is None
    assert "model.safetensors" in str(fault_of(path))


def test_only_an_unfinished_checkpoint_is_removed(tmp_path: Path) -> None:
    whole, half = checkpoint(tmp_path, 2), checkpoint(tmp_path, 4, whole=False)
    assert [remove_unfinished_checkpoint(tmp_path, step) for step in (2, 3, 4)] == [False, False, True]
    assert whole.is_dir() and not half.exists()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"files": []}', '{"files": {}}', '{"files": {"a": 1}, "run": {}}']
)
def test_a_manifest_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    path = checkpoint(tmp_path, 2)
    (path / MANIFEST_FILE).write_text(content)
    assert MANIFEST_FILE in str(fault_of(path))


def test_checkpoints_without_a_manifest_are_removed(tmp_path: Path) -> None:
    whole, half = checkpoint(tmp_path, 2), checkpoint(tmp_path, 4, whole=False)
    remove_unfinished_checkpoints(tmp_path)
    assert whole.is_dir() and not half.exists()


@pytest.mark.parametrize("damage", [None, "truncated", "gone"])
def test_the_best_checkpoint_is_found_where_it_is_now_or_forgotten(tmp_path: Path, damage: str | None) -> None:
    best, last = checkpoint(tmp_path, 2), checkpoint(tmp_path, 4)
    if damage == "truncated":
        (best / "model.safetensors").write_text("w")
    elif damage == "gone":
        shutil.rmtree(best)
    state = TrainerState(best_model_checkpoint="where/it/was/checkpoint-2", best_metric=0.5)
    correct_best_checkpoint(state, last)
    assert (state.best_model_checkpoint, state.best_metric) == ((None, None) if damage else (str(best), 0.5))


def test_all_checkpoints_are_removed_and_nothing_else(tmp_path: Path) -> None:
    checkpoint(tmp_path, 2)
    checkpoint(tmp_path, 4, whole=False)
    (tmp_path / "eval").mkdir()
    remove_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["eval"]
    remove_checkpoints(tmp_path / "missing")


def test_what_differs_is_named(tmp_path: Path) -> None:
    then = {"options": {"learning_rate": 1e-3, "pairs": ["a"], "seed": 1}, "data": {"ccp": "7 rows, ab"}}
    now = {"options": {"learning_rate": 1e-2, "pairs": ["a"], "window_size": 3}, "data": {"ccp": "7 rows, ab"}}
    path = checkpoint(tmp_path, 1, record=then)
    assert differences(path, then) == []
    assert differences(path, now) == [
        "options.learning_rate was 0.001, is 0.01",
        "options.seed was 1, is None",
        "options.window_size was None, is 3",
    ]


def test_options_that_an_earlier_version_had_not_are_what_it_did(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, 1, record={"options": {"seed": 1}})
    later = {"seed": 1, "keep_trained": 1.0, "contrastive_ratio": 0.0, "dropout": None}
    assert differences(path, {"options": later}) == []
    assert differences(path, {"options": {**later, "contrastive_ratio": 0.5}}) == [
        "options.contrastive_ratio was 0.0, is 0.5"
    ]


@pytest.mark.parametrize("script, before", [({"seed": 1}, None), ({"english_share": 0.5}, 0.0)])
def test_runs_before_the_option_dropout(tmp_path: Path, script: dict[str, float], before: float | None) -> None:
    path = checkpoint(tmp_path, 1, record={"options": script})
    assert differences(path, {"options": {**script, "dropout": before}}) == []
    assert differences(path, {"options": {**script, "dropout": 0.2}}) == [f"options.dropout was {before}, is 0.2"]


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
