"""The options of a run, what is checked before it, how it resumes, and what it leaves behind."""

import random
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

from st_xlret.losses import SemanticContrastiveLoss
from st_xlret.options import parse
from st_xlret.training import CrossLingualTrainer
from st_xlret.training.arguments import ScriptArguments
from st_xlret.training.checkpoints import last_checkpoint
from st_xlret.training.run import Run
from tests import tiny
from tests.training.runs import changed


def arguments(folder: Path, **options: Any) -> ScriptArguments:
    fixed: dict[str, Any] = {
        "use_cpu": True,
        "precision": "fp32",
        "per_device_train_batch_size": 4,
        "report_to": "none",
    }
    if "num_train_epochs" not in options:
        fixed["max_steps"] = 2
    return ScriptArguments(output_dir=str(folder), **{**fixed, **options})


def run_of(
    folder: Path,
    *,
    evaluator: Any = None,
    start: int = 0,
    **options: Any,
) -> tuple[dict[str, Any], SentenceTransformer]:
    """A short run as a script makes it: its results, and the model."""
    model = tiny.transformer(dropout=0.1, seed=start)
    run = Run(arguments(folder, **options))
    loss = SemanticContrastiveLoss(model)
    trainer = CrossLingualTrainer(model, run.args, tiny.pairs(16), loss=loss)
    results = run.train_and_save(trainer, {"pairs": 16}, evaluators=[evaluator], tag="pairs")
    return results, model


# Runs that go on

STEPS: dict[str, Any] = {"max_steps": 2, "save_steps": 1, "keep_trained": 0.5}


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with FileLock(tmp_path / ".lock") as lock, pytest.raises(OSError, match=str(lock.lock_file)):
        Run(arguments(tmp_path))


def test_a_finished_run_has_nothing_to_resume(tmp_path: Path) -> None:
    run_of(tmp_path, **STEPS)
    with pytest.raises(SystemExit, match="0"):
        run_of(tmp_path, **STEPS, resume=True)


def test_a_run_that_stopped_at_its_end_is_finished_with_the_same_options(tmp_path: Path) -> None:
    _, model = run_of(tmp_path, **STEPS)
    (tmp_path / "results.json").unlink()
    with pytest.raises(SystemExit, match="weight_decay was 0.01, is 0.5"):
        run_of(tmp_path, **STEPS, resume=True, weight_decay=0.5)
    results, again = run_of(tmp_path, **STEPS, resume=True)
    assert results["steps"] == 2
    assert results["tokens"] > 0
    assert not changed(model.state_dict(), again)


def test_a_checkpoint_without_the_optimizer_is_not_resumed(tmp_path: Path) -> None:
    run_of(tmp_path, **STEPS)
    (tmp_path / "results.json").unlink()
    with pytest.raises(ValueError, match="--save_only_model"):
        run_of(tmp_path, **STEPS, resume=True, save_only_model=True)
    run_of(tmp_path / "new", **STEPS, save_only_model=True)
    (tmp_path / "new" / "results.json").unlink()
    with pytest.raises(SystemExit, match="save_only_model was True, is False"):
        run_of(tmp_path / "new", **STEPS, resume=True)


def test_questions_that_are_left_out_are_content_too(tmp_path: Path) -> None:
    data = Namespace(test=str(tmp_path / "test"))
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "en.json").write_text("one")
    before = Run(arguments(tmp_path / "run"), data).options
    (tmp_path / "test" / "en.json").write_text("two")
    after = Run(arguments(tmp_path / "run"), data).options
    assert {name for name in after if after[name] != before[name]} == {"content of test"}


def test_batches_that_are_left_out_are_no_free_option(tmp_path: Path) -> None:
    kept = Run(arguments(tmp_path, dataloader_num_workers=1), Namespace()).options
    dropped = Run(arguments(tmp_path, dataloader_drop_last=True), Namespace()).options
    assert {name for name in kept if kept[name] != dropped[name]} == {"dataloader_drop_last"}


