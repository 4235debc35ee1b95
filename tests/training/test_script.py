"""The options of a run, what is checked before it, how it resumes, and what a finished run leaves behind."""

import random
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock

from st_xlret.losses import SemanticContrastiveLoss
from st_xlret.options import parse
from st_xlret.training import CrossLingualTrainer
from st_xlret.training.arguments import ScriptArguments
from st_xlret.training.checkpoints import last_checkpoint
from st_xlret.training.run import Run, keep_best_checkpoint
from tests import tiny
from tests.training.runs import changed


def arguments(folder: Path, **options: Any) -> ScriptArguments:
    fixed = {"use_cpu": True, "precision": "fp32", "per_device_train_batch_size": 4}
    if "num_train_epochs" not in options:
        fixed["max_steps"] = 2
    return ScriptArguments(output_dir=str(folder), **(fixed | {"report_to": "none"} | options))


def run_of(folder: Path, *, evaluator: Any = None, **options: Any) -> tuple[dict[str, Any], Any]:
    """A short run as a script makes it."""
    model = tiny.transformer(dropout=0.1)
    run = Run(arguments(folder, **options))
    trainer = CrossLingualTrainer(
        model, run.args, tiny.pairs(16), loss=SemanticContrastiveLoss(model)
    )
    return run.train_and_save(trainer, {"pairs": 16}, evaluators=[evaluator], tag="pairs"), model


def test_a_run_in_use_one_that_is_finished_and_one_that_stopped_at_its_end(tmp_path: Path) -> None:
    with FileLock(tmp_path / ".lock") as lock, pytest.raises(OSError, match=str(lock.lock_file)):
        Run(arguments(tmp_path))
    steps = {"max_steps": 2, "save_steps": 1, "keep_trained": 0.5}
    _, model = run_of(tmp_path, **steps)
    with pytest.raises(SystemExit, match="0"):  # it is finished
        run_of(tmp_path, **steps, resume=True)
    (tmp_path / "results.json").unlink()
    with pytest.raises(SystemExit, match="weight_decay was 0.01, is 0.5"):
        run_of(tmp_path, **steps, resume=True, weight_decay=0.5)
    results, again = run_of(tmp_path, **steps, resume=True)
    assert (
        results["steps"] == 2 and results["tokens"] > 0 and not changed(model.state_dict(), again)
    )
    (tmp_path / "results.json").unlink()
    told = str(tmp_path / "checkpoint-1")
    assert run_of(tmp_path, **steps, resume_from_checkpoint=told, weight_decay=0.5)[0]["steps"] == 2


@pytest.mark.parametrize("name", ["results.json", "training.png", "tokenizer/a"])
def test_files_of_others_stay(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises((FileExistsError, SystemExit), match=name.partition("/")[0]):
        run_of(tmp_path, save_steps=2)
    assert (tmp_path / name).read_text() == "mine" and not list(tmp_path.rglob("model.safetensors"))


@pytest.mark.parametrize("resumes", [True, False])
def test_checkpoints_of_others_stay(tmp_path: Path, resumes: bool) -> None:
    others = [tmp_path / f"checkpoint-{name}" / "a" for name in ("best", "1", "1-mine", "2")]
    for file in others:
        file.parent.mkdir()
        file.touch()
    run_of(
        tmp_path,
        max_steps=6,
        save_steps=2,
        save_total_limit=2,
        overwrite=not resumes,
        resume=resumes,
    )
    assert {path.name for path in tmp_path.glob("checkpoint-[246]")} == {
        "checkpoint-4",
        "checkpoint-6",
    }
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-6"
    with pytest.raises(FileExistsError, match="checkpoint-6 holds what is read"):
        read = [f"{tmp_path}/checkpoint-6/trainer_state.json", "~no user: "]
        Run(arguments(tmp_path, overwrite=True), Namespace(documents=read))
    run_of(tmp_path, max_steps=1, save_strategy="no", overwrite=True)
    assert (
        len([*tmp_path.glob("checkpoint-*/a")]) == len(others) and last_checkpoint(tmp_path) is None
    )


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({"max_steps": 40}, 20),
        ({"max_steps": 6}, 6),
        ({"num_train_epochs": 10}, 20),  # 40 steps
        ({"max_steps": 40, "logging_steps": 10}, 4),
    ],
)
def test_a_short_run_logs_about_twenty_times(
    options: dict[str, Any], lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = []
    monkeypatch.setattr(
        "st_xlret.training.run.plot_training", lambda history, path: logged.extend(history)
    )
    run_of(tmp_path, save_strategy="no", **options)
    assert len([line for line in logged if "loss" in line]) == lines


def test_weights_that_are_not_finite_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="NaN or infinite|nan"):
        run_of(tmp_path, learning_rate=1e38, save_strategy="no", max_steps=1, warmup_steps=0)
    assert not (tmp_path / "model").exists()


