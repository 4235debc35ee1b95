"""The study's commands and table; the runs themselves are those of train_language_agnostic_ir.py."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from st_xlret.options import parse
from tests.training_scripts.scripts import load_script
from training_scripts import train_language_agnostic_ir as recipe
from training_scripts.studies.train_ir_ablation import AblationArguments


@pytest.fixture
def study(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(repository, "study_language_agnostic_ir", monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("tico19/pairs", "tico19", "ebible/documents"):
        (tmp_path / "data" / name).mkdir(parents=True, exist_ok=True)
    return tmp_path / "data"


def test_rows_differ_in_their_losses_alone(study: ModuleType, data: Path, tmp_path: Path) -> None:
    arguments = study.Arguments(data=str(data), output=str(tmp_path / "study"), tokenizer="t")
    commands = {row: study.training_command(arguments, row, "half") for row in study.ROWS}
    for command in commands.values():
        assert command[command.index("--retrieval") + 1] == str(data / "squad_v1.1/train")
        assert not [word for word in command if "/dev" in word]
        assert "--lazy_adam" in command
    for row, (semantic, language) in study.ROWS.items():
        command = commands[row]
        assert float(command[command.index("--semantic_weight") + 1]) == float(semantic)
        assert float(command[command.index("--language_weight") + 1]) == float(language)
        assert ("--pairs" in command) == (semantic or language) and ("--documents" in command) == language
        assert (str(data / "ebible/documents") in command) == (semantic or language)
        if semantic or language:
            first = command.index("--no_parallel") + 1
            assert command[first : first + 5] == study.WITHOUT
    assert "--no_parallel" not in study.training_command(arguments, "+ semantic", "all")
    arguments.model = "m"
    command = study.training_command(arguments, "IR", "half")
    assert "--from_scratch" not in command and command[command.index("--model") + 1] == "m"


@pytest.mark.parametrize("encoder", ["static", "mini", "small"])
def test_the_program_takes_the_commands(study: ModuleType, data: Path, tmp_path: Path, encoder: str) -> None:
    arguments = study.Arguments(data=str(data), output=str(tmp_path / "study"), tokenizer="t", encoder=encoder)
    groups = [recipe.RetrieverArguments, recipe.RetrievalDataArguments, AblationArguments]
    groups += [recipe.LazyAdamArguments, recipe.RunArguments, recipe.TrainingArguments]
    for row in study.ROWS:
        command = study.training_command(arguments, row, "half")
        program = command.index("training_scripts.studies.train_ir_ablation")
        *_, training = parse(groups, [*command[program + 1 :], "--use_cpu"])
        assert training.warmup_steps == 150 and training.per_device_train_batch_size == 256


def test_the_connections_of_the_papers_table_4(study: ModuleType, data: Path, tmp_path: Path) -> None:
    arguments = study.Arguments(data=str(data), output=str(tmp_path / "s"), tokenizer="t", study="connections")
    plan = study.plan_of(arguments)
    assert [setting for _, setting in plan] == [
        f"connections {name}" for name in ("none", "pivot", "bridge", "islands", "single", "rest")
    ]
    assert [row for row, _ in plan] == ["IR", *["+ semantic"] * 5]
    commands = {setting: study.training_command(arguments, row, setting) for row, setting in plan}
    for setting, command in commands.items():
        first = command.index("--languages") + 1
        assert command[first : first + 4] == ["en", "tr", "vi", "zh"] and "--documents" not in command
        if setting == "connections none":
            assert "--pairs" not in command and "--connections" not in command
        else:
            assert command[command.index("--connections") + 1] == setting.split()[1]
            assert command[command.index("--bridge") + 1] == "zh"


@pytest.mark.parametrize(
    ("name", "option", "off"),
    [("pairs", "--pairs_per_language", "IR"), ("others", "--others_per_language", "+ semantic")],
)
def test_the_sizes_of_the_papers_figures_3_and_4(
    study: ModuleType, data: Path, tmp_path: Path, name: str, option: str, off: str
) -> None:
    arguments = study.Arguments(data=str(data), output=str(tmp_path / "s"), tokenizer="t", study=name, sizes=[0, 500])
    (without, zero), (row, setting) = study.plan_of(arguments)
    assert (without, zero, setting) == (off, f"{name} 0", f"{name} 500")
    assert option not in study.training_command(arguments, without, zero)
    command = study.training_command(arguments, row, setting)
    assert command[command.index(option) + 1] == "500"
    # In Figure 4 the other sentences are of the languages without parallel ones.
    assert ("--no_parallel" in command) == ("--others_without_parallel" in command) == (name == "others")


@pytest.mark.parametrize("name", ["connections", "pairs", "others"])
def test_the_program_takes_the_commands_of_the_other_studies(
    study: ModuleType, data: Path, tmp_path: Path, name: str
) -> None:
    arguments = study.Arguments(data=str(data), output=str(tmp_path / "study"), tokenizer="t", study=name)
    groups = [recipe.RetrieverArguments, recipe.RetrievalDataArguments, AblationArguments]
    groups += [recipe.LazyAdamArguments, recipe.RunArguments, recipe.TrainingArguments]
    for row, setting in study.plan_of(arguments):
        command = study.training_command(arguments, row, setting)
        program = command.index("training_scripts.studies.train_ir_ablation")
        parse(groups, [*command[program + 1 :], "--use_cpu"])


def test_the_table_of_connections_has_a_column_for_each_language(study: ModuleType) -> None:
    scores = {code: dict.fromkeys(study.METRICS, value) for code, value in (("en", 0.6), ("zh", 0.2))}
    result = {"xquad_r": {"scores": scores}, "seconds": 1, "steps": 5, "questions": 1, "pairs": 2, "others": 3}
    figures = study.summarise(result | {"command": "c"}, ["zh"], each_language=True)
    plan = [("+ semantic", "connections bridge")]
    table = study.table_of(plan, {study.run_name(*plan[0]): figures})
    assert "MRR@100 en" in table and "MRR@100 zh" in table and "MRR@100 all" in table and "without" not in table
    assert [cell.strip() for cell in table.splitlines()[2].split("|")[3:6]] == ["60.0", "20.0", "40.0"]


def test_languages_with_and_without_parallel_sentences_stand_apart(study: ModuleType) -> None:
    scores = {
        code: dict.fromkeys(study.METRICS, value)
        for code, value in (("en", 0.6), ("de", 0.4), ("th", 0.1), ("hi", 0.3))
    }
    result = {"xquad_r": {"scores": scores}, "seconds": 61.2, "steps": 5, "questions": 1, "pairs": 2, "others": 3}
    figures = study.summarise(result | {"command": "c"}, ["th", "hi"])
    assert figures["average"]["with"]["mrr_at_100"] == pytest.approx(0.5)
    assert figures["average"]["without"]["map_at_20"] == pytest.approx(0.2)
    assert figures["average"]["all"]["recall_at_100"] == pytest.approx(0.35)
    table = study.table_of([("IR", "half"), ("+ semantic", "half")], {study.run_name("IR", "half"): figures})
    header, _, *rows = table.splitlines()
    assert "MRR@100 without" in header and len(rows) == 1
    assert [cell.strip() for cell in rows[0].split("|")[3:6]] == ["50.0", "20.0", "35.0"]


def test_finished_runs_are_kept_and_tabulated(
    study: ModuleType, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    class Done:
        returncode = 0

    def run(command: list[str], **options: object) -> Done:
        folder = Path(command[command.index("--output_dir") + 1])
        ran.append(folder.name)
        scores = {code: dict.fromkeys(study.METRICS, 0.5) for code in ("en", "th")}
        result = {"seconds": 1, "steps": 1, "questions": 1, "pairs": 1, "others": 1, "command": "c"}
        result["xquad_r"] = {"scores": scores, "average": {}}
        (folder / "results.json").write_text(json.dumps(result))
        return Done()

    monkeypatch.setattr(subprocess, "run", run)
    given = ["study", "--data", str(data), "--output", str(tmp_path / "study"), "--tokenizer", "t", "--rows", "IR"]
    monkeypatch.setattr("sys.argv", given)
    study.main()
    assert ran == ["IR-half"]
    monkeypatch.setattr("sys.argv", [*given, "+ semantic + language"])
    study.main()
    assert ran == ["IR-half", "semantic-language-half"]
    assert set(json.loads((tmp_path / "study" / "study.json").read_text())) == set(ran)
    assert (tmp_path / "study" / "study.md").read_text() in capsys.readouterr().out
    assert "--rows IR" in (tmp_path / "study" / "command.txt").read_text()
