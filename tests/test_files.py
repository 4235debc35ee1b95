"""Outputs are whole or not there, and never over what somebody else wrote."""

import errno
import json
import os
from collections.abc import Callable
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
from st_xlret.hub.portable import write_model
from st_xlret.marks import FOLDER_MARK

OURS = "scores"


@dataclass
class Model:
    """Saves two files; `error` strikes between them, as a disk that fills would."""

    content: str = "new"
    error: BaseException | None = None
    children: Callable[[], list] = list
    state_dict: Callable[[], dict] = dict
    model_card_data: CrossLingualCardData = field(default_factory=CrossLingualCardData)

    def save_pretrained(self, path: str, create_model_card: bool) -> None:
        modules = [{"type": self.content, "path": ""}]
        (Path(path) / "modules.json").write_text(json.dumps(modules))
        if self.error is not None:
            raise self.error
        # safetensors writes for its owner alone.
        save_file({"a": torch.zeros(1)}, Path(path) / "model.safetensors")


def content_of(folder: Path) -> str:
    assert sorted(os.listdir(folder)) == [FOLDER_MARK, "model.safetensors", "modules.json"]
    modules = json.loads((folder / "modules.json").read_text())
    return str(modules[0]["type"])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return write_model(Model("old"), tmp_path / "model")


def test_weights_are_as_readable_as_the_umask_says(saved: Path) -> None:
    umask = os.umask(0)  # which is the only way to read it
    os.umask(umask)
    modes = {file.stat().st_mode & 0o777 for file in saved.iterdir() if file.name != FOLDER_MARK}
    assert modes == {0o666 & ~umask}


def test_overwrite_replaces_a_folder_that_bears_our_mark(saved: Path) -> None:
    with pytest.raises(FileExistsError, match="--overwrite"):
        check_output_directory(saved)
    check_output_directory(saved, overwrite=True)
    check_output_directory(saved / "runs" / "ccp")  # which makes no folder
    assert content_of(saved) == "old"

    write_model(Model(), saved, overwrite=True)
    assert content_of(saved) == "new"
    assert os.listdir(saved.parent) == ["model"]


@pytest.mark.parametrize(
    "name",
    [
        "thesis.tex",
        "model.bin",
        "checkpoint-5/a",
        "1_Pooling/config.json",
        ".git/a",
        "query/README.md",
        "modules.json",
    ],
)
def test_a_folder_with_anything_else_is_never_replaced(saved: Path, name: str) -> None:
    (saved / name).parent.mkdir(exist_ok=True)
    (saved / name).write_text("years of work")
    with pytest.raises(FileExistsError, match=name):
        write_model(Model(), saved, overwrite=True)
    assert (saved / name).read_text() == "years of work"


@pytest.mark.parametrize("mark", [None, "", "[]", "{}", '{"files": {}}'])
def test_a_folder_without_our_mark_is_never_replaced(saved: Path, mark: str | None) -> None:
    (saved / FOLDER_MARK).unlink()
    if mark is not None:
        (saved / FOLDER_MARK).write_text(mark)
    with pytest.raises(FileExistsError, match=f"{saved} is not replaced"):
        write_model(Model(), saved, overwrite=True)
    assert json.loads((saved / "modules.json").read_text())[0]["type"] == "old"


def test_an_output_folder_holds_no_input(saved: Path) -> None:
    for source in (saved, saved / "modules.json"):
        with pytest.raises(FileExistsError, match="is read"):
            write_model(Model(), saved, overwrite=True, inputs=[None, "hub/model", str(source)])
    assert content_of(saved) == "old"


def write_score(file: Path, number: int, **options: Any) -> None:
    with atomic_file(file, ours=OURS, **options) as part:
        part.write_text(f'{{"score": {number}}}')


def test_a_file_is_replaced_by_who_wrote_it(tmp_path: Path) -> None:
    file = tmp_path / "scores.json"
    write_score(file, 1)
    write_score(file, 2)
    assert file.read_text() == '{"score": 2}'
    with pytest.raises(FileExistsError, match="scores.json"):
        write_json(file, 3, ours="report")
    write_json(file, 4)  # a name that only the program gives


@pytest.mark.parametrize("content", ['{"score": 1}', "\n", "mine"])
def test_what_somebody_else_wrote_is_not_replaced_whatever_it_begins_with(
    tmp_path: Path, content: str
) -> None:
    file = tmp_path / "scores.json"
    file.write_text(content)
    with pytest.raises(FileExistsError, match="scores.json"):
        write_score(file, 2)
    assert file.read_text() == content


def test_a_file_of_ours_that_was_changed_since_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "scores.json"
    write_score(file, 1)
    file.write_text('{"score": 9}')
    with pytest.raises(FileExistsError, match="scores.json"):
        write_score(file, 2)
    assert file.read_text() == '{"score": 9}'


