"""Writing files and models whole or not at all."""

from __future__ import annotations

import errno
import json
import os
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
    save_model,
    write_json,
    write_text,
)


class Model:
    """Saves two files; `error` strikes between them, as a disk that fills would."""

    def __init__(self, content: str = "new", error: BaseException | None = None) -> None:
        self.content, self.error = content, error

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


def test_saves_where_nothing_was(tmp_path: Path) -> None:
    target = tmp_path / "runs" / "model"
    assert save_model(Model(), target) == target and content_of(target) == "new"
    assert os.listdir(target.parent) == ["model"]


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_weights_are_as_readable_as_the_umask_says(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        folder = save_model(Model(), tmp_path / "model")
        with atomic_file(tmp_path / "one.safetensors") as temporary:
            save_file({"a": torch.zeros(1)}, temporary)
    finally:
        os.umask(before)
    written = [folder / "modules.json", folder / "model.safetensors", tmp_path / "one.safetensors"]
    assert [file.stat().st_mode & 0o777 for file in written] == [0o666 & ~umask] * 3
    assert folder.stat().st_mode & 0o777 == 0o777 & ~umask


@pytest.mark.parametrize("marker", ["modules.json", "calibration.json"])
def test_overwrite_replaces_the_whole_folder(saved: Path, marker: str) -> None:
    (saved / "modules.json").rename(saved / marker)
    with pytest.raises(FileExistsError, match=f"{saved}.*--overwrite"):
        save_model(Model(), saved)
    (saved / "stale.json").write_text("{}")
    save_model(Model(), saved, overwrite=True)
    assert content_of(saved) == "new" and os.listdir(saved.parent) == ["model"]


def test_overwrite_never_deletes_a_folder_without_the_marker(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=str(tmp_path)):
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
    for target in (saved.parent / "other", saved):
        with pytest.raises(OSError, match=str(target)) as caught:
            save_model(Model(error=error), target, overwrite=True)
        assert caught.value.errno == errno.ENOSPC
    assert content_of(saved) == "old" and os.listdir(saved.parent) == ["model"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug"), FileNotFoundError(2, "no", "input")])
def test_other_errors_pass_unchanged_and_clean_up(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        save_model(Model(error=error), tmp_path / "model")
    assert caught.value is error and os.listdir(tmp_path) == []


def test_a_failed_swap_puts_the_old_model_back(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename, calls = os.rename, []

    def fail_the_second_time(source: Path, destination: Path) -> None:
        calls.append(source)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, destination)

    monkeypatch.setattr(os, "rename", fail_the_second_time)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        save_model(Model(), saved, overwrite=True)
    assert len(calls) == 3 and content_of(saved) == "old" and os.listdir(saved.parent) == ["model"]


def test_a_target_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError), atomic_directory(tmp_path / "model") as folder:
        (folder / "a").write_text("mine")
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "a").write_text("theirs")
    assert (tmp_path / "model" / "a").read_text() == "theirs" and os.listdir(tmp_path) == ["model"]


def test_of_a_link_the_target_is_written(saved: Path) -> None:
    folder, file, loop = (saved.parent / name for name in ("latest", "latest.json", "loop"))
    folder.symlink_to(saved)
    file.symlink_to(saved.parent / "results.json")
    loop.symlink_to(loop)
    save_model(Model(), folder, overwrite=True)
    write_json(file, 1)
    assert folder.is_symlink() and file.is_symlink() and content_of(saved) == "new"
    assert (saved.parent / "results.json").read_text() == "1\n"
    with pytest.raises(OSError, match=str(loop)):
        write_json(loop, 1)


@pytest.mark.parametrize("write", [check_output_file, lambda path: write_text(path, "new")])
def test_an_output_is_a_regular_file_or_new(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path(os.devnull), tmp_path / "pipe", tmp_path, tmp_path / "pipe" / "results.json"):
        before = path.stat() if path.exists() else None
        with pytest.raises(OSError, match=str(path.parent)):
            write(path)
        assert before is None or path.stat().st_mode == before.st_mode
    assert os.listdir(tmp_path) == ["pipe"]


def test_check_output_directory(tmp_path: Path) -> None:
    target = tmp_path / "runs" / "ccp"
    assert check_output_directory(target) == target
    assert os.listdir(tmp_path) == []  # a run that fails leaves no empty folders
    save_model(Model(), target)
    with pytest.raises(FileExistsError, match="--overwrite.*--resume"):
        check_output_directory(target, resume=False)
    check_output_directory(target, overwrite=True)
    check_output_directory(target, resume=True)
    assert content_of(target) == "new"
    for how in ({"overwrite": True}, {"resume": True}):
        with pytest.raises(FileExistsError, match=r"modules\.json"):
            check_output_directory(target / "modules.json", **how)
    with pytest.raises(OSError, match=r"modules\.json"):
        check_output_directory(target / "modules.json" / "run")


def test_json_of_arrays_paths_and_missing_values(tmp_path: Path) -> None:
    arrays = {"accuracy": np.float32(0.5), "loss": torch.tensor(2.0), "by_language": np.array([1, 2])}
    undefined = [float("nan"), np.float64("inf"), torch.tensor(float("nan"))]
    path = write_json(tmp_path / "a.json", {**arrays, "undefined": undefined, "model": Path("runs/a"), "text": "ελ"})
    written = {"accuracy": 0.5, "loss": 2.0, "by_language": [1, 2], "undefined": [None] * 3, "model": "runs/a"}
    assert path.read_text(encoding="utf-8") == json.dumps(written | {"text": "ελ"}, indent=2, ensure_ascii=False) + "\n"
    with pytest.raises(TypeError, match="object"):
        write_json(path, {"a": object()})
    assert "ελ" in path.read_text(encoding="utf-8")
