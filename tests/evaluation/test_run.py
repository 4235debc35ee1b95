from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from st_xlret.modules.calibration_layer import CalibrationLayer


@pytest.fixture
def run(repository: Path, tmp_path: Path):
    def program(*arguments: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(repository), "COLUMNS": "200"}
        command = [sys.executable, str(repository / "evaluation" / "run.py"), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120)

    return program


def test_writes_scores_and_prints_them_beside_the_papers(run, static_model, tatoeba_folder, tmp_path) -> None:
    static_model.save_pretrained(str(tmp_path / "model"))
    output = tmp_path / "new" / "scores.json"
    output.parent.mkdir()
    output.write_text("an older result")
    arguments = ["--model", tmp_path / "model", "--benchmark", "tatoeba", "--data", tatoeba_folder]
    done = run(*arguments, "--languages", "fr", "de", "--output", output, "--quiet")
    assert done.returncode == 0, done.stderr
    written = json.loads(output.read_text())
    assert set(written) == {"benchmark", "model", "scores", "average", "protocol"}
    assert written["benchmark"] == "tatoeba" and written["model"] == str(tmp_path / "model")
    one, half = ({key: value for key in ("accuracy", "accuracy_to_en", "accuracy_from_en")} for value in (1.0, 0.5))
    assert written["scores"] == {"fr": one, "de": half}
    assert written["average"] == dict.fromkeys(one, 0.75)
    assert os.listdir(output.parent) == ["scores.json"]
    assert "measured here" in done.stdout and "published: CCP paper, Table 1" in done.stdout
    assert "CCP+Calibration" in done.stdout


def test_an_error_is_one_line_and_leaves_the_old_output(run, tatoeba_folder, tmp_path) -> None:
    (tmp_path / "scores.json").write_text("an older result")
    done = run("--model", "./nowhere", "--data", tatoeba_folder, "--output", "scores.json")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("error: --model ./nowhere: no such folder.")
    assert "Traceback" not in done.stderr
    assert (tmp_path / "scores.json").read_text() == "an older result"


@pytest.fixture
def program(repository: Path, monkeypatch: pytest.MonkeyPatch):
    specification = importlib.util.spec_from_file_location("evaluation_run", repository / "evaluation" / "run.py")
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "evaluation_run", module)  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "EMPTY"}, "holds no model"),
        ({"model": "no-such-owner/no-such-model"}, "--model no-such-owner/no-such-model cannot be loaded"),
        ({"benchmark": "bucket"}, r"--benchmark bucket: unknown; there are .*'tatoeba'"),
        ({"languages": ["xx"]}, r"no \['xx'\]; it has \['de', 'fr'\]"),
        ({"data": "nowhere"}, "nowhere is no directory"),
        ({"output": "EMPTY"}, "is a folder"),
        ({"calibration": "nowhere"}, "--calibration nowhere"),
        ({"language_as_task": True, "layer": 3}, "language_as_task"),
    ],
)
def test_errors_name_the_argument(program, tatoeba_folder, tmp_path, changes, message) -> None:
    changes = {key: str(tmp_path) if value == "EMPTY" else value for key, value in changes.items()}
    options = {"model": "unused", "data": str(tatoeba_folder), "output": "never-written.json", "quiet": True}
    with pytest.raises((ValueError, OSError), match=message):
        program.main(program.Arguments(**{**options, **changes}))


def test_layer_and_calibration_reach_the_evaluator(
    program, transformer_model, tatoeba_folder, tmp_path, capsys
) -> None:
    transformer_model.save_pretrained(str(tmp_path / "model"))
    CalibrationLayer(16, ["en", "fr", "de"]).save(str(tmp_path / "calibration"))
    program.main(
        program.Arguments(
            model=str(tmp_path / "model"),
            data=str(tatoeba_folder),
            output=str(tmp_path / "scores.json"),
            calibration=str(tmp_path / "calibration"),
            layer=2,
            quiet=True,
        )
    )
    protocol = json.loads((tmp_path / "scores.json").read_text())["protocol"]
    assert protocol["pooling"] == "mean of the hidden states of layer 2"
    assert protocol["calibration"] == "CalibrationLayer"
    assert "layer 2" in capsys.readouterr().out


def test_help_teaches(run) -> None:
    done = run("--help")
    assert done.returncode == 0
    for phrase in ("--language-as-task", "LASER/data/tatoeba/v1", "--layer 14", "fractions in [0, 1]"):
        assert phrase in done.stdout
