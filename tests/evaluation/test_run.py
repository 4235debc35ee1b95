"""The command `evaluate`: its files, its printed tables, and what it refuses."""

import errno
import json
import runpy
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from scipy.stats import t

from st_xlret import VectorCalibration
from st_xlret.commands.evaluate import main
from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.evaluation.base import BenchmarkResult
from st_xlret.files import write_text
from st_xlret.modules.calibration_layer import CalibrationLayer
from tests import tiny
from tests.evaluation.samples import write_lareqa

COMMAND = "--model model --data tatoeba --output scores.json"


@pytest.fixture(autouse=True)
def folder(static_model, tatoeba_folder, tmp_path, monkeypatch) -> None:
    """What the command reads."""
    monkeypatch.chdir(tmp_path)
    static_model.save_pretrained("model")


def test_writes_scores_and_prints_them_beside_the_papers(repository, monkeypatch, capsys) -> None:
    def program(more: str) -> None:
        monkeypatch.setattr(sys, "argv", ["run.py", *f"{COMMAND} {more}".split()])
        runpy.run_path(str(repository / "evaluation" / "run.py"), run_name="__main__")

    output = Path("scores.json")
    write_text(output, '{"benchmark": "an older result"}', ours="evaluate")
    with pytest.raises(SystemExit, match="^error: .*nowhere"):
        program("--model ./nowhere")
    assert output.read_text() == '{"benchmark": "an older result"}'
    program("--languages fr de")
    one, half, mean = (
        dict.fromkeys(("accuracy", "accuracy_to_en", "accuracy_from_en"), x)
        for x in (1.0, 0.5, 0.75)
    )
    result = json.loads(output.read_text())
    assert result.pop("protocol")["sentences"] == "all"
    about = {"benchmark": "tatoeba", "model": "model"}
    assert result == {**about, "scores": {"fr": one, "de": half}, "average": mean}
    assert sorted(map(str, Path().glob("[!.]*"))) == [
        "model",
        "scores.json",
        "scores.md",
        "tatoeba",
    ]
    printed = capsys.readouterr().out
    assert (
        "measured here" in printed
        and "published: CCP paper, Table 1" in printed
        and "CCP+Calibration" in printed
    )


def test_options_reach_the_evaluator(capsys) -> None:
    tiny.transformer().save_pretrained("transformer")
    CalibrationLayer(32, ["en", "de"]).save("calibration")
    write_lareqa(Path("lareqa"), languages=("en", "de"))
    options = (
        "--model transformer --calibration calibration --layer 0 --benchmark lareqa --data lareqa"
    )
    main(f"{COMMAND} {options} --context --embedding_cache kept".split())
    result = json.loads(Path("scores.json").read_text())
    assert result["protocol"]["pooling"] == "mean of the hidden states of layer 0"
    assert result["protocol"]["calibration"] == "CalibrationLayer"
    assert {"map_at_20", "recall_at_10_other_languages", "language_preference"} < set(
        result["average"]
    )
    assert len(list(Path("kept").rglob("*.npy"))) == 1
    table = Path("scores.md").read_text()
    assert table.strip() in capsys.readouterr().out and "measured here, test split" in table
    # The candidates are the papers', but not all of them.
    assert (
        "- corpus_size: 4 here; 13014 in MSM paper, Table 12" in table
        and "- candidate: sentence here" not in table
    )
    CalibrationLayer(8).save("calibration")
    clouds = {
        code: np.random.default_rng(0).normal(mean, 1, (60, 32))
        for code, mean in (("en", 1), ("de", -1))
    }
    VectorCalibration.fit(clouds, queries_only=True).save("queries")
    for calibration, message in (
        ("calibration", "has 32 .* 8"),
        ("queries", "maps queries apart.*export"),
    ):
        with pytest.raises(ValueError, match=message):
            main(f"{COMMAND} {options} --calibration {calibration}".split())
    evaluator = TatoebaEvaluator(
        {"de": (["sun"], ["moon"])}, calibration=CalibrationLayer(32, normalize=True)
    )
    vectors = evaluator.embed_texts(tiny.transformer(), ["sun moon", "star"], ["en", "en"])
    np.testing.assert_allclose(vectors.norm(dim=1), 1, atol=1e-6)


def test_scores_are_printed_before_a_full_disk_refuses_them_and_written_without_a_reader(
    capsys, monkeypatch
) -> None:
    with monkeypatch.context() as context, pytest.raises(BrokenPipeError):
        context.setattr("builtins.print", Mock(side_effect=BrokenPipeError))  # `| head`
        main(COMMAND.split())
    assert "75.0" in Path("scores.md").read_text()
    full = Mock(side_effect=OSError(errno.ENOSPC, "full"))
    monkeypatch.setattr("st_xlret.commands.evaluate.write_json", full)
    with pytest.raises(OSError, match="scores.json"):
        main(COMMAND.split())
    assert "75.0" in capsys.readouterr().out


def write_result(
    name: str, accuracy: float, benchmark: str = "tatoeba", corpus_size: str = "", **more: float
) -> None:
    average = {"accuracy": accuracy, **more}
    result = BenchmarkResult(benchmark, {"fr": average}, average, {"corpus_size": corpus_size})
    Path(f"{name}.json").write_text(json.dumps(result.as_json("runs/model")))


def test_seeds_are_averaged_and_both_tables_written(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (1, 2, 3):
        write_result(str(seed), 0.5 + seed / 10)
    write_result("base", 0.5, f1=0.4)
    main(
        [
            "--compare",
            "base.json",
            "ours_1=1.json",
            "ours_1=2.json",
            "ours_1=3.json",
            "--output",
            "table.md",
        ]
    )
    half = t.ppf(0.975, 2) * 0.1 / 3**0.5
    assert f"70.0 ± {100 * half:.1f}" in capsys.readouterr().out == Path("table.md").read_text()
    header, first, second = Path("table.csv").read_text().splitlines()
    assert header == "system,seeds,accuracy,accuracy_interval" and first == "base,1,0.5,"
    assert second.startswith("ours_1,3,0.7,") and float(second.split(",")[3]) == pytest.approx(half)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--model m --benchmark bucket --data tatoeba", "'bucket'.*'tatoeba'"),
        ("--model m --data nowhere", "nowhere"),
        ("--model m --output tatoeba --data tatoeba", "folder"),
        ("--model m --output a.json/never.json --data tatoeba", r"a\.json"),
        ("--model m --benchmark lareqa", "lareqa .*xquad-r/en.json"),
        ("--model m --context --data tatoeba", "--benchmark tatoeba: .*--context"),
        ("--compare a.json bucc.json", "tatoeba.*bucc"),
        ("--compare a.json pool.json", "30"),
        ("--compare a.json ./a.json", "twice"),
        ("--compare a.json broken.json", "broken.json"),
        ("--compare a.json --layer 0", "--layer .*--compare"),
    ],
)
def test_what_cannot_be_done_is_named(arguments: str, message: str) -> None:
    write_result("a", 0.5)
    write_result("bucc", 0.5, benchmark="bucc")
    write_result("pool", 0.5, corpus_size="30")
    Path("broken.json").write_text("{}")
    with pytest.raises((ValueError, OSError), match=message):
        main(["--output", "never.json", *arguments.split()])
    assert not list(Path().rglob("never*"))
