"""What an interrupted run, a full disk and a loss that is no number leave behind, with train_ccp.py."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.losses import ccp
from st_xlret.training import loss_state
from tests.training_scripts.scripts import Runner, checkpoints, equal_weights, leftovers, logged

STEPS = "--pairs --max_steps 6 --save_steps 2"


@pytest.fixture(scope="module")
def healthy(script_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of a run without a fault."""
    train = Runner(script_data, tmp_path_factory.mktemp("healthy"))
    train("ccp", STEPS)
    return train.folder / "run" / "model"


@pytest.fixture(scope="module")
def stopped(script_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was interrupted after step 5."""
    train = Runner(script_data, tmp_path_factory.mktemp("stopped"))
    with train.stopped("ccp", 5), pytest.raises(SystemExit, match="checkpoint-4 is complete"):
        train("ccp", STEPS)
    return train.folder / "run"


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    """A copy of the interrupted run."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ("--learning_rate 2e-2", "learning_rate was 0.01, is 0.02"),
        ("--window_size 2 --seed 3", "(?s)seed was 0, is 3.*window_size was 5, is 2"),
        ("--per_device_train_batch_size 2", "per_device_train_batch_size, all processes together, was 4, is 2"),
        ("--loss_options {}", "loss_options was '{}', is"),
        ("--languages en", "(?s)languages was.*ccp was '96 rows, .*', is '48 rows"),
    ],
)
def test_resuming_with_other_options_or_data_is_refused_unless_told(
    changed: str, named: str, train: Runner, run: Path
) -> None:
    changed = changed.replace("{}", '{"ccp":{}}')
    with pytest.raises(SystemExit, match=rf"{named}(.|\n)*--resume_from_checkpoint .*checkpoint-4"):
        train("ccp", STEPS, changed, "--resume")
    if "learning_rate" in changed:
        assert train("ccp", STEPS, changed, "--resume_from_checkpoint", run / "checkpoint-4")["steps"] == 6


@pytest.mark.parametrize("damage", ["missing", "shorter"])
def test_a_damaged_checkpoint_is_passed_over(damage: str, train: Runner, run: Path, healthy: Path) -> None:
    file = run / "checkpoint-4" / "optimizer.pt"
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-100])
    assert train("ccp", STEPS, "--resume")["steps"] == 6
    assert equal_weights(run / "model", healthy)


def test_a_new_run_does_not_go_on_from_the_checkpoints_of_an_old_one(train: Runner, run: Path) -> None:
    mark = run / "tokenizer" / "of_the_first_run"
    mark.touch()
    with train.stopped("ccp", 3), pytest.raises(SystemExit, match="checkpoint-2 is complete"):
        train("ccp", STEPS, "--max_steps 5 --overwrite")
    assert checkpoints(run) == ["checkpoint-2"] and not mark.exists()


