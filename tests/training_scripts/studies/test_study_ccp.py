"""The study's plan, commands and table; the runs themselves are those of train_ccp.py."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from transformers import HfArgumentParser

from st_xlret.training import CCPOptions
from st_xlret.training.data_arguments import DataArguments
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.run_arguments import RunArguments
from tests.training_scripts.scripts import load_script


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
    kinds = [EncoderArguments, DataArguments, CCPOptions, RunArguments]
    return list(HfArgumentParser(kinds).parse_args_into_dataclasses(command))


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
        "pairs only": (100, {"ccp_weight": 0, "mlm_weight": 0}),
        "+ CCP": (200, {"ccp_weight": 1, "mlm_weight": 0}),
        "+ CCP + MLM": (300, {"ccp_weight": 1, "mlm_weight": 1}),
        "+ CCP, vanilla BN": (200, {"ccp_weight": 1, "mlm_weight": 0, "normalization": "batch"}),
        "+ CCP, no BN": (200, {"ccp_weight": 1, "mlm_weight": 0, "normalization": "none"}),
        "+ CCP, no bank": (200, {"ccp_weight": 1, "mlm_weight": 0, "bank_size": 0}),
    }
    assert expected.keys() == study.ROWS.keys()
    common: dict[str, Any] = {"bank_size": 64, "alpha": 0.6, "token_dropout": 0.15 if encoder == "static" else 0.0}
    others = set()
    for row, (steps, changed) in expected.items():
        program, *command = study.training_command(arguments, row, "500")[1:]
        assert Path(program).name == "train_ccp.py" and Path(program).is_file()
        model, texts, options, run = parsed(command)
        assert isinstance(run, RunArguments) and options == CCPOptions(**(common | changed))
        # A batch of pairs is as likely as one of each other kind: every row has as many of them.
        assert run.max_steps == steps
        assert run.output == str(Path("out") / study.run_name(row, "500"))
        # What a head learns with is set where there is one and the rate of the vectors would be too high for it.
        assert ("learning_rate_mapping" in run.training_arguments) == (encoder == "static" and row != "pairs only")
        others.add(repr((model, texts, {**asdict(run), "max_steps": 0, "output": "", "training_arguments": ""})))
    assert len(others) == 1


def test_the_number_of_pairs_decides_where_they_come_from(study: ModuleType, data: Path) -> None:
    arguments = study.Arguments(data=str(data), output="out")
    some, everything = (parsed(study.training_command(arguments, "+ CCP", size)[2:])[1] for size in ("500", "all"))
    assert isinstance(some, DataArguments) and isinstance(everything, DataArguments)
    assert (some.pairs_per_language, some.dictionaries, some.parallel_documents) == (500, [], [])
    assert everything.pairs_per_language is None
    assert everything.dictionaries == [str(data / "dictionaries/words.en-fr.tsv.gz")]
    assert everything.parallel_documents == [str(data / "ebible/documents")]
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
    study.main([*given, "--table-only"])
    assert len(started) == 1
