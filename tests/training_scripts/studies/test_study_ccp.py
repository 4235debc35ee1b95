"""The study's plan, commands and table; the runs themselves are those of train_ccp.py."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from st_xlret.options import parse
from st_xlret.training.arguments import DataArguments, LazyAdamArguments, RunArguments, TrainingArguments
from st_xlret.training.encoders import PretrainingEncoderArguments
from tests.training_scripts.scripts import load_script
from training_scripts.studies.train_ccp_ablation import AblationArguments


@pytest.fixture
def study(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(repository, "study_ccp", monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for file in ("tatoeba/v1/tatoeba.fra-eng.eng", "dictionaries/words.en-fr.tsv.gz"):
        (tmp_path / "data" / file).parent.mkdir(parents=True)
        (tmp_path / "data" / file).touch()
    return tmp_path / "data"


def parsed(command: list[str]) -> list[object]:
    kinds = [
        PretrainingEncoderArguments,
        DataArguments,
        AblationArguments,
        LazyAdamArguments,
        RunArguments,
        TrainingArguments,
    ]
    return list(parse(kinds, [*command, "--use_cpu"]))


def test_every_row_is_run_with_every_number_of_pairs_and_ablations_come_last(study: ModuleType) -> None:
    plan = study.plan_of(study.Arguments(data="d", output="o", encoder="mini"))
    assert sorted(plan) == sorted((row, size) for row in study.ROWS for size in ("500", "5000", "all"))
    assert plan[:3] == [("pairs only", "500"), ("+ CCP", "500"), ("+ CCP + MLM", "500")]
    first = [row for row, _ in plan].index("+ CCP, vanilla BN")
    assert first == 9 and all("," in row for row, _ in plan[first:])


def test_a_static_encoder_has_no_masked_words(study: ModuleType) -> None:
    plan = study.plan_of(study.Arguments(data="d", output="o", rows=["+ CCP", "+ CCP + MLM"], pairs=["7", "all"]))
    assert plan == [("+ CCP", "7"), ("+ CCP", "all")]


@pytest.mark.parametrize("encoder", ["static", "mini", "small"])
def test_rows_see_the_same_pairs_and_differ_in_what_they_add(study: ModuleType, data: Path, encoder: str) -> None:
    arguments = study.Arguments(
        data=str(data), output="out", encoder=encoder, tokenizer="t", pair_steps=100, bank_size=64
    )
    expected: dict[str, tuple[int, dict[str, Any]]] = {
        "pairs only": (100, {"ccp_ratio": 0, "mlm_ratio": 0}),
        "+ CCP": (200, {"ccp_ratio": 1, "mlm_ratio": 0}),
        "+ CCP + MLM": (300, {"ccp_ratio": 1, "mlm_ratio": 1}),
        "+ CCP, vanilla BN": (200, {"ccp_ratio": 1, "mlm_ratio": 0, "normalization": "batch"}),
        "+ CCP, no BN": (200, {"ccp_ratio": 1, "mlm_ratio": 0, "normalization": "none"}),
        "+ CCP, no bank": (200, {"ccp_ratio": 1, "mlm_ratio": 0, "bank_size": 0}),
    }
    assert expected.keys() == study.ROWS.keys()
    common: dict[str, Any] = {"bank_size": 64, "language_smoothing": 0.6}
    others = set()
    for row, (steps, changed) in expected.items():
        _, module, *command = study.training_command(arguments, row, "500")[1:]
        assert module == "training_scripts.studies.train_ccp_ablation"
        model, texts, options, static, run, args = parsed(command)
        assert isinstance(args, TrainingArguments) and isinstance(static, LazyAdamArguments)
        assert options == AblationArguments(**(common | changed))
        assert static == LazyAdamArguments(*((True, 0.15) if encoder == "static" else (False, 0.0)))
        # A batch of pairs is as likely as one of each other kind: every row has as many of them.
        assert args.max_steps == steps
        assert args.output_dir == str(Path("out") / study.run_name(row, "500"))
        # What a head learns with is set where there is one and the rate of the vectors would be too high for it.
        assert bool(args.learning_rate_mapping) == (encoder == "static" and row != "pairs only")
        own = {"max_steps": 0, "output_dir": "", "logging_dir": "", "learning_rate_mapping": {}}
        others.add(repr((model, texts, run, {**args.to_dict(), **own})))
    assert len(others) == 1


def test_the_number_of_pairs_decides_where_they_come_from(study: ModuleType, data: Path) -> None:
    arguments = study.Arguments(data=str(data), output="out")
    some, everything = (parsed(study.training_command(arguments, "+ CCP", size)[3:])[1] for size in ("500", "all"))
    assert isinstance(some, DataArguments) and isinstance(everything, DataArguments)
    assert some.pairs_per_language == 500 and everything.pairs_per_language is None
    more = [str(data / "ebible/documents"), str(data / "dictionaries/words.en-fr.tsv.gz")]
    assert everything.pairs == [*some.pairs, *more]
    # The test set's sentences are in neither.
    assert some.exclude == everything.exclude == [str(data / "tatoeba/v1/tatoeba.fra-eng.eng")]
    assert some.languages == everything.languages == study.LANGUAGES


def test_finished_runs_are_tabulated_and_not_run_again(
    study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for row, size, accuracy in (("pairs only", "500", 40.0), ("+ CCP", "500", 41.23)):
        file = study.file(tmp_path, row, size)
        file.parent.mkdir()
        figures = {"average": {stage: accuracy + i for i, stage in enumerate(study.STAGES)}, "seconds": 61.4}
        file.write_text(json.dumps(figures))
    started: list[tuple[str, str]] = []
    monkeypatch.setattr(study, "training_command", lambda _, *run: started.append(run))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1))
    given = ["--data", "d", "--output", str(tmp_path), "--tokenizer", "t", "--pairs", "500"]
    study.main([*given, "--rows", "pairs only", "+ CCP", "+ CCP, no bank"])
    table = (tmp_path / "study.md").read_text(encoding="utf-8")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert cells[0] == ["pairs per language", "training", "raw", "shift", "scale", "rotate", "seconds"]
    assert cells[2:] == [
        ["500", "pairs only", "40.0", "41.0", "42.0", "43.0", "61"],
        ["500", "+ CCP", "41.2", "42.2", "43.2", "44.2", "61"],
    ]
    shown = capsys.readouterr()
    assert table.strip() in shown.out and "CCP-no-bank-500 failed: see" in shown.err
    assert started == [("+ CCP, no bank", "500")]
    assert set(json.loads((tmp_path / "study.json").read_text())) == {"pairs-only-500", "CCP-500"}
    # What was run can be run again as it stands.
    assert "--rows 'pairs only' '+ CCP' '+ CCP, no bank'\n" in (tmp_path / "command.txt").read_text()
    study.main([*given, "--table_only"])
    assert len(started) == 1
