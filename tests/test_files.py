from __future__ import annotations

import errno
import json
import os
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
    remove_leftovers,
    save_model_atomically,
    write_json_atomically,
    write_text_atomically,
)


class Model:
    """Saves two files; ``error`` strikes between them, as a disk that fills would."""

    def __init__(self, content: str = "new", error: BaseException | None = None) -> None:
        self.content = content
        self.error = error

    def save_pretrained(self, path: str) -> None:
        (Path(path) / "modules.json").write_text(self.content)
        if self.error is not None:
            raise self.error
        (Path(path) / "model.safetensors").write_text(self.content)


def contents(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.iterdir()}


NEW = {"modules.json": "new", "model.safetensors": "new"}
OLD = {"modules.json": "old", "model.safetensors": "old"}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_model_atomically(Model("old"), tmp_path / "model")


def test_saves_where_nothing_was_and_makes_parents(tmp_path: Path) -> None:
    target = tmp_path / "runs" / "a" / "model"
    assert save_model_atomically(Model(), target) == target
    assert contents(target) == NEW
    assert os.listdir(target.parent) == ["model"]


def test_saves_into_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    save_model_atomically(Model(), tmp_path / "model")
    assert contents(tmp_path / "model") == NEW
    assert os.listdir(tmp_path) == ["model"]


def test_a_saved_folder_is_as_readable_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    save_model_atomically(Model(), tmp_path / "model")
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o002])
def test_weights_are_as_readable_as_the_umask_says(tmp_path: Path, umask: int) -> None:
    class Weights:
        def save_pretrained(self, path: str) -> None:
            (Path(path) / "modules.json").write_text("[]")
            save_file({"a": torch.zeros(1)}, Path(path) / "model.safetensors")  # written for its owner alone

    before = os.umask(umask)
    try:
        folder = save_model_atomically(Weights(), tmp_path / "model")
        with atomic_file(tmp_path / "one.safetensors") as temporary:
            save_file({"a": torch.zeros(1)}, temporary)
    finally:
        os.umask(before)
    written = [folder / "modules.json", folder / "model.safetensors", tmp_path / "one.safetensors"]
    assert [file.stat().st_mode & 0o777 for file in written] == [0o666 & ~umask] * 3
    assert not list(tmp_path.glob(".*"))


def test_refuses_to_overwrite_unless_told(saved: Path) -> None:
    with pytest.raises(FileExistsError, match=rf"{saved}.*--overwrite"):
        save_model_atomically(Model(), saved)
    assert contents(saved) == OLD


def test_overwrite_replaces_the_whole_model(saved: Path) -> None:
    (saved / "stale.json").write_text("{}")
    save_model_atomically(Model(), saved, overwrite=True)
    assert contents(saved) == NEW
    assert os.listdir(saved.parent) == ["model"]


def test_overwrite_never_deletes_a_folder_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="no saved model"):
        save_model_atomically(Model(), tmp_path, overwrite=True)
    assert contents(tmp_path) == {"thesis.tex": "years of work"}


