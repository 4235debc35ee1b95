"""Outputs are whole or not there, and never over what somebody else wrote."""

import errno
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from st_xlret.files import (
    atomic_directory,
    atomic_file,
    check_output_directory,
    check_output_file,
    write_json,
    write_text,
)
from st_xlret.hub.card import CrossLingualCardData
from st_xlret.portable import write_model


@dataclass
class Model:
    """Saves two files; `error` strikes between them, as a disk that fills would."""

    content: str = "new"
    error: BaseException | None = None
    children: Any = list
    state_dict: Any = dict
    model_card_data: Any = field(default_factory=CrossLingualCardData)

    def save_pretrained(self, path: str, create_model_card: bool) -> None:
        (Path(path) / "modules.json").write_text(json.dumps([{"type": self.content, "path": ""}]))
        if self.error is not None:
            raise self.error
        save_file(
            {"a": torch.zeros(1)}, Path(path) / "model.safetensors"
        )  # written for its owner alone


def content_of(folder: Path) -> str:
    assert {"modules.json", "model.safetensors"} <= {*os.listdir(folder)}
    return str(json.loads((folder / "modules.json").read_text())[0]["type"])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return write_model(Model("old"), tmp_path / "model")


def test_weights_are_as_readable_as_the_umask_says(saved: Path) -> None:
    os.umask(umask := os.umask(0))  # which is the only way to read it
    assert {file.stat().st_mode & 0o777 for file in saved.iterdir()} == {0o666 & ~umask}


@pytest.mark.parametrize("marker", ["modules.json", "calibration.json"])
def test_overwrite_replaces_a_model_or_a_map(saved: Path, marker: str) -> None:
    (saved / "modules.json").rename(saved / marker)
    for stale in (
        "3_Router/en_0_Dense/config.json",
        "1_Pooling/config.json",
        "strength.png",
        "tokenizer.json",
    ):
        (saved / stale).parent.mkdir(parents=True, exist_ok=True)
        (saved / stale).write_text("{}")
    with pytest.raises(FileExistsError, match="--overwrite"):
        check_output_directory(saved)
    check_output_directory(saved, overwrite=True)
    check_output_directory(saved / "runs" / "ccp")  # which makes no folder
    write_model(Model(), saved, overwrite=True)
    assert (
        content_of(saved) == "new"
        and len(os.listdir(saved)) == 2
        and os.listdir(saved.parent) == ["model"]
    )


@pytest.mark.parametrize(
    "name",
    [
        "thesis.tex",
        "checkpoint-5/a",
        "1_Pooling/a.txt",
        ".git/a",
        "2024_Old/config.json",
        "query/README.md",
    ],
)
def test_a_folder_with_anything_else_is_never_replaced(saved: Path, name: str) -> None:
    (saved / name).parent.mkdir(exist_ok=True)
    (saved / name).write_text("years of work")
    with pytest.raises(FileExistsError, match=name.partition("/")[0]):
        write_model(Model(), saved, overwrite=True)
    assert (saved / name).read_text() == "years of work" and content_of(saved) == "old"


def test_an_output_folder_holds_no_input_and_a_saved_model(saved: Path) -> None:
    for source in (saved, saved / "modules.json"):
        with pytest.raises(FileExistsError, match="is read"):
            write_model(Model(), saved, overwrite=True, inputs=[None, "hub/model", str(source)])
    (saved / "modules.json").unlink()  # weights alone are no saved model
    with pytest.raises(FileExistsError, match=str(saved)):
        write_model(Model(), saved, overwrite=True)


def test_an_output_file_is_new_or_ours_and_no_input(tmp_path: Path) -> None:
    file = tmp_path / "scores.json"

    def write(number: int, **inputs: Any) -> None:
        with atomic_file(file, ours=r'\{"score', **inputs) as part:
            part.write_text(f'{{"score": {number}}}')

    file.write_text("mine")
    with pytest.raises(FileExistsError, match="scores.json"):
        write(1)
    assert file.read_text() == "mine"
    file.unlink()
    for number in (1, 2):
        write(number)
    (tmp_path / "link").symlink_to(file)
    for source in (file, tmp_path, tmp_path / "link"):
        with pytest.raises(FileExistsError, match="what is read"):
            write(3, inputs=[source])
    assert file.read_text() == '{"score": 2}'
    for check in (check_output_file, check_output_directory):  # before anything is computed
        with pytest.raises(NotADirectoryError):
            check(file / "new" / "place")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "Could not write {}.*No space"),
        (
            Exception("No space left on device (os error 28)"),
            "Could not write {}.*No space",
        ),  # of libraries in Rust
        (KeyboardInterrupt(), "^$"),
        (FileNotFoundError(2, "no", "input"), "input"),
    ],
)
def test_an_error_leaves_nothing_and_loses_nothing(
    saved: Path, error: BaseException, message: str
) -> None:
    for target in (saved.parent / "runs" / "other", saved):
        with pytest.raises((OSError, KeyboardInterrupt), match=message.format(target)):
            write_model(Model(error=error), target, overwrite=True)
    assert content_of(saved) == "old" and os.listdir(saved.parent) == ["model"]


def test_a_failed_swap_puts_the_old_model_back(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        os, "rename", Mock(wraps=os.rename, side_effect=[DEFAULT, OSError("a bad disk"), DEFAULT])
    )
    with pytest.raises(OSError, match="a bad disk"):
        write_model(Model(), saved, overwrite=True)
    assert content_of(saved) == "old" and os.listdir(saved.parent) == ["model"]


def test_what_appears_or_changes_meanwhile_is_kept(saved: Path) -> None:
    for target in (saved.parent / "new", saved):
        with (
            pytest.raises(FileExistsError, match="meanwhile"),
            atomic_directory(target, overwrite=True) as folder,
        ):
            (folder / "modules.json").write_text("mine")
            write_model(Model("theirs"), target, overwrite=True)
        assert content_of(target) == "theirs"
    with (
        pytest.raises(FileExistsError, match="meanwhile"),
        atomic_file(saved.parent / "a", ours="mine") as file,
    ):
        file.write_text("mine")
        (saved.parent / "a").write_text("mine, too")
    assert (saved.parent / "a").read_text() == "mine, too" and len(os.listdir(saved.parent)) == 3


def test_of_a_link_the_target_is_written_and_no_pipe(saved: Path) -> None:
    folder, file, loop, pipe = (
        saved.parent / name for name in ("latest", "latest.json", "loop", "pipe")
    )
    folder.symlink_to(saved)
    file.symlink_to(saved.parent / "results.json")
    loop.symlink_to(loop)
    os.mkfifo(pipe)
    write_model(Model(), folder, overwrite=True)
    write_json(file, 1)
    assert folder.is_symlink() and file.is_symlink() and content_of(saved) == "new"
    assert (saved.parent / "results.json").read_text() == "1\n"
    for path in (loop, pipe, saved, pipe / "results.json"):
        with pytest.raises(OSError, match=str(path.parent)):
            write_text(path, "new")


def test_json_of_arrays_paths_and_missing_values(tmp_path: Path) -> None:
    content = {
        "loss": torch.tensor(2.0),
        "counts": np.array([1, 2]),
        "path": Path("a"),
        "ελ": np.float32(0.5),
    }
    path = write_json(
        tmp_path / "a.json", content | {"undefined": [float("nan"), torch.tensor(float("inf"))]}
    )
    written = {"loss": 2.0, "counts": [1, 2], "path": "a", "ελ": 0.5, "undefined": [None] * 2}
    assert (
        path.read_text(encoding="utf-8") == json.dumps(written, indent=2, ensure_ascii=False) + "\n"
    )
