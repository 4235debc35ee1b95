"""The study's commands and table; the runs themselves are those of train_ml_ctl.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from st_xlret.options import parse
from st_xlret.training.arguments import RunArguments
from tests.training_scripts.scripts import load_script
from training_scripts import train_ml_ctl


@pytest.fixture
def study(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(repository, "study_ml_ctl", monkeypatch)


def test_rows_differ_in_their_mode_alone(study: ModuleType, tmp_path: Path) -> None:
    for folder, name in (("tatoeba/v1", "tatoeba.fra-eng.eng"), ("dictionaries", "x.en-fr.tsv.gz")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).touch()
    arguments = study.Arguments(data=str(tmp_path), output=str(tmp_path / "study"), tokenizer="t", steps=7)
    kinds = [
        train_ml_ctl.EncoderArguments,
        train_ml_ctl.ParallelArguments,
        train_ml_ctl.MLCTLArguments,
        train_ml_ctl.TrainingArguments,
        RunArguments,
    ]
    parsed = []
    for row in study.ROWS:
        path, *command = study.training_command(arguments, row, 3)[1:]
        assert Path(path).name == "train_ml_ctl.py" and Path(path).is_file()
        encoder, data, options, args, run = parse(kinds, [*command, "--use_cpu"])
        assert options.mode == row and row in args.output_dir and args.seed == 3
        assert (args.max_steps, args.warmup_steps, args.per_device_train_batch_size) == (7, 0, 64)
        assert options.mlm_weight == 0.0 and encoder.max_seq_length == 64
        assert data.dictionaries == [str(tmp_path / "dictionaries/x.en-fr.tsv.gz")] and len(data.exclude) == 1
        options.mode = args.output_dir = args.logging_dir = ""
        parsed.append((encoder, data, options, args.to_dict(), run))
    assert all(one == parsed[0] for one in parsed)
    arguments.model = "runs/ccp/model"
    assert "--from_scratch" not in study.training_command(arguments, "CZ-snt", 0)


def test_finished_runs_are_tabulated_and_not_run_again(
    study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, accuracy in ((0, 40.0), (1, 42.0)):
        file = study.file(tmp_path, "CZ-snt", seed)
        file.parent.mkdir()
        average = dict.fromkeys(study.METRICS, accuracy)
        figures = {"average": average, "seconds": 60.0, "pairs": 1234, "word_samples": None}
        file.write_text(json.dumps(figures))
    given = [
        "--data",
        "nothing",
        "--output",
        str(tmp_path),
        "--tokenizer",
        "t",
        "--rows",
        "CZ-snt",
        "--seeds",
        "0",
        "1",
    ]
    study.main(given)
    table = (tmp_path / "study.md").read_text(encoding="utf-8")
    assert "41.0 ± 1.4" in table and "1,234" in table and table.strip() in capsys.readouterr().out
    assert set(json.loads((tmp_path / "study.json").read_text())) == {"CZ-snt seed 0", "CZ-snt seed 1"}
    study.main([*given, "--table-only"])


def test_a_failed_run_says_where_its_log_is(
    study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "training_command", lambda *given: [sys.executable, "-c", "import sys; sys.exit('no')"])
    study.main(["--data", "d", "--output", str(tmp_path), "--tokenizer", "t", "--rows", "CZ-snt", "--jobs", "2"])
    assert "CZ-snt-seed-0 failed" in capsys.readouterr().err
    assert (tmp_path / "CZ-snt-seed-0" / "log.txt").read_text().strip() == "no"
