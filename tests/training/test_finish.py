"""What a finished run leaves behind, also when the disk fills between two of its parts."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret import files as saving
from st_xlret.training import finish
from st_xlret.training.finish import finish_run
from tests import tiny

HISTORY = [{"step": 1, "loss": 1.0, "loss_ccp": 1.0}]


def full(*args: Any, **kwargs: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_model_results_and_curves(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    model = tiny.static()
    path = finish_run(model, tmp_path / "run", {"accuracy": torch.tensor(0.5)}, history=HISTORY)
    assert path == tmp_path / "run" / "model"
    assert names(tmp_path / "run") == ["model", "results.json", "training.png"]
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == {"accuracy": 0.5}
    loaded = SentenceTransformer(str(path), device="cpu")
    assert torch.equal(loaded[0].embedding.weight, model[0].embedding.weight)


def test_without_a_history_there_are_no_curves(tmp_path: Path) -> None:
    finish_run(tiny.static(), str(tmp_path), {})
    assert names(tmp_path) == ["model", "results.json"]


def test_a_model_is_replaced_only_if_asked(tmp_path: Path) -> None:
    finish_run(tiny.static(seed=1), tmp_path, {"run": 1})
    with pytest.raises(FileExistsError, match="--overwrite"):
        finish_run(tiny.static(seed=2), tmp_path, {"run": 2})
    assert json.loads((tmp_path / "results.json").read_text()) == {"run": 1}
    finish_run(tiny.static(seed=2), tmp_path, {"run": 2}, overwrite=True)
    assert json.loads((tmp_path / "results.json").read_text()) == {"run": 2}


def test_a_full_disk_at_the_model_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish_run(tiny.static(), tmp_path, {"run": 1})
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    monkeypatch.setattr(SentenceTransformer, "save_pretrained", full)
    with pytest.raises(OSError, match=r"Could not save to .*model: No space left.*before is unchanged"):
        finish_run(tiny.static(seed=2), tmp_path, {"run": 2}, overwrite=True)
    assert names(tmp_path) == ["model", "results.json"]
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before
    assert json.loads((tmp_path / "results.json").read_text()) == {"run": 1}


def test_a_full_disk_at_the_results_keeps_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving.os, "fsync", full)
    with pytest.raises(OSError, match=r"Could not write .*results.json: No space left"):
        finish_run(tiny.static(), tmp_path, {"run": 1}, history=HISTORY)
    assert names(tmp_path) == ["model"]
    SentenceTransformer(str(tmp_path / "model"), device="cpu")


def test_the_push_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    pushed: list[tuple[Path, str, list[str]]] = []

    def push(path: Path, repo_id: str) -> None:
        pushed.append((path, repo_id, names(tmp_path)))

    monkeypatch.setattr(finish, "push_to_hub", push)
    finish_run(tiny.static(), tmp_path, {}, history=HISTORY, repo_id="me/model")
    assert pushed == [(tmp_path / "model", "me/model", ["model", "results.json", "training.png"])]