def test_other_data_under_the_same_name_are_no_resumed_run(tmp_path: Path) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "a.txt").write_text("sun")
    data = Namespace(documents=[str(documents), "me/news:fr"])
    output = documents / "run"
    before = Run(arguments(output), data).options
    (output / "mine.txt").write_text("moon")  # in the folder of the run
    assert Run(arguments(output), data).options == before
    (documents / "a.txt").write_text("sea")  # as long as before
    after = Run(arguments(output), data).options
    assert {name for name in after if after[name] != before[name]} == {"content of documents"}
    (documents / "a.txt").rename(documents / "fr.txt")
    renamed = Run(arguments(output), data).options
    assert renamed["content of documents"] != after["content of documents"]


def test_the_other_side_of_parallel_files_is_content_too(tmp_path: Path) -> None:
    for code in ("en", "fr"):
        (tmp_path / f"talks.en-fr.{code}").write_text(code)
    data = Namespace(pairs=[str(tmp_path / "talks.en-fr.en")])
    before = Run(arguments(tmp_path / "run"), data).options
    (tmp_path / "talks.en-fr.fr").write_text("other translations")
    after = Run(arguments(tmp_path / "run"), data).options
    assert before["content of pairs"] != after["content of pairs"]


@pytest.mark.parametrize("text", ["ccp=2", "[1]", '{"ccp": null}'])
def test_arguments_of_losses_that_are_none_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--loss_options"):
        Run(arguments(tmp_path), Namespace(loss_options=text))


def test_a_checkpoint_that_is_named_takes_other_options(tmp_path: Path) -> None:
    run_of(tmp_path, **STEPS)
    (tmp_path / "results.json").unlink()
    checkpoint = str(tmp_path / "checkpoint-1")
    results, _ = run_of(tmp_path, **STEPS, resume_from_checkpoint=checkpoint, weight_decay=0.5)
    assert results["steps"] == 2


# What stands in the folder


