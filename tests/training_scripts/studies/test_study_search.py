"""The study's commands, test set and table; the runs themselves are those of the training scripts."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from st_xlret.options import parse
from st_xlret.training.arguments import DataArguments, LazyAdamArguments, RunArguments, TrainingArguments
from st_xlret.training.encoders import PretrainingEncoderArguments
from st_xlret.training.questions import RetrievalDataArguments
from tests.training_scripts.scripts import load_script
from tests.training_scripts.studies.runs import Runs
from training_scripts import train_language_agnostic_ir as train_ir
from training_scripts import train_ml_ctl, train_msm, train_search
from training_scripts.studies import (
    train_ccp_ablation,
    train_ir_ablation,
    train_msm_ablation,
    train_rival,
    train_search_ablation,
)
from training_scripts.studies.search_rows import ROWS, with_needed


@pytest.fixture
def study(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(repository, "study_search", monkeypatch)


@pytest.fixture
def arguments(study: ModuleType, data: Path, tmp_path: Path) -> object:
    (tmp_path / "study").mkdir()
    return study.Arguments(
        model="m",
        data=str(data),
        output=str(tmp_path / "study"),
        paragraphs=2,
        learning_rates=[1e-4],
        documents_learning_rates=[3e-5],
    )


def options_of(command: list[str]) -> list[str]:
    return command[command.index("-m") + 2 :]


def options_classes(program: str) -> list[type]:
    """The groups of options of a program that trains a row."""
    documents = [PretrainingEncoderArguments, DataArguments]
    rest = [LazyAdamArguments, RunArguments]
    msm = train_msm.TrainingArguments
    return {
        "train_search_ablation": [
            train_search.CheckpointArguments,
            train_search.SearchDataArguments,
            train_search_ablation.AblationArguments,
            RunArguments,
            train_search.TrainingArguments,
        ],
        "train_ir_ablation": [
            train_ir.RetrieverArguments,
            RetrievalDataArguments,
            train_ir_ablation.AblationArguments,
            *rest,
            train_ir.TrainingArguments,
        ],
        "train_ml_ctl": [
            train_ml_ctl.EncoderArguments,
            train_ml_ctl.ParallelArguments,
            train_ml_ctl.MLCTLArguments,
            *rest,
            train_ml_ctl.TrainingArguments,
        ],
        "train_ccp_ablation": [*documents, train_ccp_ablation.AblationArguments, *rest, TrainingArguments],
        "train_msm_ablation": [*documents, train_msm_ablation.AblationArguments, *rest, msm],
        "train_rival": [*documents, train_rival.RivalArguments, *rest, msm],
    }[program]


def test_every_row_is_a_command_that_its_program_takes(study: ModuleType, arguments, tmp_path: Path) -> None:
    for row, known in ROWS.items():
        if not known.program:
            continue
        command = study.training_command(arguments, row, 3, tmp_path / "run", 2e-5)
        program = command[2].split(".")[-1]
        parsed = parse(options_classes(program), [*options_of(command), "--use_cpu"])
        encoder, training = parsed[0], parsed[-1]
        start = "m" if known.start is None else str(study.model_of(arguments, known.start, 3))
        assert encoder.model == start and encoder.freeze_embeddings, row
        assert training.max_steps == 200 and training.seed == 3 and training.adam_beta2 == 0.98, row
        assert training.learning_rate == 2e-5, row
        data = next(group for group in parsed if isinstance(group, DataArguments))
        assert bool(data.pairs) != known.has_documents_alone, row
        assert not [path for path in getattr(data, "retrieval", []) if "dev" in path]
        assert not [path for path in data.documents if "tico19" in path], row


def test_every_row_has_as_many_texts_in_a_batch(study: ModuleType, arguments, tmp_path: Path) -> None:
    texts = {}
    for row, known in ROWS.items():
        if not known.program:
            continue
        command = study.training_command(arguments, row, 0, tmp_path / "run", 1e-4)
        size = int(command[command.index("--per_device_train_batch_size") + 1])
        of_a_row = {"train_search_ablation": 1, "train_ml_ctl": 2, "train_ir_ablation": 2, "train_ccp_ablation": 2}
        texts[row] = size * of_a_row.get(known.program, 16)
        if "--pairs_batch_size" in command:
            pairs = int(command[command.index("--pairs_batch_size") + 1])
            texts[row] += 2 * pairs
            if "--others_batch_size" in command:  # and the pairs once more, in the batch of the language loss
                texts[row] += 2 * pairs + int(command[command.index("--others_batch_size") + 1])
    assert texts.pop("ML-CTL, CZ-NCE with words") == 64  # of longer sentences
    assert max(texts.values()) <= 128 and min(texts.values()) >= 120, texts


def test_merged_rows_are_made_of_rows_of_the_same_seed(study: ModuleType, arguments, tmp_path: Path) -> None:
    for row, known in ROWS.items():
        if not known.merged:
            continue
        command = study.training_command(arguments, row, 3, tmp_path / "run", None)
        first, last = command.index("--add") + 1, command.index("--output")
        folders = {Path(entry.rsplit(":", 1)[0]).parent for entry in command[first:last]}
        assert folders == {study.folder_of(arguments, other, 3) for other in known.merged}, row


def test_a_row_comes_after_those_that_it_needs() -> None:
    names = list(ROWS)
    for row, known in ROWS.items():
        assert all(names.index(other) < names.index(row) for other in known.needs), row
        if known.rate_of is not None:
            assert names.index(known.rate_of) < names.index(row) and not ROWS[known.rate_of].needs, row
    assert with_needed(["0.3 of CCP, then similarities"]) == ["CCP", "0.3 of CCP", "0.3 of CCP, then similarities"]


def test_the_checkpoint_has_one_seed(study: ModuleType, arguments) -> None:
    arguments.rows, arguments.seeds = ["checkpoint", "CCP"], [1, 2]
    assert study.models(arguments) == ["checkpoint-0", "CCP-3e-05-1", "CCP-3e-05-2"]
    figures = {name: {"raw pool": 0.25} for name in study.models(arguments)}
    rows = study.measured(arguments, figures)
    assert {row: len(found) for row, found in rows.items()} == {"checkpoint": 1, "CCP": 2}
    assert study.table_of(rows, {"CCP": "3e-05"}).count("25.0") == 2


def test_the_rate_that_finds_held_out_translations_best_is_chosen(study: ModuleType, arguments) -> None:
    arguments.documents_learning_rates, arguments.seeds = [1e-5, 3e-5, 1e-4], [4, 5]
    arguments.rows = ["CCP"]
    for rate, score in (("1e-05", 0.5), ("3e-05", 0.75), ("0.0001", 0.25)):
        assert study.chosen_rate(arguments, "CCP") is None and study.models(arguments) == []
        folder = Path(arguments.output) / study.run_name("CCP", rate, 4)
        folder.mkdir()
        (folder / "held-out.json").write_text(json.dumps({"raw held out": score}))
    assert study.chosen_rate(arguments, "CCP") == 3e-5
    assert study.models(arguments) == ["CCP-3e-05-4", "CCP-3e-05-5"]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs()
    monkeypatch.setattr("training_scripts.studies.common.subprocess.run", runs)
    return runs


def test_the_table_has_the_mean_and_the_spread_of_the_seeds(
    study: ModuleType, data: Path, tmp_path: Path, runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "study"
    given = ["--model", "m", "--data", str(data), "--output", str(output), "--rows", "checkpoint"]
    given += ["translations: similarities", "--seeds", "0", "1", "--paragraphs", "2", "--learning_rates", "1e-4"]
    study.main(given)
    printed = capsys.readouterr().out
    assert "8,000" in printed and "51.0 ± 1.0" in printed and "95.0" in printed and "75.0 ± 0.0" in printed
    assert len(json.loads((output / "study.json").read_text())) == 3
    assert (output / "study.md").read_text() in printed
    assert len(runs.commands) == 5
    study.main(given)
    assert len(runs.commands) == 5  # what is there is neither trained nor measured again


def test_rates_are_tried_by_the_first_seed_and_rows_wait_for_each_other(
    study: ModuleType, data: Path, tmp_path: Path, runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    output, row = tmp_path / "study", "translations: similarities"
    given = ["--model", "m", "--data", str(data), "--output", str(output), "--rows", row, "--seeds", "0", "1"]
    given += ["--paragraphs", "2", "--jobs", "3"]
    study.main(given)
    assert "| 0.0003" in capsys.readouterr().out
    trained = [command for command in runs.commands if "measure" not in command[2]]
    assert sorted(command[command.index("--learning_rate") + 1] for command in trained) == [
        "0.0001",
        "0.0003",
        "0.0003",
        "0.0009",  # because the best of the given ones is the largest
        "3e-05",
    ]
    # Only the models of the chosen rate are kept.
    assert [path.parent.name for path in output.glob("*/model")] != []
    assert {path.parent.name[:-2] for path in output.glob("*/model")} == {study.run_name(row, "0.0003")}
    count = len(runs.commands)
    study.main(given)
    assert len(runs.commands) == count


def test_a_row_takes_the_rate_of_another_one_which_is_only_tuned(
    study: ModuleType, data: Path, tmp_path: Path, runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    row = "questions, similarities and InfoNCE"
    other = ROWS[row].rate_of
    given = ["--model", "m", "--data", str(data), "--output", str(tmp_path / "study"), "--paragraphs", "2"]
    study.main([*given, "--rows", row, "--seeds", "0", "1", "--jobs", "3"])
    trained = [command for command in runs.commands if "measure" not in command[2]]
    rates = [command[command.index("--learning_rate") + 1] for command in trained if "0.3333" in command]
    assert other == "questions, similarities" and rates == ["0.0003", "0.0003"]
    assert len(trained) == 4 + 2 and f"0.0003 of {other}" in capsys.readouterr().out


def test_a_row_without_the_rate_of_another_is_left_out(
    study: ModuleType, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(Runs):
        def __call__(self, command: list[str], **given: object) -> subprocess.CompletedProcess[str]:
            if command[2].endswith("train_msm_ablation") and "--mu" not in command:
                return subprocess.CompletedProcess(command, 1)
            return super().__call__(command, **given)

    monkeypatch.setattr("training_scripts.studies.common.subprocess.run", Failing())
    given = ["--model", "m", "--data", str(data), "--output", str(tmp_path / "study"), "--paragraphs", "2"]
    study.main([*given, "--rows", "MSM, no bias", "--seeds", "0"])
    assert "MSM, no bias is left out: it takes the rate of MSM, which failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        ("", "--steps 9", "steps was 200, is 9"),
        (
            "--learning_rates 1e-4",
            "--learning_rates 1e-4 3e-4",
            r"learning_rates was \[0.0001\], is \[0.0001, 0.0003\]",
        ),
        ("--seeds 0", "--seeds 1 0", "first of --seeds was 0, is 1"),
        ("--paragraphs 2", "--paragraphs 3", "paragraphs was 2, is 3"),
        ("", "--mining m", "mining was None, is 'm'"),
    ],
)
def test_a_study_is_continued_with_the_same_settings(
    study: ModuleType, data: Path, tmp_path: Path, runs: Runs, first: str, then: str, message: str
) -> None:
    given = ["--model", "m", "--data", str(data), "--output", str(tmp_path / "study"), "--rows", "checkpoint"]
    study.main([*given, *first.split()])
    study.main([*given, *first.split(), "--jobs", "2", "--rows", "checkpoint", "CCP"])
    count = len(runs.commands)
    with pytest.raises(ValueError, match=message):
        study.main([*given, *then.split()])
    assert len(runs.commands) == count


@pytest.mark.parametrize(
    ("rates", "message"), [("0 1e-4", "--learning_rates.*above 0"), ("1e-4 1.0000001e-4", "the same to six digits")]
)
def test_learning_rates_are_positive_and_differ(
    study: ModuleType, data: Path, tmp_path: Path, rates: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--model", "m", "--data", str(data), "--output", str(tmp_path / "study"), "--rows", "checkpoint"]
    with pytest.raises((ValueError, SystemExit)) as raised:
        study.main([*given, "--learning_rates", *rates.split()])
    assert re.search(message, f"{raised.value} {capsys.readouterr().err}")


def test_a_row_that_fails_does_not_stop_the_others(
    study: ModuleType, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(Runs):
        def __call__(self, command: list[str], **given: object) -> subprocess.CompletedProcess[str]:
            if command[2].endswith("train_search_ablation") and "--objective" not in command:
                return subprocess.CompletedProcess(command, 1)
            return super().__call__(command, **given)

    monkeypatch.setattr("training_scripts.studies.common.subprocess.run", Failing())
    given = ["--model", "m", "--data", str(data), "--output", str(tmp_path / "study"), "--paragraphs", "2"]
    rows = ["translations: MSELoss", "translations: similarities", "0.7 of translations: similarities"]
    study.main([*given, "--rows", *rows, "--seeds", "0"])
    printed = capsys.readouterr()
    assert "failed" in printed.err and "| translations: MSELoss" in printed.out
    # Neither a row that fails nor one that is made of it is in the table.
    assert "it needs translations: similarities" in printed.err
    assert "similarities" not in printed.out.partition("| row")[2]
