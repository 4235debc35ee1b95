"""The command `evaluate`: its files, its printed tables, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from st_xlret import VectorCalibration
from st_xlret.commands.evaluate import main
from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.evaluation.base import BenchmarkResult
from st_xlret.modules.calibration_layer import CalibrationLayer
from tests import tiny
from tests.evaluation.samples import write_lareqa


@pytest.fixture
def command(static_model, tatoeba_folder, tmp_path) -> dict[str, Any]:
    """Options that evaluate a model on Tatoeba."""
    static_model.save_pretrained(str(tmp_path / "model"))
    return {"model": tmp_path / "model", "data": tatoeba_folder, "output": tmp_path / "scores.json"}


def words(options: dict[str, Any]) -> list[str]:
    return [str(word) for name, value in options.items() for word in (f"--{name}", value)]


def test_writes_scores_and_prints_them_beside_the_papers(repository, command, tmp_path, monkeypatch, capsys) -> None:
    def program(*more: str, **options: Any) -> None:
        monkeypatch.setattr(sys, "argv", ["run.py", *words({**command, **options}), *more])
        runpy.run_path(str(repository / "evaluation" / "run.py"), run_name="__main__")

    output = tmp_path / "scores.json"
    output.write_text('{"benchmark": "an older result"}')
    with pytest.raises(SystemExit, match="^error: .*nowhere"):
        program(model="./nowhere")
    assert output.read_text() == '{"benchmark": "an older result"}'
    program("--languages", "fr", "de")
    one, half, mean = (dict.fromkeys(("accuracy", "accuracy_to_en", "accuracy_from_en"), x) for x in (1.0, 0.5, 0.75))
    result = json.loads(output.read_text())
    assert result.pop("protocol")["sentences"] == "all"
    about = {"benchmark": "tatoeba", "model": str(tmp_path / "model")}
    assert result == {**about, "scores": {"fr": one, "de": half}, "average": mean}
    assert sorted(os.listdir(tmp_path)) == ["model", "scores.json", "scores.md", "tatoeba"]
    printed = capsys.readouterr().out
    assert "measured here" in printed and "published: CCP paper, Table 1" in printed and "CCP+Calibration" in printed


def test_options_reach_the_evaluator(command, tmp_path, capsys) -> None:
    tiny.transformer().save_pretrained(str(tmp_path / "transformer"))
    CalibrationLayer(32, ["en", "de"]).save(str(tmp_path / "calibration"))
    options = {"model": tmp_path / "transformer", "calibration": tmp_path / "calibration", "layer": 0}
    options |= {"benchmark": "lareqa", "data": write_lareqa(tmp_path / "lareqa", languages=("en", "de"))}
    main(words({**command, **options, "context": True, "embedding_cache": tmp_path / "kept"}))
    result = json.loads((tmp_path / "scores.json").read_text())
    assert result["protocol"]["pooling"] == "mean of the hidden states of layer 0"
    assert result["protocol"]["calibration"] == "CalibrationLayer"
    assert {"map_at_20", "recall_at_10_other_languages", "language_preference"} < set(result["average"])
    assert len(list((tmp_path / "kept").rglob("*.npy"))) == 1
    table = (tmp_path / "scores.md").read_text()
    assert table.strip() in capsys.readouterr().out and "measured here, test split" in table
    # The candidates are the papers', but not all of them.
    assert "- corpus_size: 4 here; 13014 in MSM paper, Table 12" in table and "- candidate: sentence here" not in table
    CalibrationLayer(8).save(str(tmp_path / "calibration"))
    with pytest.raises(ValueError, match="the model has 32 dimensions, the calibration 8"):
        main(words({**command, **options}))
    clouds = {code: np.random.default_rng(0).normal(mean, 1, (60, 32)) for code, mean in (("en", 1), ("de", -1))}
    VectorCalibration.fit(clouds, queries_only=True).save(tmp_path / "queries")
    with pytest.raises(ValueError, match="maps queries apart.*export"):
        main(words({**command, **options, "calibration": tmp_path / "queries"}))
    evaluator = TatoebaEvaluator({"de": (["sun"], ["moon"])}, calibration=CalibrationLayer(32, normalize=True))
    vectors = evaluator.embed(tiny.transformer(), ["sun moon", "star"], ["en", "en"])
    np.testing.assert_allclose(vectors.norm(dim=1), 1, atol=1e-6)


def test_scores_are_printed_before_a_disk_that_has_filled_up_refuses_them(command, capsys, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("st_xlret.commands.evaluate.write_json", full)
    with pytest.raises(OSError, match="scores.json"):
        main(words(command))
    assert "75.0" in capsys.readouterr().out


def write_result(file: Path, accuracy: float, benchmark: str = "tatoeba", protocol: Any = None, **more: float) -> str:
    average = {"accuracy": accuracy, **more}
    result = BenchmarkResult(benchmark, {"fr": average}, average, protocol or {})
    file.write_text(json.dumps(result.as_json("runs/model")))
    return str(file)


def test_seeds_are_averaged_and_three_tables_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = [write_result(tmp_path / f"{number}.json", 0.5 + number / 10) for number in (1, 2, 3)]
    base = write_result(tmp_path / "base.json", 0.5, f1=0.4)
    runs = [f"ours_1={file}" for file in seeds]
    main(["--compare", base, *runs, "--output", str(tmp_path / "table.md")])
    half = t.ppf(0.975, 2) * 0.1 / 3**0.5
    printed = capsys.readouterr().out
    assert f"70.0 ± {100 * half:.1f}" in printed and printed == (tmp_path / "table.md").read_text()
    header, first, second = (tmp_path / "table.csv").read_text().splitlines()
    assert header == "system,seeds,accuracy,accuracy_interval" and first == "base,1,0.5,"
    assert second.startswith("ours_1,3,0.7,") and float(second.split(",")[3]) == pytest.approx(half)
    latex = " ".join((tmp_path / "table.tex").read_text().split())
    assert rf"ours\_1 & 70.0 $\pm$ {100 * half:.1f} & 3 \\" in latex and latex.endswith("\\end{tabular}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--model no-such-owner/no-such-model --data tatoeba", "no-such-owner/no-such-model|couldn't connect"),
        ("--model m --benchmark bucket --data tatoeba", "'bucket'.*'tatoeba'"),
        ("--model m --data nowhere", "nowhere"),
        ("--model m --output tatoeba --data tatoeba", "folder"),
        ("--model m --output a.json/never.json --data tatoeba", r"a\.json"),
        ("--model m --benchmark lareqa", "lareqa .*xquad-r/en.json"),
        ("--model m --context --data tatoeba", "--benchmark tatoeba: .*context"),
        ("--compare a.json bucc.json", "tatoeba.*bucc"),
        ("--compare a.json pool.json", "30"),
        ("--compare a.json a.json", "twice"),
        ("--compare a.json broken.json", "broken.json"),
        ("--compare a.json nowhere.json", "nowhere.json"),
        ("--compare a.json --model m", "--model .*--compare"),
        ("--compare a.json --layer 0", "--layer .*--compare"),
    ],
)
def test_what_cannot_be_done_is_named(arguments: str, message: str, tmp_path, tatoeba_folder, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_result(tmp_path / "a.json", 0.5)
    write_result(tmp_path / "bucc.json", 0.5, benchmark="bucc")
    write_result(tmp_path / "pool.json", 0.5, protocol={"corpus_size": "30"})
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises((ValueError, OSError), match=message):
        main(["--output", "never.json", *arguments.split()])
    assert not list(tmp_path.rglob("never*"))