@pytest.mark.parametrize("name", ["results.json", "training.png", "tokenizer/a"])
def test_files_of_others_stay(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine")
    with pytest.raises((FileExistsError, SystemExit), match=name.partition("/")[0]):
        run_of(tmp_path, save_steps=2)
    assert file.read_text() == "mine"
    assert list(tmp_path.rglob("model.safetensors")) == []


@pytest.fixture
def checkpoints_of_others(tmp_path: Path) -> list[Path]:
    """Files in folders that are named like checkpoints."""
    files = []
    for name in ("best", "1", "1-mine", "2"):
        file = tmp_path / f"checkpoint-{name}" / "a"
        file.parent.mkdir()
        file.touch()
        files.append(file)
    return files


@pytest.mark.parametrize("resumes", [True, False])
def test_checkpoints_of_others_stay(
    resumes: bool,
    checkpoints_of_others: list[Path],
    tmp_path: Path,
) -> None:
    run_of(
        tmp_path,
        max_steps=6,
        save_steps=2,
        save_total_limit=2,
        overwrite=not resumes,
        resume=resumes,
    )
    kept = {path.name for path in tmp_path.glob("checkpoint-[246]")}
    assert kept == {"checkpoint-4", "checkpoint-6"}
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-6"
    run_of(tmp_path, max_steps=1, save_strategy="no", overwrite=True)
    assert last_checkpoint(tmp_path) is None
    assert len(list(tmp_path.glob("checkpoint-*/a"))) == len(checkpoints_of_others)


def test_a_checkpoint_that_is_read_is_not_overwritten(tmp_path: Path) -> None:
    run_of(tmp_path, save_steps=2)
    read = [f"{tmp_path}/checkpoint-2/trainer_state.json", "~no user: "]
    with pytest.raises(FileExistsError, match="checkpoint-2 holds what is read"):
        Run(arguments(tmp_path, overwrite=True), Namespace(documents=read))


def test_checkpoints_with_files_of_others_stay(tmp_path: Path) -> None:
    run_of(tmp_path, max_steps=3, save_steps=1, save_total_limit=3)
    notes = tmp_path / "checkpoint-2" / "notes" / "mine.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    with pytest.raises(FileExistsError, match="checkpoint-2 is not deleted.*notes/mine.txt"):
        run_of(tmp_path, overwrite=True)
    assert len(list(tmp_path.glob("checkpoint-*/optimizer.pt"))) == 3
    assert (tmp_path / "results.json").is_file()
    notes.rename(tmp_path / "mine.txt")
    (tmp_path / "checkpoint-1" / "README.md").write_text("mine")
    with pytest.raises(FileExistsError, match="checkpoint-1 is not deleted.*README.md"):
        run_of(tmp_path, overwrite=True)
    (tmp_path / "checkpoint-1").rename(tmp_path / "kept")
    run_of(tmp_path, overwrite=True, save_strategy="no")
    assert list(tmp_path.glob("checkpoint-*")) == []


def test_links_to_checkpoints_stay(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    run_of(tmp_path / "a", save_steps=1)
    (tmp_path / "a" / "checkpoint-1").rename(backup)
    (tmp_path / "a" / "checkpoint-1").symlink_to(backup)
    before = (backup / "optimizer.pt").read_bytes()
    with pytest.raises(FileExistsError, match="checkpoint-1 is not deleted"):
        run_of(tmp_path / "a", overwrite=True)
    run_of(tmp_path / "b", save_steps=2)
    (tmp_path / "b" / "checkpoint-3").symlink_to(backup)
    (tmp_path / "b" / "results.json").unlink()
    checkpoint = str(tmp_path / "b" / "checkpoint-2")
    run_of(tmp_path / "b", resume_from_checkpoint=checkpoint, max_steps=3, save_steps=1)
    assert (backup / "optimizer.pt").read_bytes() == before


def test_no_secrets_of_the_names_of_data_are_in_checkpoints(tmp_path: Path) -> None:
    data = Namespace(documents=["https://me:pass@host/a.jsonl?token=abc"])
    written = str(Run(arguments(tmp_path), data).options)
    assert "pass" not in written
    assert "abc" not in written
    assert "a.jsonl" in written


def test_a_state_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    run_of(tmp_path, save_steps=1)
    state = tmp_path / "checkpoint-1" / "loss_state.safetensors"
    state.write_text("mine")
    with pytest.raises(ValueError, match=f"{state} cannot be read"):
        run_of(tmp_path, overwrite=True)
    assert state.read_text() == "mine"


def run_with_notes(folder: Path, name: str, **options: Any) -> None:
    """A run after whose first step somebody writes a file."""

    class TakesNotes(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 1:
                (folder / name).write_text("mine")

    model = tiny.static()
    run = Run(arguments(folder, max_steps=4, **options))
    loss = SemanticContrastiveLoss(model)
    trainer = CrossLingualTrainer(
        model, run.args, tiny.pairs(16), loss=loss, callbacks=[TakesNotes()]
    )
    run.train_and_save(trainer, {}, tag="pairs")


def test_checkpoints_with_files_of_others_stay_in_the_run_too(tmp_path: Path) -> None:
    run_with_notes(tmp_path, "checkpoint-1/mine.txt", save_steps=1, save_total_limit=1)
    kept = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    assert kept == ["checkpoint-1", "checkpoint-4"]


def test_a_picture_of_the_users_that_appears_meanwhile_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_with_notes(tmp_path, "training.png", save_strategy="no")
    assert "training.png is there already" in caplog.text
    assert (tmp_path / "training.png").read_text() == "mine"


def test_a_finished_run_is_restored_with_its_own_start_alone(tmp_path: Path) -> None:
    run_of(tmp_path, **STEPS)
    (tmp_path / "results.json").unlink()
    with pytest.raises(ValueError, match="did not begin with the weights"):
        run_of(tmp_path, **STEPS, resume=True, start=1)


@pytest.mark.slow
@pytest.mark.parametrize("keep_trained", [0.5, 1.0])
def test_a_run_goes_on_with_its_own_start_alone(keep_trained: float, tmp_path: Path) -> None:
    options = {**STEPS, "keep_trained": keep_trained}
    run_of(tmp_path, **options)
    (tmp_path / "results.json").unlink()
    checkpoint = str(tmp_path / "checkpoint-1")
    with pytest.raises(ValueError, match="checkpoint-1 did not begin with the weights"):
        run_of(tmp_path, **options, resume_from_checkpoint=checkpoint, start=1)
    run_of(tmp_path, **options, resume_from_checkpoint=checkpoint)


def test_no_steps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_steps 0"):
        arguments(tmp_path, max_steps=0)


def test_weights_that_are_not_finite_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="NaN or infinite|nan"):
        run_of(tmp_path, learning_rate=1e38, save_strategy="no", max_steps=1, warmup_steps=0)
    assert not (tmp_path / "model").exists()


# What is measured and logged


def dice(model: Any) -> dict[str, float]:
    """An evaluator that uses up random numbers of every kind."""
    model.eval()
    torch.rand(5)
    np.random.rand(5)
    random.random()
    return {"pairs_average_accuracy": 0.75}


def test_the_score_before_training_changes_nothing_in_it(tmp_path: Path) -> None:
    without, plain = run_of(tmp_path / "a", max_steps=1)
    results, scored = run_of(tmp_path / "b", max_steps=1, evaluator=dice)
    assert "held_out_before" not in without
    assert results["held_out_before"] == {"pairs_average_accuracy": 0.75}
    assert not changed(plain.state_dict(), scored)


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
    options: dict[str, Any],
    lines: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    histories = []
    monkeypatch.setattr(
        "st_xlret.training.run.plot_training", lambda history, path: histories.append(history)
    )
    run_of(tmp_path, save_strategy="no", **options)
    (history,) = histories
    assert len([line for line in history if "loss" in line]) == lines


BEST: list[tuple[dict[str, Any], str | None, bool]] = [
    ({"save_steps": 40}, "m", True),
    ({"save_steps": 40, "eval_steps": 20}, "m", True),
    ({"save_steps": 40, "eval_steps": 30}, "m", False),
    ({"save_strategy": "no"}, "m", False),
    ({}, None, False),
]


@pytest.mark.parametrize(("options", "metric", "is_loaded"), BEST)
def test_the_best_checkpoint_is_one_that_was_evaluated(
    options: dict[str, Any],
    metric: str | None,
    is_loaded: bool,
    tmp_path: Path,
) -> None:
    args = arguments(tmp_path, save_total_limit=1, **options)
    args.keep_best_checkpoint(metric)
    assert args.load_best_model_at_end == is_loaded
    assert args.metric_for_best_model == metric
    assert args.eval_strategy == ("steps" if metric else "no")


# Options


def test_options_are_compared_by_the_batch_of_all_processes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def recorded(size: int, processes: int, accumulation: int = 1) -> dict[str, Any]:
        monkeypatch.setattr(ScriptArguments, "world_size", processes)
        args = arguments(
            tmp_path,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulation,
        )
        return Run(args).options

    whole = recorded(16, 1)
    assert recorded(8, 2) == whole
    assert recorded(4, 4) == whole
    # Accumulated batches have other negatives, and batch statistics, than one of 16.
    assert recorded(8, 1, accumulation=2) != whole


@pytest.mark.parametrize(
    ("further", "steps"),
    [
        ([], 10_000),
        (["--num_train_epochs", "2"], -1),  # epochs replace steps
    ],
)
def test_the_options_of_a_run_are_the_hosts(
    further: list[str],
    steps: int,
    tmp_path: Path,
) -> None:
    file = tmp_path / "options.yml"
    file.write_text("use_cpu: true\nlearning_rate: 3e-5\n")  # a number, without a dot too
    mapping = '{"head": 0.1}'
    words = [str(file), "--output_dir", str(tmp_path), "--learning_rate_mapping", mapping]
    (args,) = parse([ScriptArguments], [*words, *further])
    assert args.learning_rate == 3e-5
    assert args.learning_rate_mapping == {"head": 0.1}
    assert args.max_steps == steps


@pytest.mark.parametrize(
    ("options", "computes_in_bf16", "expected"),
    [
        ({}, True, "bf16"),
        ({}, False, "fp32"),
        ({"precision": "fp32"}, True, "fp32"),
        ({"bf16": True}, False, "bf16"),
    ],
)
def test_the_number_format_without_a_gpu(
    options: dict[str, Any],
    computes_in_bf16: bool,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    monkeypatch.setattr("st_xlret.precision.computes_in_bf16", lambda device: computes_in_bf16)
    args = ScriptArguments(output_dir=str(tmp_path), **options)
    is_bf16 = expected == "bf16"
    assert args.precision == expected
    assert args.bf16 == is_bf16
    assert not args.fp16
    assert args.use_cpu == is_bf16


def test_two_number_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one number format"):
        ScriptArguments(output_dir=str(tmp_path), precision="fp32", bf16=True)