def test_refuses_a_file(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("")
    with pytest.raises(FileExistsError, match="is a file"):
        save_model_atomically(Model(), tmp_path / "model", overwrite=True)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        SafetensorError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_leaves_nothing_and_loses_nothing(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(OSError, match=r"Could not save to .*No space left on device.*Free some space"):
        save_model_atomically(Model(error=error), tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_keeps_the_model_that_was_there(saved: Path) -> None:
    full = Model(error=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with pytest.raises(OSError, match="before is unchanged") as caught:
        save_model_atomically(full, saved, overwrite=True)
    assert caught.value.errno == errno.ENOSPC
    assert contents(saved) == OLD
    assert os.listdir(saved.parent) == ["model"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug")])
def test_other_errors_pass_unchanged_and_clean_up(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        save_model_atomically(Model(error=error), tmp_path / "model")
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
        save_model_atomically(Model(), saved, overwrite=True)
    assert len(calls) == 3
    assert contents(saved) == OLD
    assert os.listdir(saved.parent) == ["model"]


def test_a_target_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError), atomic_directory(tmp_path / "model") as folder:
        (folder / "a").write_text("mine")
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "a").write_text("theirs")
    assert contents(tmp_path / "model") == {"a": "theirs"}
    assert os.listdir(tmp_path) == ["model"]


def test_follows_a_link_to_the_model(saved: Path) -> None:
    link = saved.parent / "latest"
    link.symlink_to(saved)
    save_model_atomically(Model(), link, overwrite=True)
    assert link.is_symlink()
    assert contents(saved) == NEW


def test_check_output_directory(tmp_path: Path) -> None:
    target = tmp_path / "runs" / "ccp"
    assert check_output_directory(target) == target
    assert os.listdir(tmp_path) == []  # a run that fails leaves no empty folders
    target.mkdir(parents=True)
    (target / "modules.json").write_text("[]")
    with pytest.raises(FileExistsError, match=rf"{target} already holds a model; use --overwrite.*--resume"):
        check_output_directory(target, resume=False)
    with pytest.raises(FileExistsError) as caught:
        check_output_directory(target)  # a program without --resume does not recommend it
    assert "--resume" not in str(caught.value) and "--overwrite" in str(caught.value)
    check_output_directory(target, overwrite=True)
    check_output_directory(target, resume=True)
    assert os.listdir(target) == ["modules.json"]
    with pytest.raises(FileExistsError, match="is a file"):
        check_output_directory(target / "modules.json", overwrite=True)


def test_check_output_directory_sees_the_model_of_a_run(tmp_path: Path) -> None:
    save_model_atomically(Model(), tmp_path / "run" / "model")
    with pytest.raises(FileExistsError, match="already holds a model"):
        check_output_directory(tmp_path / "run")


def test_check_output_directory_names_what_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Cannot write to"):
        check_output_directory(tmp_path / "file" / "run")


def test_text_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_text_atomically(tmp_path / "a.txt", "größer")
    assert path.read_bytes() == "größer".encode()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"Could not write .*a\.txt: No space left on device"):
        write_text_atomically(path, "new")
    assert contents(tmp_path) == {"a.txt": "größer"}


def test_json_of_arrays_paths_and_missing_values(tmp_path: Path) -> None:
    results = {
        "accuracy": np.float32(0.5),
        "loss": torch.tensor(2.0),
        "by_language": np.array([1, 2]),
        "undefined": [float("nan"), np.float64("inf"), torch.tensor(float("nan"))],
        "model": Path("runs/a"),
        "text": "ελ",
    }
    path = write_json_atomically(tmp_path / "results.json", results)
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "accuracy": 0.5,
        "loss": 2.0,
        "by_language": [1, 2],
        "undefined": [None, None, None],
        "model": "runs/a",
        "text": "ελ",
    }
    assert "ελ" in path.read_text(encoding="utf-8")


def test_json_that_cannot_be_written_touches_nothing(tmp_path: Path) -> None:
    path = write_json_atomically(tmp_path / "results.json", {"a": 1})
    with pytest.raises(TypeError, match="object"):
        write_json_atomically(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["results.json"]


def test_a_full_disk_is_known_by_its_number_in_the_text(tmp_path: Path) -> None:
    """The tokenizers' library, which is in Rust, raises an error of no class of its own."""
    with (
        pytest.raises(OSError, match=rf"{tmp_path / 'tokenizer'}.*No space left.*Free some space"),
        atomic_directory(tmp_path / "tokenizer"),
    ):
        raise Exception("No space left on device (os error 28)")
    with pytest.raises(KeyError), atomic_directory(tmp_path / "tokenizer"):
        raise KeyError("another error")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("new_is_there", [False, True])
def test_a_model_moved_aside_by_a_killed_program_is_put_back(tmp_path: Path, new_is_there: bool) -> None:
    for name in ("model.replaced-0a1b2c3d", *(["model"] if new_is_there else [])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "modules.json").write_text(name)
    (tmp_path / "model").mkdir(exist_ok=True)  # empty, as the check before a run leaves it
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model" / "modules.json").read_text() == ("model" if new_is_there else "model.replaced-0a1b2c3d")
