"""What an interrupted run, a loss that is no number and a full disk leave behind."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.training import loss_state_callback
from st_xlret.training.checkpoints import last_complete_checkpoint
from tests.training_scripts.scripts import Train
from tests.training_scripts.train_ccp_runs import (
    Stop,
    add_callback,
    assert_equal_weights,
    checkpoints,
    hidden,
    names,
    weights,
)


@pytest.mark.parametrize("encoder", ["static", "tiny"])
def test_a_resumed_run_ends_as_the_uninterrupted_one(
    program: ModuleType,
    train: Train,
    documents: Path,
    pairs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    encoder: str,
) -> None:
    options = (f"--max_steps 9 --save_steps 3 --evaluation_pairs 0 --from_scratch {encoder}",)
    options += ("--documents", documents, "--pairs", pairs)
    whole = train(*options, output="whole")
    with monkeypatch.context() as patch:
        add_callback(program, patch, Stop(5))
        with pytest.raises(
            SystemExit, match=r"stopped at step 5: KeyboardInterrupt\n.*checkpoint-3 is complete.*--resume"
        ):
            train(*options)
    run = tmp_path / "run"
    assert names(run) == ["checkpoint-3", "tokenizer"]
    # As if the next checkpoint had been cut short by a power cut: the losses' state comes last.
    half = run / "checkpoint-6"
    half.mkdir()
    for file in (run / "checkpoint-3").iterdir():
        if file.name != loss_state_callback.LOSS_STATE_FILE and file.is_file():
            (half / file.name).write_bytes(file.read_bytes())

    torch.manual_seed(123)
    resumed = train(*options, "--resume")
    assert_equal_weights(run / "model", tmp_path / "whole" / "model")
    assert {k: v for k, v in resumed.items() if k not in ("command", "seconds")} == {
        k: v for k, v in whole.items() if k not in ("command", "seconds")
    }


def test_resume_without_a_checkpoint_starts(train: Train, documents: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        results = train("--documents", documents, "--max_steps", "2", "--resume")
    assert results["steps"] == 2 and "continuing from the start" in caplog.text


def test_a_new_run_does_not_go_on_from_the_checkpoints_of_an_old_one(
    program: ModuleType, train: Train, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--documents", documents, "--save_steps", "2")
    train(*options, "--max_steps", "8")
    mark = tmp_path / "run" / "tokenizer" / "of_the_first_run"
    mark.touch()
    with pytest.raises(FileExistsError, match=r"holds checkpoints of an earlier run; use --resume.*--overwrite"):
        train(*options, "--max_steps", "5")
    assert "checkpoint-8" in names(tmp_path / "run")
    with monkeypatch.context() as patch:
        add_callback(program, patch, Stop(3))
        with pytest.raises(SystemExit, match="checkpoint-2 is complete"):
            train(*options, "--max_steps", "5", "--overwrite")
    assert checkpoints(tmp_path / "run") == ["checkpoint-2"]
    assert not mark.exists()
    mark.touch()
    assert train(*options, "--max_steps", "5", "--overwrite", "--resume")["steps"] == 5
    assert mark.exists()


def test_a_loss_that_is_no_number_stops_the_run(
    train: Train, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from st_xlret.losses import ccp

    options = ("--documents", documents, "--max_steps", "8", "--save_steps", "2")
    train(*options, output="healthy")
    calls, loss = [0], ccp.contrastive_context_loss

    def poisoned(*args: Any, **kwargs: Any) -> Tensor:
        calls[0] += 1
        return loss(*args, **kwargs) * (float("nan") if calls[0] == 6 else 1.0)

    with monkeypatch.context() as patch:
        patch.setattr(ccp, "contrastive_context_loss", poisoned)
        message = r"the loss 'ccp' is nan at step 6, in a batch of (en|fr) \(8 rows\)(.|\n)*checkpoint-4 is complete"
        with pytest.raises(SystemExit, match=message):
            train(*options)
    assert not (tmp_path / "run" / "model").exists()
    train(*options, "--resume")
    assert_equal_weights(tmp_path / "run" / "model", tmp_path / "healthy" / "model")


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fail_at(monkeypatch: pytest.MonkeyPatch, place: str, part: str) -> None:
    """Let the disk be full when something is written whose path holds ``part``."""
    if place == "model":
        save = SentenceTransformer.save_pretrained

        def save_pretrained(self: SentenceTransformer, path: str, *args: Any, **kwargs: Any) -> None:
            if part not in str(path):
                return save(self, path, *args, **kwargs)
            Path(path).mkdir(parents=True, exist_ok=True)
            (Path(path) / "modules.json").write_text("[")
            raise FULL

        monkeypatch.setattr(SentenceTransformer, "save_pretrained", save_pretrained)
    elif place == "optimizer":
        torch_save = torch.save

        def save_optimizer(state: Any, path: Any, *args: Any, **kwargs: Any) -> None:
            if part in str(path) and str(path).endswith("optimizer.pt"):
                Path(path).write_bytes(b"half")
                raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 1582080 vs 1581968")
            torch_save(state, path, *args, **kwargs)

        monkeypatch.setattr(torch, "save", save_optimizer)
    else:
        save_file = loss_state_callback.save_file

        def save_losses(state: Any, path: Any) -> None:
            if part in str(path):
                Path(path).write_bytes(b"half")
                raise SafetensorError("I/O error: No space left on device (os error 28)")
            save_file(state, path)

        monkeypatch.setattr(loss_state_callback, "save_file", save_losses)


@pytest.mark.parametrize(
    "place, reason",
    [("model", "No space left"), ("optimizer", "unexpected pos"), ("losses", "No space left")],
)
def test_a_disk_that_fills_at_a_checkpoint(
    train: Train,
    documents: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    reason: str,
) -> None:
    run = tmp_path / "run"
    options = ("--documents", documents, "--max_steps", "6", "--save_steps", "2", "--overwrite")
    train("--documents", documents, "--max_steps", "1", "--seed", "1")
    older = weights(run / "model")
    with monkeypatch.context() as patch:
        fail_at(patch, place, "checkpoint-4")
        message = rf"stopped at step 4: its checkpoint.*is the disk full\? .*{reason}.*\n.*checkpoint-2 is complete"
        with pytest.raises(SystemExit, match=message):
            train(*options)
    assert checkpoints(run) == ["checkpoint-2"] and not hidden(run)
    kept = weights(run / "model")
    assert all(torch.equal(kept[name], older[name]) for name in older)
    train(*options, "--resume")
    train(*options, output="healthy")
    assert_equal_weights(run / "model", tmp_path / "healthy" / "model")


def test_a_disk_that_is_full_at_the_first_checkpoint(
    train: Train, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(monkeypatch, "model", "checkpoint-2")
    with pytest.raises(SystemExit, match="there is no checkpoint to continue from"):
        train("--documents", documents, "--max_steps", "4", "--save_steps", "2")
    assert checkpoints(tmp_path / "run") == []


def test_a_disk_that_fills_at_the_end(
    train: Train, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    options = ("--documents", documents, "--max_steps", "4", "--save_steps", "2", "--overwrite")
    train("--documents", documents, "--max_steps", "1", "--seed", "1")
    older = weights(run / "model")
    with monkeypatch.context() as patch:
        fail_at(patch, "model", ".model.")
        with pytest.raises(
            SystemExit,
            match=r"training is done, but: .*No space left.*before is unchanged(.|\n)*checkpoint-4 is complete",
        ):
            train(*options)
    kept = weights(run / "model")
    assert all(torch.equal(kept[name], older[name]) for name in older)
    assert not hidden(run)
    assert train(*options, "--resume")["steps"] == 4
    assert_equal_weights(run / "model", run / "checkpoint-4")


def test_a_finished_run_is_not_run_again(train: Train, documents: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--documents", documents, "--max_steps", "2")
    train(*options)
    with pytest.raises(SystemExit) as stopped:
        train(*options, "--resume")
    assert stopped.value.code == 0 and "is finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    "changed, named",
    [
        ("--learning_rate 2e-2", "learning_rate was 0.01, is 0.02"),
        ("--window_size 2", "window_size was 5, is 2"),
        ("--seed 3", "seed was 0, is 3"),
        ("--per_device_train_batch_size 2", "per_device_train_batch_size, all processes together, was 4, is 2"),
        ("--mlm_ratio 0", "mlm_ratio was 1.0, is 0.0"),
    ],
)
def test_resuming_with_other_options_is_refused(
    program: ModuleType, train: Train, documents: Path, monkeypatch: pytest.MonkeyPatch, changed: str, named: str
) -> None:
    options = ("--documents", documents, "--max_steps", "4", "--save_steps", "2")
    with monkeypatch.context() as patch:
        add_callback(program, patch, Stop(3))
        with pytest.raises(SystemExit, match="checkpoint-2 is complete"):
            train(*options)
    with pytest.raises(SystemExit, match=rf"{named}(.|\n)*--resume_anyway"):
        train(*options, changed, "--resume")
    assert train(*options, "--resume")["steps"] == 4


def test_resuming_with_other_data_is_refused_unless_told(
    program: ModuleType, train: Train, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--documents", documents, "--max_steps", "4", "--save_steps", "2")
    with monkeypatch.context() as patch:
        add_callback(program, patch, Stop(3))
        with pytest.raises(SystemExit):
            train(*options)
    documents.write_text("".join(documents.read_text().splitlines(keepends=True)[:-2]))
    with pytest.raises(SystemExit, match="data.ccp was '96 rows"):
        train(*options, "--resume")
    assert train(*options, "--resume_anyway")["steps"] == 4


def test_every_damaged_file_of_a_checkpoint_is_named_and_the_one_before_taken(
    program: ModuleType,
    train: Train,
    documents: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = ("--documents", documents, "--max_steps", "6", "--save_steps", "2", "--from_scratch", "tiny")
    train(*options, output="whole")
    with monkeypatch.context() as patch:
        add_callback(program, patch, Stop(5))
        with pytest.raises(SystemExit, match="checkpoint-4 is complete"):
            train(*options)
    run = tmp_path / "run"
    saved = {file.relative_to(run): file.read_bytes() for file in (run / "checkpoint-4").rglob("*") if file.is_file()}
    known = {path.name for path in saved}
    assert known >= {"model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json", "rng_state.pth"}
    assert known >= {"loss_state.safetensors", "config.json", "modules.json", "manifest.json"}
    for path, content in saved.items():
        for damaged in (content[: len(content) // 2], content[:-1] + bytes([content[-1] ^ 1]), None):
            (run / path).unlink() if damaged is None else (run / path).write_bytes(damaged)
            if path.name != "manifest.json" or damaged != content[:-1] + bytes([content[-1] ^ 1]):
                caplog.clear()
                assert last_complete_checkpoint(run, read_files=True) == run / "checkpoint-2", path
                assert str(run / path) in caplog.text or (damaged is None and path.name in caplog.text)
            (run / path).write_bytes(content)
    file = run / "checkpoint-4" / "optimizer.pt"
    file.write_bytes(file.read_bytes()[:-100])
    train(*options, "--resume")
    assert_equal_weights(run / "model", tmp_path / "whole" / "model")


def test_a_damaged_best_checkpoint_does_not_end_a_run(
    program: ModuleType, train: Train, documents: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--documents", documents, "--pairs", pairs, "--max_steps", "8", "--save_steps", "2")
    options += ("--learning_rate", "0", "--warmup_steps", "0")  # the first checkpoint is the best
    with monkeypatch.context() as patch:
        add_callback(program, patch, Stop(7))
        with pytest.raises(SystemExit, match="checkpoint-6 is complete"):
            train(*options)
    run = (tmp_path / "run").rename(tmp_path / "moved")
    best = run / "checkpoint-2" / "model.safetensors"
    best.write_bytes(best.read_bytes()[:-8])
    assert train(*options, "--resume", output="moved")["steps"] == 8
    assert (run / "model" / "modules.json").is_file()


def test_weights_that_are_not_finite_are_not_saved(train: Train, documents: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="not finite|is nan|is inf"):
        train("--documents", documents, "--max_steps", "6", "--save_steps", "1", "--learning_rate", "1e38")
    assert not (tmp_path / "run" / "model").exists()


def test_a_token_is_written_nowhere(train: Train, documents: Path, tmp_path: Path) -> None:
    results = train("--documents", documents, "--max_steps", "2", "--hub_token", "hf_secret")
    assert "hf_secret" not in str(results)
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or b"hf_secret" not in file.read_bytes(), file
