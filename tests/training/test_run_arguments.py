"""The options that the scripts share, and which checkpoints they take."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from st_xlret.training import LOSS_STATE_FILE
from st_xlret.training.run_arguments import (
    RunArguments,
    is_complete,
    last_complete_checkpoint,
    mixed_precision,
    remove_checkpoints,
    remove_unfinished_checkpoint,
)


def checkpoint(folder: Path, step: int, *, without: str = "") -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    contents = {"trainer_state.json": json.dumps({"global_step": step}), LOSS_STATE_FILE: "", "model": ""}
    for name, text in contents.items():
        if name != without:
            (path / name).write_text(text)
    return path


def host(tmp_path: Path, metric: str | None = None, **options: Any) -> Any:
    return RunArguments(output=str(tmp_path / "run"), precision="no", **options).to_host(metric=metric)


def test_every_option_has_a_help() -> None:
    assert all(option.metadata["help"].endswith(".") for option in fields(RunArguments))


def test_the_host_gets_what_the_options_say(tmp_path: Path) -> None:
    args = host(
        tmp_path,
        max_steps=200,
        batch_size=7,
        accumulation=3,
        learning_rate=1e-3,
        warmup_ratio=0.05,
        weight_decay=0.2,
        max_grad_norm=0.0,
        save_steps=40,
        keep_checkpoints=3,
        logging_steps=5,
        seed=9,
        workers=1,
    )
    assert Path(args.output_dir) == tmp_path / "run" / "checkpoints"
    assert (args.max_steps, args.per_device_train_batch_size, args.gradient_accumulation_steps) == (200, 7, 3)
    assert (args.learning_rate, args.warmup_steps, args.weight_decay, args.max_grad_norm) == (
        1e-3,
        10,
        0.2,
        0,
    )
    assert (args.save_strategy, args.save_steps, args.save_total_limit) == ("steps", 40, 3)
    assert (args.logging_steps, args.seed, args.dataloader_num_workers) == (5, 9, 1)
    assert args.eval_strategy == "no" and not args.load_best_model_at_end
    assert args.lr_scheduler_type == "linear" and args.report_to == []
    assert not args.bf16 and not args.fp16


def test_with_an_evaluator_the_best_checkpoint_is_one_that_was_evaluated(tmp_path: Path) -> None:
    args = host(tmp_path, "eval_pairs_average_accuracy", eval_steps=30, save_steps=40, keep_checkpoints=2)
    assert args.load_best_model_at_end and args.greater_is_better
    assert args.metric_for_best_model == "eval_pairs_average_accuracy"
    assert (args.eval_strategy, args.eval_steps, args.save_steps) == ("steps", 30, 30)
    # Two beside the best.
    assert args.save_total_limit == 3


def test_without_checkpoints_there_is_no_best_one(tmp_path: Path) -> None:
    args = host(tmp_path, "eval_pairs_average_accuracy", save_steps=0)
    assert args.save_strategy == "no" and not args.load_best_model_at_end and args.eval_strategy == "steps"
    options = RunArguments(output=str(tmp_path), precision="no")
    assert not options.to_host(metric="m", best_model=False).load_best_model_at_end


def test_the_host_never_deletes_the_last_whole_checkpoint_before_the_next_is_whole(tmp_path: Path) -> None:
    assert host(tmp_path, keep_checkpoints=1).save_total_limit == 2


def test_further_arguments_override(tmp_path: Path) -> None:
    args = host(tmp_path, training_arguments='{"optim": "adafactor", "learning_rate": 0.5}')
    assert args.optim == "adafactor" and args.learning_rate == 0.5


@pytest.mark.parametrize("given", ["", "{", "[]", "null", "3", '"optim"', '[["optim", "adafactor"]]'])
def test_further_arguments_that_are_no_object_are_named(given: str) -> None:
    with pytest.raises(ValueError, match="--training-arguments must be a JSON object, got") as caught:
        RunArguments(output="run", training_arguments=given)
    assert repr(given) in str(caught.value)


def test_further_arguments_that_the_host_does_not_know_are_named() -> None:
    with pytest.raises(ValueError, match=r"SentenceTransformerTrainingArguments has no \['learning_rat'\]"):
        RunArguments(output="run", training_arguments='{"learning_rat": 1, "seed": 2}')


@pytest.mark.parametrize("name", ["max_steps", "batch_size", "eval_steps", "keep_checkpoints"])
def test_counts_start_at_one(name: str) -> None:
    with pytest.raises(ValueError, match=f"--{name.replace('_', '-')} must be at least 1, got 0"):
        RunArguments(output="run", **{name: 0})


@pytest.mark.parametrize("bf16_gpu", [True, False])
def test_mixed_precision(bf16_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: bf16_gpu)
    assert mixed_precision("auto") == {"bf16": bf16_gpu, "fp16": False}
    assert mixed_precision("fp16") == {"bf16": False, "fp16": True}
    assert mixed_precision("bf16") == {"bf16": True, "fp16": False}
    assert mixed_precision("no") == {"bf16": False, "fp16": False}


def test_the_last_complete_checkpoint_is_the_one_of_the_highest_step(tmp_path: Path) -> None:
    assert last_complete_checkpoint(tmp_path / "missing") is None
    assert last_complete_checkpoint(tmp_path) is None
    checkpoint(tmp_path, 1000, without=LOSS_STATE_FILE)
    assert last_complete_checkpoint(tmp_path) is None
    # By number, not by name or by time.
    for step in (100, 20, 3):
        checkpoint(tmp_path, step)
    checkpoint(tmp_path, 200, without="trainer_state.json")
    (tmp_path / "eval").mkdir()
    assert last_complete_checkpoint(str(tmp_path)) == tmp_path / "checkpoint-100"


def test_only_an_unfinished_checkpoint_is_removed(tmp_path: Path) -> None:
    whole, half = checkpoint(tmp_path, 2), checkpoint(tmp_path, 4, without=LOSS_STATE_FILE)
    assert is_complete(whole) and not is_complete(half)
    assert [remove_unfinished_checkpoint(tmp_path, step) for step in (2, 3, 4)] == [False, False, True]
    assert whole.is_dir() and not half.exists()


def test_all_checkpoints_are_removed_and_nothing_else(tmp_path: Path) -> None:
    checkpoint(tmp_path, 2)
    checkpoint(tmp_path, 4, without="trainer_state.json")
    (tmp_path / "eval").mkdir()
    remove_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["eval"]
    remove_checkpoints(tmp_path / "missing")


@pytest.mark.parametrize("option", [None, "resume", "overwrite"])
def test_checkpoints_of_an_earlier_run_are_not_mixed_with_new_ones(tmp_path: Path, option: str | None) -> None:
    run = RunArguments(output=str(tmp_path), **({option: True} if option else {}))
    run.refuse_foreign_checkpoints()
    checkpoint(run.checkpoints, 2)
    if option:
        run.refuse_foreign_checkpoints()
    else:
        with pytest.raises(FileExistsError, match="holds checkpoints of an earlier run; use --resume"):
            run.refuse_foreign_checkpoints()
    assert (run.checkpoints / "checkpoint-2").is_dir()
