"""What is checked before a run, and what a finished run leaves behind, also when the disk fills."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator

from st_xlret.losses import SemanticContrastiveLoss
from st_xlret.training import CrossLingualTrainer
from st_xlret.training.script import Run, TrainingArguments, compare, keep_best, recorded_options
from tests import tiny
from tests.training.test_checkpoints import checkpoint


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    fixed = {
        "use_cpu": True,
        "precision": "fp32",
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "report_to": "none",
    }
    return TrainingArguments(output_dir=str(folder), **(fixed | options))


def run_of(folder: Path, *, seed: int = 0, evaluator: Any = None, **options: Any) -> tuple[dict[str, Any], Any]:
    """A short run as a script makes it."""
    torch.manual_seed(seed)
    model = tiny.transformer(dropout=0.1, seed=seed)
    run = Run("train.py", ["--seed", "0"], arguments(folder, **options))
    trainer = CrossLingualTrainer(model, run.args, tiny.pairs(16), loss=SemanticContrastiveLoss(model))
    evaluators = [evaluator] if evaluator else []
    return run.train_and_save(trainer, {"pairs": 16}, evaluators=evaluators, tag="pairs"), model


def names(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name != ".lock")


@pytest.mark.parametrize("given", [None, "resume", "overwrite"])
def test_checkpoints_of_an_earlier_run_are_not_mixed_with_new_ones(tmp_path: Path, given: str | None) -> None:
    checkpoint(tmp_path, 2)
    args = arguments(tmp_path, **({given: True} if given else {}))
    if given:
        Run("train.py", [], args)
    else:
        with pytest.raises(FileExistsError, match="--resume.*--overwrite"):
            Run("train.py", [], args)
    assert (tmp_path / "checkpoint-2").is_dir()


def test_processes_that_would_train_apart_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = arguments(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="2 processes .* uses 1.*--use_cpu"):
        Run("train.py", [], args)


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with FileLock(tmp_path / ".lock"), pytest.raises(FileExistsError, match="another process trains in"):
        Run("train.py", [], arguments(tmp_path))


def test_a_finished_run_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(tmp_path)
    with pytest.raises(SystemExit, match="0"):
        run_of(tmp_path, resume=True)
    assert "is finished: there is nothing to resume" in capsys.readouterr().out


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_run_stopped_after_its_last_step_gives_the_same_model(tmp_path: Path, share: float) -> None:
    steps = {"max_steps": 4, "save_steps": 2, "keep_trained": share}
    _, model = run_of(tmp_path, **steps)
    (tmp_path / "results.json").unlink()
    results, again = run_of(tmp_path, **steps, resume=True)
    assert results["steps"] == 4 and results["tokens"] > 0
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in model.state_dict().items())


def test_a_run_too_short_for_curves_says_so_and_each_shows_how_to_use_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(tmp_path)
    shown = capsys.readouterr().out
    assert "no training.png: --logging_steps 50, and only 2 steps" in shown
    assert f'SentenceTransformer("{tmp_path / "model"}")' in shown and "encode_query" in shown
    assert not (tmp_path / "training.png").exists()


def test_the_push_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: list[tuple[str, Any, list[str]]] = []

    def push(model: Any, repo_id: str, *, token: str | None, **options: Any) -> str:
        pushed.append((repo_id, token, names(tmp_path / "my-run")))
        return "there"

    monkeypatch.setattr(SentenceTransformer, "push_to_hub", push)
    run_of(tmp_path / "my-run", push_to_hub=True, hub_token="hf_secret", save_strategy="no")
    assert pushed[0][:2] == ("my-run", "hf_secret") and {"model", "results.json"} <= {*pushed[0][2]}
    assert "hf_secret" not in (tmp_path / "my-run" / "results.json").read_text()


class Dice(SentenceEvaluator):
    """An evaluator that uses up random numbers of every kind."""

    def __call__(self, model: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
        model.eval()
        torch.rand(5), np.random.rand(5), random.random()
        return {"pairs_average_accuracy": 0.75}


def test_the_score_before_training_changes_nothing_in_it(tmp_path: Path) -> None:
    without, plain = run_of(tmp_path / "a")
    results, scored = run_of(tmp_path / "b", evaluator=Dice())
    assert "held_out_before" not in without and results["held_out_before"] == {"pairs_average_accuracy": 0.75}
    assert all(torch.equal(tensor, scored.state_dict()[name]) for name, tensor in plain.state_dict().items())


@pytest.mark.parametrize(("after", "worse"), [(0.8, False), (0.7, True)])
def test_a_run_that_made_the_score_worse_is_warned_of(
    after: float, worse: bool, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    compare({"pairs_average_accuracy": 0.75}, {"pairs_average_accuracy": after, "unknown_accuracy": 0.1})
    shown = capsys.readouterr().out
    assert "0.75" in shown and str(after) in shown and "unknown" not in shown
    assert ("worse" in caplog.text) == worse


def test_perfect_scores_before_and_after_are_said_to_show_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    compare({"pairs_average_accuracy": 1.0}, {"pairs_average_accuracy": 1.0})
    assert "so few pairs or questions cannot show a change" in capsys.readouterr().out
    compare({"pairs_average_accuracy": 0.5}, {"pairs_average_accuracy": 1.0})
    assert "cannot show a change" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "metric", "best", "strategy"),
    [
        ({"save_steps": 40}, "m", True, "steps"),
        ({"save_steps": 40, "eval_steps": 20}, "m", True, "steps"),
        ({"save_steps": 40, "eval_steps": 30}, "m", False, "steps"),
        ({"save_strategy": "no"}, "m", False, "steps"),
        ({}, None, False, "no"),
    ],
)
def test_the_best_checkpoint_is_one_that_was_evaluated(
    tmp_path: Path, options: dict[str, Any], metric: str | None, best: bool, strategy: str
) -> None:
    args = arguments(tmp_path, save_total_limit=1, **options)
    keep_best(args, metric)
    assert (args.load_best_model_at_end, args.eval_strategy, args.metric_for_best_model) == (best, strategy, metric)
    # The host would delete the last checkpoint before the next is complete.
    assert args.save_total_limit >= 2


def test_options_are_compared_by_the_batch_of_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def recorded(size: int, processes: int, accumulation: int = 1) -> dict[str, Any]:
        monkeypatch.setattr(TrainingArguments, "world_size", property(lambda self: processes))
        args = arguments(tmp_path, per_device_train_batch_size=size, gradient_accumulation_steps=accumulation)
        return recorded_options(args)

    assert recorded(8, 2) == recorded(4, 4) == recorded(16, 1)
    # Other negatives, and batch statistics, than those of a batch of 16.
    assert recorded(16, 1) != recorded(8, 1) != recorded(8, 1, accumulation=2) != recorded(16, 1)
