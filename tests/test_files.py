"""Writing files and models whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from st_xlret.files import (
    atomic_directory,
    atomic_file,
    check_output_directory,
    check_output_file,
    remove_leftovers,
    save_model,
    write_json,
    write_text,
)


class Model:
    """Saves two files; `error` strikes between them, as a disk that fills would."""

    def __init__(self, content: str = "new", error: BaseException | None = None) -> None:
        self.content = content
        self.error = error

    def save_pretrained(self, path: str) -> None:
        (Path(path) / "modules.json").write_text(self.content)
        if self.error is not None:
            raise self.error
        save_file({"a": torch.zeros(1)}, Path(path) / "model.safetensors")  # written for its owner alone


def content_of(folder: Path) -> str:
    assert sorted(os.listdir(folder)) == ["model.safetensors", "modules.json"]
    return (folder / "modules.json").read_text()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_model(Model("old"), tmp_path / "model")


@pytest.mark.parametrize("exists", [False, True])
def test_saves_where_nothing_was(tmp_path: Path, exists: bool) -> None:
    target = tmp_path / "runs" / "model"
    if exists:
        target.mkdir(parents=True)
    assert save_model(Model(), target) == target
    assert content_of(target) == "new"
    assert os.listdir(target.parent) == ["model"]


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_weights_are_as_readable_as_the_umask_says(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        folder = save_model(Model(), tmp_path / "model")
        with atomic_file(tmp_path / "one.safetensors") as temporary:
            save_file({"a": torch.zeros(1)}, temporary)
        (tmp_path / "plain").mkdir()
    finally:
        os.umask(before)
    written = [folder / "modules.json", folder / "model.safetensors", tmp_path / "one.safetensors"]
    assert [file.stat().st_mode & 0o777 for file in written] == [0o666 & ~umask] * 3
    assert folder.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_overwrite_replaces_the_whole_model(saved: Path) -> None:
    with pytest.raises(FileExistsError, match=rf"{saved}.*--overwrite"):
        save_model(Model(), saved)
    assert content_of(saved) == "old"
    (saved / "stale.json").write_text("{}")
    save_model(Model(), saved, overwrite=True)
    assert content_of(saved) == "new"
    assert os.listdir(saved.parent) == ["model"]


def test_overwrite_never_deletes_a_folder_without_the_marker(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="no saved model"):
        save_model(Model(), tmp_path, overwrite=True)
    assert os.listdir(tmp_path) == ["thesis.tex"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        SafetensorError("I/O error: No space left on device (os error 28)"),
        Exception("No space left on device (os error 28)"),  # that of the tokenizers' library, which is in Rust
    ],
)
def test_a_full_disk_leaves_nothing_and_loses_nothing(saved: Path, error: BaseException) -> None:
    with pytest.raises(OSError, match=r"Could not save to .*No space left on device.*Free some space"):
        save_model(Model(error=error), saved.parent / "other")
    with pytest.raises(OSError, match="before is unchanged") as caught:
        save_model(Model(error=error), saved, overwrite=True)
    assert caught.value.errno == errno.ENOSPC
    assert content_of(saved) == "old"
    assert os.listdir(saved.parent) == ["model"]


def test_a_file_that_is_written_for_another_one_is_what_failed(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match="Could not write .*part: No space left") as caught,
        atomic_file(tmp_path / "whole"),
        atomic_file(tmp_path / "part"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "whole" not in str(caught.value) and os.listdir(tmp_path) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug"), FileNotFoundError(2, "no", "input")])
def test_other_errors_pass_unchanged_and_clean_up(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        save_model(Model(error=error), tmp_path / "model")
    assert caught.value is error
    assert os.listdir(tmp_path) == []


def test_a_failed_swap_puts_the_old_model_back(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename, calls = os.rename, []

    def fail_the_second_time(source: Path, destination: Path) -> None:
        calls.append(source)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, destination)

    monkeypatch.setattr(os, "rename", fail_the_second_time)
    with pytest.raises(OSError, match="before is unchanged"):
        save_model(Model(), saved, overwrite=True)
    assert len(calls) == 3
    assert content_of(saved) == "old"
    assert os.listdir(saved.parent) == ["model"]


def test_a_target_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError), atomic_directory(tmp_path / "model") as folder:
        (folder / "a").write_text("mine")
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "a").write_text("theirs")
    assert (tmp_path / "model" / "a").read_text() == "theirs"
    assert os.listdir(tmp_path) == ["model"]


def test_of_a_link_the_target_is_written(saved: Path) -> None:
    folder, file, loop = (saved.parent / name for name in ("latest", "latest.json", "loop"))
    folder.symlink_to(saved)
    file.symlink_to(saved.parent / "results.json")
    loop.symlink_to(loop)
    save_model(Model(), folder, overwrite=True)
    write_json(file, 1)
    assert folder.is_symlink() and file.is_symlink()
    assert content_of(saved) == "new"
    assert (saved.parent / "results.json").read_text() == "1\n"
    with pytest.raises(OSError, match="loop"):
        write_json(loop, 1)


@pytest.mark.parametrize("write", [check_output_file, lambda path: write_text(path, "new")])
def test_an_output_is_a_regular_file_or_new(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path(os.devnull), tmp_path / "pipe"):
        before = path.stat()
        with pytest.raises(OSError, match="no regular file"):
            write(path)
        assert path.stat().st_mode == before.st_mode
    with pytest.raises(IsADirectoryError, match="give the name of a file"):
        write(tmp_path)
    with pytest.raises(OSError, match=rf"{tmp_path}.*can be written"):
        write(tmp_path / "pipe" / "results.json")
    assert os.listdir(tmp_path) == ["pipe"]


def test_check_output_directory(tmp_path: Path) -> None:
    target = tmp_path / "runs" / "ccp"
    assert check_output_directory(target) == target
    assert os.listdir(tmp_path) == []  # a run that fails leaves no empty folders
    save_model(Model(), target)
    with pytest.raises(FileExistsError, match=rf"{target} already holds a saved model.*--overwrite.*--resume"):
        check_output_directory(target, resume=False)
    with pytest.raises(FileExistsError) as caught:
        check_output_directory(target)  # a program without --resume does not recommend it
    assert "--resume" not in str(caught.value) and "--overwrite" in str(caught.value)
    check_output_directory(target, overwrite=True)
    check_output_directory(target, resume=True)
    assert content_of(target) == "new"
    for options in ({"overwrite": True}, {"resume": True}):
        with pytest.raises(FileExistsError, match="is a file"):
            check_output_directory(target / "modules.json", **options)
    with pytest.raises(OSError, match="Cannot write to"):
        check_output_directory(target / "modules.json" / "run")


def test_text_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_text(tmp_path / "a.txt", "größer")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"Could not write .*a\.txt: No space left on device"):
        write_text(path, "new")
    assert path.read_bytes() == "größer".encode()
    assert os.listdir(tmp_path) == ["a.txt"]


def test_json_of_arrays_paths_and_missing_values(tmp_path: Path) -> None:
    results = {
        "accuracy": np.float32(0.5),
        "loss": torch.tensor(2.0),
        "by_language": np.array([1, 2]),
        "undefined": [float("nan"), np.float64("inf"), torch.tensor(float("nan"))],
        "model": Path("runs/a"),
        "text": "ελ",
    }
    path = write_json(tmp_path / "results.json", results)
    written = {
        "accuracy": 0.5,
        "loss": 2.0,
        "by_language": [1, 2],
        "undefined": [None, None, None],
        "model": "runs/a",
        "text": "ελ",
    }
    assert path.read_text(encoding="utf-8") == json.dumps(written, indent=2, ensure_ascii=False) + "\n"
    with pytest.raises(TypeError, match="object"):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == written


@pytest.mark.parametrize("new_is_there", [False, True])
def test_a_model_moved_aside_by_a_killed_program_is_put_back(tmp_path: Path, new_is_there: bool) -> None:
    aside = "model.0a1b2c3d.st-xlret-replaced"
    for name in (aside, *(["model"] if new_is_there else [])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "modules.json").write_text(name)
    (tmp_path / "model").mkdir(exist_ok=True)  # empty, as a user may leave it
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ["model"]
    assert (tmp_path / "model" / "modules.json").read_text() == ("model" if new_is_there else aside)


def test_leftovers_are_known_by_our_names_alone(tmp_path: Path) -> None:
    theirs = [".notes.tmp", ".env.tmpl", ".config.tmp_backup", "data.replaced-by-me.csv", ".a.0a1b2c3d.tmp"]
    for name in theirs:
        (tmp_path / name).mkdir()
    (tmp_path / ".model.0a1b2c3d.st-xlret-tmp" / "half").mkdir(parents=True)
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(theirs)


def test_the_next_writing_removes_leftovers_of_the_day_before(tmp_path: Path) -> None:
    old, new, other = (
        tmp_path / f".{name}.st-xlret-tmp" for name in ("a.txt.00000000", "a.txt.11111111", "b.txt.00000000")
    )
    for folder in (old, new, other):
        folder.mkdir()
    for folder in (old, other):
        os.utime(folder, times=(time.time() - 100_000,) * 2)
    write_text(tmp_path / "a.txt", "")
    assert set(tmp_path.iterdir()) == {new, other, tmp_path / "a.txt"}
