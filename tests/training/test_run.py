"""What is checked before a run, and what a finished run leaves behind, also when the disk fills."""

from __future__ import annotations

import errno
import json
import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator

from st_xlret.losses import SemanticContrastiveLoss
from st_xlret.training import run as runs
from st_xlret.training.arguments import RunArguments, TrainingArguments
from st_xlret.training.held_out import compare, keep_best
from tests import tiny
from tests.training.test_checkpoints import checkpoint
from training_scripts.train_language_agnostic_ir import IRArguments

HISTORY = [{"step": 1, "loss": 1.0, "loss_ccp": 1.0}]


def host(folder: Path, **options: Any) -> TrainingArguments:
    return TrainingArguments(output_dir=str(folder), use_cpu=True, **options)


def end(model: SentenceTransformer, folder: Path, results: dict[str, Any], **options: Any) -> None:
    """Finish a run that a Trainer would have made."""
    history = options.pop("history", [])
    args = host(folder, hub_model_id=options.pop("hub_model_id", None))
    trainer = SimpleNamespace(args=args, state=SimpleNamespace(log_history=history), is_world_process_zero=lambda: True)
    runs.finish(model, trainer, RunArguments(**options), results)  # type: ignore[arg-type]


def full(*args: Any, **kwargs: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("given", [None, "resume", "overwrite"])
def test_checkpoints_of_an_earlier_run_are_not_mixed_with_new_ones(tmp_path: Path, given: str | None) -> None:
    run = RunArguments(**({given: True} if given else {}))
    runs.start(host(tmp_path), run)
    checkpoint(tmp_path, 2)
    if given:
        runs.start(host(tmp_path), run)
    else:
        with pytest.raises(FileExistsError, match="--resume.*--overwrite"):
            runs.start(host(tmp_path), run)
    assert (tmp_path / "checkpoint-2").is_dir()


def test_processes_that_would_train_apart_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = host(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="2 processes .* uses 1.*--use_cpu"):
        runs.start(args, RunArguments())


def test_the_trainer_pushes_nothing_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    monkeypatch.setattr(runs, "check_push", lambda name, *given, **options: checked.append(name))
    args = host(tmp_path / "my-run", push_to_hub=True)
    runs.start(args, RunArguments())
    assert checked == ["my-run"] and args.hub_model_id == "my-run" and not args.push_to_hub


def test_training_leaves_attention_on_a_gpu_to_other_kernels_than_cudnn_s(tmp_path: Path) -> None:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        runs.start(host(tmp_path), RunArguments())
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_the_best_checkpoint_is_one_that_was_evaluated(tmp_path: Path) -> None:
    args = keep_best(host(tmp_path, save_steps=40), "eval_pairs_average_accuracy")
    assert args.load_best_model_at_end and args.greater_is_better
    assert args.metric_for_best_model == "eval_pairs_average_accuracy"
    assert (args.eval_strategy, args.eval_steps, args.save_steps, args.save_total_limit) == ("steps", 40, 40, 3)


def test_save_steps_are_honoured_beside_eval_steps(tmp_path: Path) -> None:
    args = keep_best(host(tmp_path, save_steps=40, eval_steps=20), "m")
    assert args.load_best_model_at_end and (args.eval_steps, args.save_steps) == (20, 40)
    args = keep_best(host(tmp_path, save_steps=40, eval_steps=30), "m")
    assert not args.load_best_model_at_end and (args.eval_steps, args.save_steps) == (30, 40)


def test_without_an_evaluator_or_checkpoints_there_is_no_best_one(tmp_path: Path) -> None:
    args = keep_best(host(tmp_path), None)
    assert args.eval_strategy == "no" and not args.load_best_model_at_end
    args = keep_best(host(tmp_path, save_strategy="no"), "m")
    assert args.eval_strategy == "steps" and not args.load_best_model_at_end


def test_the_host_never_deletes_the_last_checkpoint_before_the_next_is_complete(tmp_path: Path) -> None:
    assert keep_best(host(tmp_path, save_total_limit=1), None).save_total_limit == 2


def test_model_results_and_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    model = tiny.static()
    end(model, tmp_path / "run", {"accuracy": torch.tensor(0.5)}, history=HISTORY)
    assert names(tmp_path / "run") == ["model", "results.json", "training.png"]
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == {"accuracy": 0.5}
    loaded = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert torch.equal(loaded[0].embedding.weight, model[0].embedding.weight)
    assert f'SentenceTransformer("{tmp_path / "run" / "model"}")' in capsys.readouterr().out


def test_without_a_history_there_are_no_curves(tmp_path: Path) -> None:
    end(tiny.static(), tmp_path, {})
    assert names(tmp_path) == ["model", "results.json"]


def test_a_model_is_replaced_only_if_asked(tmp_path: Path) -> None:
    end(tiny.static(seed=1), tmp_path, {"run": 1})
    with pytest.raises(SystemExit, match="--overwrite"):
        end(tiny.static(seed=2), tmp_path, {"run": 2})
    assert json.loads((tmp_path / "results.json").read_text()) == {"run": 1}
    end(tiny.static(seed=2), tmp_path, {"run": 2}, overwrite=True)
    assert json.loads((tmp_path / "results.json").read_text()) == {"run": 2}


def test_a_full_disk_at_the_model_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end(tiny.static(), tmp_path, {"run": 1})
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    monkeypatch.setattr(SentenceTransformer, "save_pretrained", full)
    with pytest.raises(SystemExit, match=r"model: No space left"):
        end(tiny.static(seed=2), tmp_path, {"run": 2}, overwrite=True)
    assert names(tmp_path) == ["model", "results.json"]
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before
    assert json.loads((tmp_path / "results.json").read_text()) == {"run": 1}


def test_a_full_disk_at_the_results_keeps_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SystemExit, match=r"results.json: No space left"):
        end(tiny.static(), tmp_path, {"run": 1}, history=HISTORY)
    assert names(tmp_path) == ["model"]
    SentenceTransformer(str(tmp_path / "model"), device="cpu")


