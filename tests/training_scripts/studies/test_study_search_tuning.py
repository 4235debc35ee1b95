"""How the study of search chooses learning rates, when trials fail and when it is interrupted."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from tests.training_scripts.scripts import load_script
from tests.training_scripts.studies.runs import Runs

ROW = "translations: similarities"


class Killed(Exception):
    """The study ended here."""


class Trials(Runs):
    """Trials of rates with these scores; those without one fail, and the one with this number is interrupted."""

    def __init__(self, scores: dict[str, float], interrupted: int | None = None) -> None:
        super().__init__()
        self.scores, self.interrupted = scores, interrupted

    def __call__(self, command: list[str], **given: object) -> subprocess.CompletedProcess[str]:
        if len(self.commands) == self.interrupted:
            self.interrupted = None
            raise Killed
        if "--learning_rate" in command and command[command.index("--learning_rate") + 1] not in self.scores:
            self.commands.append(command)
            return subprocess.CompletedProcess(command, 1)
        done = super().__call__(command, **given)
        if "--held_out" in command:
            file = Path(command[command.index("--output") + 1])
            score = next(score for rate, score in self.scores.items() if f"-{rate}-".replace(".", "-") in str(file))
            file.write_text(json.dumps({"raw held out": score}))
        return done


@pytest.fixture
def study(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(repository, "study_search", monkeypatch)


@pytest.fixture
def given(data: Path, tmp_path: Path) -> list[str]:
    given = ["--model", "m", "--data", str(data), "--output", str(tmp_path / "study"), "--rows", ROW]
    return [*given, "--seeds", "0", "--paragraphs", "2"]


def use(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> Runs:
    monkeypatch.setattr("training_scripts.studies.common.subprocess.run", runs)
    return runs


def kept(study: ModuleType, tmp_path: Path) -> set[str]:
    return {path.parent.name for path in (tmp_path / "study").glob("*/model")}


def test_a_further_rate_that_fails_is_not_chosen_and_not_tried_again(
    study: ModuleType,
    given: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = use(monkeypatch, Trials({"3e-05": 0.1, "0.0001": 0.2, "0.0003": 0.3}))
    study.main(given)
    printed = capsys.readouterr()
    assert "| 0.0003" in printed.out and "0.0009 counts as the worst" in printed.err
    assert kept(study, tmp_path) == {study.run_name(ROW, "0.0003", 0)}
    count = len(runs.commands)
    study.main(given)
    assert len(runs.commands) == count


def test_a_given_rate_that_fails_is_tried_again(
    study: ModuleType,
    given: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use(monkeypatch, Trials({"3e-05": 0.1, "0.0001": 0.2}))
    study.main(given)
    printed = capsys.readouterr().err
    assert f"{ROW} is left out: a trial failed" in printed and f"not finished: {ROW}" in printed
    # Nothing is removed before the choice is made.
    assert kept(study, tmp_path) == {study.run_name(ROW, rate, 0) for rate in ("3e-05", "0.0001")}
    use(monkeypatch, Trials({"3e-05": 0.1, "0.0001": 0.2, "0.0003": 0.15}))
    study.main(given)
    assert "| 0.0001" in capsys.readouterr().out
    assert kept(study, tmp_path) == {study.run_name(ROW, "0.0001", 0)}


@pytest.mark.parametrize("commands", range(9))
def test_an_interrupted_tuning_goes_on(
    study: ModuleType,
    given: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    commands: int,
) -> None:
    use(monkeypatch, Trials({"3e-05": 0.3, "0.0001": 0.2, "0.0003": 0.1, "9e-06": 0.25}, interrupted=commands))
    with pytest.raises(Killed):
        study.main(given)
    study.main(given)
    assert re.search(r"\| +3e-05 \|", capsys.readouterr().out)
    assert kept(study, tmp_path) == {study.run_name(ROW, "3e-05", 0)}


def test_a_table_of_other_rates_is_refused(
    study: ModuleType, given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Trials({"3e-05": 0.1, "0.0001": 0.2, "0.0003": 0.3}))
    study.main([*given, "--further_rates", "0"])
    table = (tmp_path / "study" / "study.md").read_text()
    with pytest.raises(ValueError, match="further_rates was 0, is 2"):
        study.main([*given, "--table_only"])
    assert (tmp_path / "study" / "study.md").read_text() == table
    study.main([*given, "--table_only", "--further_rates", "0", "--steps", "7"])
    assert (tmp_path / "study" / "study.md").read_text() == table


def test_a_study_from_before_further_rates_is_continued_without(
    study: ModuleType, given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = use(monkeypatch, Trials({"3e-05": 0.1, "0.0001": 0.2, "0.0003": 0.3}))
    study.main([*given, "--further_rates", "0"])
    file = tmp_path / "study" / "settings.json"
    settings = json.loads(file.read_text())
    del settings["further_rates"]
    file.write_text(json.dumps(settings))
    count = len(runs.commands)
    study.main([*given, "--further_rates", "0"])
    assert len(runs.commands) == count
