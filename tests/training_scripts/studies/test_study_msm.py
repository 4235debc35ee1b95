"""The MSM study: what its rows train, that every one of them trains, and that an interrupted study goes on."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from transformers import HfArgumentParser

from st_xlret.training.data_arguments import DataArguments
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.msm_options import MSMOptions
from tests.training_scripts.scripts import load_script

MAIN_ROWS = ["no pre-training", "MLM", "CROP", "ICT", "CCP", "MSM"]


@pytest.fixture
def study(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(repository, "study_msm", monkeypatch)


@pytest.fixture
def program(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return load_script(repository, "train_msm", monkeypatch)


def figures(study: ModuleType, score: float) -> dict[str, Any]:
    scores: dict[str, dict[str, float]] = {}
    for part, metric in study.METRICS.values():
        scores.setdefault(part, {})[metric] = score
    return {
        "average": scores,
        "averages": {},
        "languages": {part: {"fr": found} for part, found in scores.items()},
        "training": {"tokens": 2_000_000, "seconds": 60.0},
    }


def test_rows_differ_in_what_they_say(study: ModuleType, program: ModuleType, tmp_path: Path) -> None:
    assert list(study.ROWS) == MAIN_ROWS
    kinds = [EncoderArguments, DataArguments, MSMOptions, program.MSMRunArguments]
    arguments = study.Arguments(data="d", output="o", steps=7, block_sentences=5, network_learning_rate=0.003)
    found = {}
    for row in [*study.ROWS, *study.ABLATIONS]:
        path, *command = study.training_command(arguments, "t", row, 3, tmp_path / "run")[1:]
        assert Path(path).name == "train_msm.py" and Path(path).is_file()
        encoder, data, options, run = HfArgumentParser(kinds).parse_args_into_dataclasses(command)
        assert (encoder.from_scratch, run.seed, options.block_sentences) == ("mini", 3, 5)
        assert run.max_steps == (1 if row == "no pre-training" else 7)
        assert data.languages == study.LANGUAGES and data.pairs == []
        found[row] = options, run.further_arguments()
    changed = {
        row: {key: value for key, value in asdict(options).items() if value != asdict(found["MSM"][0])[key]}
        for row, (options, _) in found.items()
    }
    assert changed["MSM"] == changed["no pre-training"] == {}
    assert changed["MSM, no bias"] == {"mu": 0.0}
    assert changed["CROP"] == {"objective": "crop", "span_sentences": 8}
    assert all(changed[row] for row in study.ABLATIONS)
    with_networks = {row for row, (_, further) in found.items() if further}
    assert with_networks == {"CCP", "MSM", *study.ABLATIONS}
    assert found["MSM"][1] == {"learning_rate_mapping": {"networks|head": 0.003}}


@pytest.mark.parametrize("size", ["tiny", "static"])
def test_every_row_trains(
    study: ModuleType, program: ModuleType, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    monkeypatch.setattr(study, "folders_in", lambda *_: [str(documents)])
    monkeypatch.setattr(study, "LANGUAGES", ["en", "fr"])
    arguments = study.Arguments(
        data="d", output="o", size=size, steps=2, block_sentences=4, batch_size=2, max_seq_length=16
    )
    tokenizer = str(tmp_path / "tokenizer")
    documents_of_study = study.load_documents([documents], cache_dir=tmp_path / "cache")
    study.shared_tokenizer(Path(tokenizer), lambda: [(documents_of_study, "sentence", "language")], 150)
    rows = study.rows_of(study.Arguments(data="d", output="o", size=size))
    assert ("MLM" in rows) == (size != "static")
    for row in rows if size == "static" else MAIN_ROWS:
        command = study.training_command(arguments, tokenizer, row, 0, tmp_path / study.run_name(row))
        results = program.main(command[2:])
        assert results["tokens"] > 0, row


def test_finished_runs_are_tabulated_and_not_run_again(
    study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizer").mkdir()
    for row, seed, score in (("MSM", 0, 0.4), ("MSM", 1, 0.5), ("CROP", 0, 0.3)):
        folder = study.folder_of(tmp_path, row, seed)
        folder.mkdir()
        (folder / "figures.json").write_text(json.dumps(figures(study, score)))
    ran: list[list[str]] = []

    def fail(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", fail)
    given = ["--data", "d", "--output", str(tmp_path), "--seeds", "0", "1", "--rows", "CROP", "MSM"]
    tables = study.main(given)
    assert [Path(command[1]).name for command in ran] == ["train_msm.py"]
    shown = capsys.readouterr()
    assert "CROP-1 failed: see" in shown.err and tables in shown.out
    assert "45.0 ±5.0" in tables and "30.0" in tables
    assert set(json.loads((tmp_path / "study.json").read_text())) == {"MSM", "CROP"}
    assert (tmp_path / "study.png").stat().st_size > 0
    assert "--rows CROP MSM" in (tmp_path / "command.txt").read_text()