def dice(model: Any) -> dict[str, float]:
    """An evaluator that uses up random numbers of every kind."""
    model.eval()
    torch.rand(5), np.random.rand(5), random.random()
    return {"pairs_average_accuracy": 0.75}


def test_the_score_before_training_changes_nothing_in_it(tmp_path: Path) -> None:
    without, plain = run_of(tmp_path / "a", max_steps=1)
    results, scored = run_of(tmp_path / "b", max_steps=1, evaluator=dice)
    assert "held_out_before" not in without and results["held_out_before"] == {
        "pairs_average_accuracy": 0.75
    }
    assert not changed(plain.state_dict(), scored)


def test_the_best_checkpoint_is_one_that_was_evaluated(tmp_path: Path) -> None:
    for options, metric, best in (
        ({"save_steps": 40}, "m", True),
        ({"save_steps": 40, "eval_steps": 20}, "m", True),
        ({"save_steps": 40, "eval_steps": 30}, "m", False),
        ({"save_strategy": "no"}, "m", False),
        ({}, None, False),
    ):
        args = arguments(tmp_path, save_total_limit=1, **options)
        keep_best_checkpoint(args, metric)
        assert (args.load_best_model_at_end, args.metric_for_best_model) == (best, metric)
        assert args.eval_strategy == ("steps" if metric else "no")


def test_options_are_compared_by_the_batch_of_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recorded(size: int, processes: int, accumulation: int = 1) -> dict[str, Any]:
        monkeypatch.setattr(ScriptArguments, "world_size", property(lambda self: processes))
        args = arguments(
            tmp_path, per_device_train_batch_size=size, gradient_accumulation_steps=accumulation
        )
        return Run(args).options

    # Accumulated batches have other negatives, and batch statistics, than one of 16.
    assert recorded(8, 2) == recorded(4, 4) == recorded(16, 1) != recorded(8, 1, accumulation=2)


def test_the_options_of_a_run_are_the_hosts(tmp_path: Path) -> None:
    file = tmp_path / "options.yml"
    file.write_text("use_cpu: true\nlearning_rate: 3e-5\n")  # a number, without a dot too
    words = [str(file), "--output_dir", str(tmp_path), "--learning_rate_mapping", '{"head": 0.1}']
    for further, steps in (([], 10_000), (["--num_train_epochs", "2"], -1)):  # epochs replace steps
        (args,) = parse([ScriptArguments], [*words, *further])
        assert (args.learning_rate, args.learning_rate_mapping, args.max_steps) == (
            3e-5,
            {"head": 0.1},
            steps,
        )


def test_the_number_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without a GPU, whose processor computes in bf16 or not."""
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    for options, capable, expected in (
        ({}, True, "bf16"),
        ({}, False, "fp32"),
        ({"precision": "fp32"}, True, "fp32"),
        ({"bf16": True}, False, "bf16"),
    ):
        monkeypatch.setattr(
            "st_xlret.precision.computes_in_bf16", lambda device, capable=capable: capable
        )
        args = ScriptArguments(output_dir=str(tmp_path), **options)
        is_bf16 = expected == "bf16"
        assert (args.precision, args.bf16, args.fp16, args.use_cpu) == (
            expected,
            is_bf16,
            False,
            is_bf16,
        )
    with pytest.raises(ValueError, match="one number format"):
        ScriptArguments(output_dir=str(tmp_path), precision="fp32", bf16=True)