def test_a_mark_does_not_follow_a_link(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    (tmp_path / ".scores.json.st-xlret").symlink_to(notes)
    write_score(tmp_path / "scores.json", 1)
    write_score(tmp_path / "scores.json", 2)
    assert notes.read_text() == "mine"


@pytest.mark.skipif(os.name == "nt", reason="files have no such modes")
def test_a_private_folder_stays_private(saved: Path) -> None:
    saved.chmod(0o700)
    write_model(Model(), saved, overwrite=True)
    assert saved.stat().st_mode & 0o777 == 0o700


def test_a_private_file_stays_private(tmp_path: Path) -> None:
    file = tmp_path / "scores.json"
    write_score(file, 1)
    file.chmod(0o600)
    write_score(file, 2)
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_output_file_is_no_input(tmp_path: Path) -> None:
    file = tmp_path / "scores.json"
    link = tmp_path / "link"
    write_score(file, 1)
    link.symlink_to(file)
    for source in (file, tmp_path, link):
        with pytest.raises(FileExistsError, match="what is read"):
            write_score(file, 2, inputs=[source])
    assert file.read_text() == '{"score": 1}'


@pytest.mark.parametrize("check", [check_output_file, check_output_directory])
def test_a_place_where_nothing_can_be_written_is_an_error_before_the_work(
    tmp_path: Path, check: Callable[[Path], Path]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        check(tmp_path / "file" / "new" / "place")


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert write_text("~/a.txt", "a") == tmp_path / "home" / "a.txt"
    assert write_model(Model(), "~/model") == tmp_path / "home" / "model"
    assert sorted(os.listdir("home")) == ["a.txt", "model"]
    assert os.listdir() == ["home"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "Could not write {}.*No space"),
        # Of libraries in Rust.
        (Exception("No space left on device (os error 28)"), "Could not write {}.*No space"),
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
    assert content_of(saved) == "old"
    assert os.listdir(saved.parent) == ["model"]


def test_a_failed_swap_puts_the_old_model_back(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_fails = [DEFAULT, OSError("a bad disk"), DEFAULT]
    monkeypatch.setattr(os, "rename", Mock(wraps=os.rename, side_effect=second_fails))
    with pytest.raises(OSError, match="a bad disk"):
        write_model(Model(), saved, overwrite=True)
    assert content_of(saved) == "old"
    assert os.listdir(saved.parent) == ["model"]


@pytest.mark.parametrize("name", ["model", "new"])
def test_a_folder_that_appears_or_changes_meanwhile_is_kept(saved: Path, name: str) -> None:
    target = saved.parent / name

    def write_beside_another() -> None:
        with atomic_directory(target, overwrite=True) as folder:
            (folder / "modules.json").write_text("mine")
            write_model(Model("theirs"), target, overwrite=True)

    with pytest.raises(FileExistsError, match="meanwhile"):
        write_beside_another()
    assert content_of(target) == "theirs"


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    def write_beside_another() -> None:
        with atomic_file(tmp_path / "a", ours=OURS) as file:
            file.write_text("mine")
            (tmp_path / "a").write_text("mine, too")

    with pytest.raises(FileExistsError, match="meanwhile"):
        write_beside_another()
    assert (tmp_path / "a").read_text() == "mine, too"
    assert os.listdir(tmp_path) == ["a"]


def test_of_a_link_the_target_is_written(saved: Path) -> None:
    folder = saved.parent / "latest"
    file = saved.parent / "latest.json"
    folder.symlink_to(saved)
    file.symlink_to(saved.parent / "results.json")
    write_model(Model(), folder, overwrite=True)
    write_json(file, 1)
    assert folder.is_symlink()
    assert file.is_symlink()
    assert content_of(saved) == "new"
    assert (saved.parent / "results.json").read_text() == "1\n"


def test_what_is_no_regular_file_is_not_written(saved: Path) -> None:
    loop = saved.parent / "loop"
    pipe = saved.parent / "pipe"
    loop.symlink_to(loop)
    os.mkfifo(pipe)
    for path in (loop, pipe, saved, pipe / "results.json"):
        with pytest.raises(OSError, match=str(path.parent)):
            write_text(path, "new")


def test_json_of_arrays_paths_and_missing_values(tmp_path: Path) -> None:
    content = {
        "loss": torch.tensor(2.0),
        "counts": np.array([1, 2]),
        "path": Path("a"),
        "ελ": np.float32(0.5),
        "undefined": [float("nan"), torch.tensor(float("inf"))],
    }
    path = write_json(tmp_path / "a.json", content)
    written = {
        "loss": 2.0,
        "counts": [1, 2],
        "path": "a",
        "ελ": 0.5,
        "undefined": [None, None],
    }
    expected = json.dumps(written, indent=2, ensure_ascii=False)
    assert path.read_text(encoding="utf-8") == f"{expected}\n"
