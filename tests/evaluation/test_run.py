"""The command `evaluate`: its files, its printed tables, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import t

from st_xlret.commands.evaluate import main
from st_xlret.evaluation.base import BenchmarkResult
from st_xlret.modules.calibration_layer import CalibrationLayer
from tests import tiny
from tests.evaluation.samples import write_lareqa


def test_writes_scores_and_prints_them_beside_the_papers(
    repository, static_model, tatoeba_folder, tmp_path, monkeypatch, capsys
) -> None:
    def program(*arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", ["run.py", *map(str, arguments)])
        runpy.run_path(str(repository / "evaluation" / "run.py"), run_name="__main__")

    static_model.save_pretrained(str(tmp_path / "model"))
    output = tmp_path / "new" / "scores.json"
    output.parent.mkdir()
    output.write_text('{"benchmark": "an older result"}')
    options = ["--benchmark", "tatoeba", "--data", tatoeba_folder, "--output", output]
    with pytest.raises(SystemExit, match="^error: .*nowhere"):
        program("--model", "./nowhere", *options)
    assert output.read_text() == '{"benchmark": "an older result"}'
    program("--model", tmp_path / "model", *options, "--languages", "fr", "de")
    result = json.loads(output.read_text())
    assert set(result) == {"benchmark", "model", "scores", "average", "protocol"}
    assert result["benchmark"] == "tatoeba" and result["model"] == str(tmp_path / "model")
    one, half, mean = (dict.fromkeys(("accuracy", "accuracy_to_en", "accuracy_from_en"), x) for x in (1.0, 0.5, 0.75))
    assert result["scores"] == {"fr": one, "de": half} and result["average"] == mean
    assert sorted(os.listdir(output.parent)) == ["scores.json", "scores.md"]
    printed = capsys.readouterr().out
    assert "measured here" in printed and "published: CCP paper, Table 1" in printed and "CCP+Calibration" in printed


def run(**options: Any) -> None:
    words = {f"--{name}": value for name, value in options.items() if value is not None}
    main([str(word) for option in words.items() for word in option])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "no-such-owner/no-such-model"}, "no-such-owner/no-such-model|couldn't connect"),
        ({"benchmark": "bucket"}, "'bucket'.*'tatoeba'"),
        ({"data": "nowhere"}, "nowhere"),
        ({"output": "tatoeba"}, "folder"),
        ({"output": "a-file/scores.json"}, "a-file"),
        ({"benchmark": "lareqa", "data": None}, "lareqa .*xquad-r/en.json"),
        ({"context": True}, "--benchmark tatoeba: .*context"),
    ],
)
def test_errors_name_the_argument(tatoeba_folder, tmp_path, monkeypatch, changes, message) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").touch()
    with pytest.raises((ValueError, OSError), match=message):
        run(**{"model": "unused", "data": tatoeba_folder, "output": "never.json", **changes})
    assert not list(tmp_path.glob("never*"))


def scores_of(model, tmp_path: Path, **options: Any) -> dict[str, Any]:
    """The JSON file of an evaluation."""
    model.save_pretrained(str(tmp_path / "model"))
    run(model=tmp_path / "model", output=tmp_path / "scores.json", **options)
    return json.loads((tmp_path / "scores.json").read_text())


def test_layer_and_calibration_reach_the_evaluator(tatoeba_folder, tmp_path) -> None:
    CalibrationLayer(32, ["en", "fr", "de"]).save(str(tmp_path / "calibration"))
    options = {"calibration": tmp_path / "calibration", "layer": 0, "data": tatoeba_folder}
    protocol = scores_of(tiny.transformer(), tmp_path, **options)["protocol"]
    assert protocol["pooling"] == "mean of the hidden states of layer 0"
    assert protocol["calibration"] == "CalibrationLayer"


def test_lareqa_with_a_cache_of_embeddings(static_model, tmp_path, capsys) -> None:
    folder, kept = write_lareqa(tmp_path / "lareqa", languages=("en", "de")), tmp_path / "kept"
    options = {"benchmark": "lareqa", "data": folder, "context": True, "embedding_cache": kept}
    result = scores_of(static_model, tmp_path, **options)
    assert {"map_at_20", "recall_at_10_other_languages", "language_preference"} < set(result["average"])
    assert len(list(kept.rglob("*.npy"))) == 1
    table = (tmp_path / "scores.md").read_text()
    assert table.strip() in capsys.readouterr().out and "measured here, test split" in table
    assert "published: MSM paper, Table 12 (zero-shot, fine-tuned on SQuAD v1.1; test split)" in table
    # The candidates are the papers', but not all of them.
    assert "- corpus_size: 4 here; 13014 in MSM paper, Table 12" in table and "- candidate: sentence here" not in table


def test_scores_are_printed_before_a_disk_that_has_filled_up_refuses_them(
    static_model, tatoeba_folder, tmp_path, capsys, monkeypatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("st_xlret.commands.evaluate.write_json", full)
    with pytest.raises(OSError, match="scores.json"):
        scores_of(static_model, tmp_path, data=tatoeba_folder)
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
    ("words", "message"),
    [
        ("a.json bucc.json", "tatoeba.*bucc"),
        ("a.json pool.json", "30"),
        ("a.json a.json", "twice"),
        ("a.json broken.json", "broken.json"),
        ("a.json nowhere.json", "nowhere.json"),
        ("a.json --model m", "--compare.*--model"),
        ("a.json --layer 0", "--compare.*--layer"),
    ],
)
def test_what_cannot_be_compared_is_named(words: str, message: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_result(tmp_path / "a.json", 0.5)
    write_result(tmp_path / "bucc.json", 0.5, benchmark="bucc")
    write_result(tmp_path / "pool.json", 0.5, protocol={"corpus_size": "30"})
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises((ValueError, OSError), match=message):
        main(["--compare", *words.split(), "--output", "table.md"])
    assert not (tmp_path / "table.md").exists()