def test_the_push_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: list[tuple[Path, str, list[str]]] = []

    def push(path: Path, repo_id: str, **options: Any) -> str:
        pushed.append((path, repo_id, names(tmp_path)))
        return "there"

    monkeypatch.setattr(runs, "push_to_hub", push)
    end(tiny.static(), tmp_path, {}, hub_model_id="me/model")
    assert pushed == [(tmp_path / "model", "me/model", ["model", "results.json"])]


def run_of(folder: Path, evaluator: Any) -> tuple[dict[str, Any], SentenceTransformer]:
    """A short run, with or without held-out scores."""
    torch.manual_seed(0)
    model = tiny.transformer(dropout=0.1)
    args = host(folder, max_steps=3, save_strategy="no", report_to="none", per_device_train_batch_size=4)
    loss = SemanticContrastiveLoss(model)
    pairs = tiny.pairs(16).select_columns(["source", "target"])
    trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=pairs, loss=loss, evaluator=evaluator)
    return runs.train(trainer, RunArguments()), model


class Dice(SentenceEvaluator):
    """An evaluator that uses up random numbers of every kind."""

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        model.eval()
        torch.rand(5), np.random.rand(5), random.random()
        return {"pairs_average_accuracy": 0.75}


def test_the_score_before_training_changes_nothing_in_it(tmp_path: Path) -> None:
    without, plain = run_of(tmp_path / "a", None)
    results, scored = run_of(tmp_path / "b", Dice())
    assert "held_out_before" not in without and results["held_out_before"] == {"pairs_average_accuracy": 0.75}
    for name, weights in plain.state_dict().items():
        assert torch.equal(weights, scored.state_dict()[name]), name


@pytest.mark.parametrize(("after", "worse"), [(0.8, False), (0.7, True)])
def test_a_run_that_made_the_score_worse_is_warned_of(
    after: float, worse: bool, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    results = {"held_out_before": {"pairs_average_accuracy": 0.75}}
    compare(results, {"pairs_average_accuracy": after, "unknown_accuracy": 0.1})
    shown = capsys.readouterr().out
    assert "0.75" in shown and str(after) in shown and "unknown" not in shown
    assert ("worse" in caplog.text) == worse


def test_options_are_compared_by_the_batch_of_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def recorded(size: int, processes: int, pairs: int | None, accumulation: int = 1) -> dict[str, Any]:
        monkeypatch.setattr(TrainingArguments, "world_size", property(lambda self: processes))
        args = host(tmp_path, per_device_train_batch_size=size, gradient_accumulation_steps=accumulation)
        return runs.recorded_options(args, IRArguments(pairs_batch_size=pairs))

    one = recorded(16, 1, 8)
    assert recorded(8, 2, 4) == recorded(4, 4, 2) == one
    assert recorded(16, 1, None) == recorded(8, 2, None)
    # Other negatives, and batch statistics, than those of a batch of 16.
    assert recorded(8, 2, 8) != one and recorded(8, 1, 8) != one and recorded(8, 1, 4, accumulation=2) != one
