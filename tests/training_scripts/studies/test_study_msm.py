"""The MSM study: what its rows train, that every one of them trains, and that an interrupted study goes on."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from st_xlret.options import parse
from st_xlret.training.arguments import DataArguments, LazyAdamArguments, RunArguments
from st_xlret.training.encoders import PretrainingEncoderArguments
from tests.training_scripts.scripts import load_script
from training_scripts import train_msm
from training_scripts.studies import train_msm_ablation, train_rival

PROGRAMS: dict[str, tuple[Any, type[train_msm.MSMArguments]]] = {
    "training_scripts.train_msm": (train_msm.main, train_msm.MSMArguments),
    "training_scripts.studies.train_msm_ablation": (train_msm_ablation.main, train_msm_ablation.AblationArguments),
    "training_scripts.studies.train_rival": (train_rival.main, train_rival.RivalArguments),
}
MAIN_ROWS = ["no pre-training", "MLM", "mContriever", "ICT", "CROP", "MSM"]


@pytest.fixture
def study(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(repository, "study_msm", monkeypatch)


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


def test_rows_differ_in_what_they_say(study: ModuleType, tmp_path: Path) -> None:
    assert list(study.ROWS) == MAIN_ROWS
    arguments = study.Arguments(data="d", output="o", steps=7, block_sentences=5, network_learning_rate=0.003)
    found = {}
    for row in [*study.ROWS, *study.ABLATIONS]:
        module, *command = study.training_command(arguments, "t", row, 3, tmp_path / "run")[2:]
        method = PROGRAMS[module][1]
        groups = [
            PretrainingEncoderArguments,
            DataArguments,
            method,
            LazyAdamArguments,
            RunArguments,
            train_msm.TrainingArguments,
        ]
        encoder, data, options, _, run, args = parse(groups, [*command, "--use_cpu"])
        assert (encoder.from_scratch, encoder.pooling, options.block_sentences) == ("mini", "mean", 5)
        assert (args.seed, args.per_device_train_batch_size, run.overwrite) == (3, 8, True)
        assert args.max_steps == (1 if row == "no pre-training" else 7)
        assert data.languages == study.LANGUAGES and data.pairs == []
        found[row] = options, args.learning_rate_mapping
    changed = {
        row: {name: value for name, value in vars(options).items() if value != vars(type(options)()).get(name)}
        for row, (options, _) in found.items()
    }
    same = {"block_sentences": 5}
    assert changed["MSM"] == changed["no pre-training"] == same
    assert changed["MSM, no bias"] == same | {"mu": 0.0}
    assert changed["MSM, MLM summed"] == same | {"sum_mlm": True} and changed["MSM, no MLM"] == same | {"mlm_ratio": 0}
    assert changed["mContriever"] == same | {"objective": "contriever", "span_sentences": 8}
    assert all(changed[row] != same for row in study.ABLATIONS)
    assert {row for row, (_, rates) in found.items() if rates} == {"CROP", "MSM", *study.ABLATIONS}
    assert found["MSM"][1] == {"networks|head": 0.003}


@pytest.mark.parametrize("size", ["tiny", pytest.param("static", marks=pytest.mark.slow)])
def test_every_row_trains(
    study: ModuleType, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
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
        results = PROGRAMS[command[2]][0](command[3:])
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
    assert [command[2] for command in ran] == ["training_scripts.studies.train_rival"]
    shown = capsys.readouterr()
    assert "CROP-1 failed: see" in shown.err and tables in shown.out
    assert "45.0 ±5.0" in tables and "30.0" in tables
    assert set(json.loads((tmp_path / "study.json").read_text())) == {"MSM", "CROP"}
    assert (tmp_path / "study.png").stat().st_size > 0
    assert "--rows CROP MSM" in (tmp_path / "command.txt").read_text()