def fill_disk(monkeypatch: pytest.MonkeyPatch, place: str, part: str) -> None:
    """Let the disk be full when something is written whose path holds `part`."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    own = {"model": SentenceTransformer.save_pretrained, "optimizer": torch.save, "losses": loss_state.save_file}[place]

    def save(first: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        if part not in str(path) or (place == "optimizer" and not str(path).endswith("optimizer.pt")):
            return own(first, path, *args, **kwargs)  # type: ignore[operator, no-any-return]
        file = Path(path) / "modules.json" if place == "model" else Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"[")
        if place == "optimizer":
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 1582080 vs 1581968")
        raise full if place == "model" else SafetensorError("I/O error: No space left on device (os error 28)")

    module: Any = {"model": SentenceTransformer, "optimizer": torch, "losses": loss_state}[place]
    monkeypatch.setattr(module, own.__name__, save)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("place", "step", "reason"),
    [
        ("model", 2, "No space left"),
        ("model", 4, "No space left"),
        ("optimizer", 4, "unexpected pos"),
        ("losses", 4, "No space left"),
    ],
)
def test_a_disk_that_fills_at_a_checkpoint(
    place: str, step: int, reason: str, train: Runner, tmp_path: Path, healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, kept = tmp_path / "run", "checkpoint-2 is complete" if step > 2 else "there is no checkpoint to continue from"
    with monkeypatch.context() as patch:
        fill_disk(patch, place, f"checkpoint-{step}")
        message = rf"stopped at step {step}: its checkpoint.*is the disk full\? .*{reason}.*\n.*{kept}"
        with pytest.raises(SystemExit, match=message):
            train("ccp", STEPS)
    assert checkpoints(run) == ["checkpoint-2"][: step > 2] and not leftovers(run)
    train("ccp", STEPS, "--resume")
    assert equal_weights(run / "model", healthy)


def test_a_disk_that_fills_at_the_end(
    train: Runner, tmp_path: Path, healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Path(shutil.copytree(healthy, tmp_path / "run" / "model"))
    (model / "older").touch()
    with monkeypatch.context() as patch:
        fill_disk(patch, "model", ".model.")
        message = r"training is done, but: .*No space left(.|\n)*\"held_out\"(.|\n)*checkpoint-6 is complete"
        with pytest.raises(SystemExit, match=message):
            train("ccp", STEPS, "--pairs", train.data / "pairs.jsonl", "--pairs_ratio 0 --overwrite")
    assert (model / "older").is_file() and equal_weights(model, healthy) and not leftovers(tmp_path / "run")
    # Only the saving is done again.
    again = train("ccp", STEPS, "--pairs", train.data / "pairs.jsonl", "--pairs_ratio 0 --overwrite --resume")
    assert again["steps"] == 6 and not (model / "older").exists()


def test_the_best_model_is_kept_and_saved(train: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = TatoebaEvaluator.__call__

    def scripted(self: Any, model: Any, output_path: Any = None, epoch: int = -1, steps: int = -1) -> Any:
        """Is happiest after the second step."""
        metrics = evaluate(self, model, output_path, epoch, steps)
        return metrics | {"pairs_average_accuracy": 1 - abs(steps - 2) / 10}

    monkeypatch.setattr(TatoebaEvaluator, "__call__", scripted)
    options = ("--max_steps 7 --eval_steps 1 --save_steps 1 --save_total_limit 1", "--overwrite")
    with train.stopped("ccp", 6), pytest.raises(SystemExit, match="checkpoint-5 is complete"):
        train("ccp", *options)
    run = (tmp_path / "run").rename(tmp_path / "moved")
    assert "checkpoint-2" in checkpoints(run) and "eval_pairs_average_accuracy" in logged(run / "checkpoint-5")
    train("ccp", *options, "--resume", output="moved")
    assert equal_weights(run / "model", run / "checkpoint-2")
    assert not equal_weights(run / "model", run / "checkpoint-7")
    # Without its checkpoint, the last model is the result.
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("results.json"))
    best = tmp_path / "run" / "checkpoint-2" / "model.safetensors"
    best.write_bytes(best.read_bytes()[:-8])
    assert train("ccp", *options, "--resume")["steps"] == 7


def test_a_loss_that_is_no_number_stops_the_run_and_harms_no_weight(
    train: Runner, tmp_path: Path, healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, loss = [0], ccp.contrastive_context_loss

    def poisoned(*args: Any, **kwargs: Any) -> Tensor:
        calls[0] += 1
        return loss(*args, **kwargs) * (float("nan") if calls[0] == 5 else 1.0)

    with monkeypatch.context() as patch:
        patch.setattr(ccp, "contrastive_context_loss", poisoned)
        message = r"the loss 'ccp' is nan at step 5, in a batch of (en|fr) \(8 rows\)(.|\n)*checkpoint-4 is complete"
        with pytest.raises(SystemExit, match=message):
            train("ccp", STEPS)
    assert not (tmp_path / "run" / "model").exists()
    train("ccp", STEPS, "--resume")
    assert equal_weights(tmp_path / "run" / "model", healthy)


def test_a_token_is_written_nowhere(train: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SentenceTransformer, "push_to_hub", lambda self, name, *, token, **kwargs: f"{name} {token}")
    results = train("ccp", "--pairs --max_steps 2 --save_steps 1 --push_to_hub --hub_token hf_secret")
    assert "hf_secret" not in str(results)
    files = [file for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert not [file for file in files if b"hf_secret" in file.read_bytes()]
