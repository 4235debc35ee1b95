"""The command `evaluate`: its files, its printed tables, and what it refuses."""

import csv
import errno
import json
import runpy
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from scipy.stats import t
from sentence_transformers import SentenceTransformer

from st_xlret import VectorCalibration
from st_xlret.commands.evaluate import main
from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.evaluation.base import BenchmarkResult
from st_xlret.files import write_text
from st_xlret.modules.calibration_layer import CalibrationLayer
from tests import tiny
from tests.evaluation.samples import write_lareqa

TATOEBA = "--model model --data tatoeba --output scores.json"
LAREQA = "--model transformer --benchmark lareqa --data lareqa --output scores.json --layer 0"


@pytest.fixture(autouse=True)
def folder(
    static_model: SentenceTransformer,
    tatoeba_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the command reads."""
    monkeypatch.chdir(tmp_path)
    static_model.save_pretrained("model")


def run(command: str) -> None:
    main(command.split())


def scores() -> dict:
    return json.loads(Path("scores.json").read_text())


def test_the_program_writes_scores_and_prints_them_beside_the_papers(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"run.py {TATOEBA} --languages fr de"
    monkeypatch.setattr(sys, "argv", command.split())
    runpy.run_path(str(repository / "evaluation" / "run.py"), run_name="__main__")
    result = scores()
    assert result["benchmark"] == "tatoeba"
    assert result["model"] == "model"
    names = ("accuracy", "accuracy_to_en", "accuracy_from_en")
    assert result["scores"]["fr"] == dict.fromkeys(names, 1.0)
    assert result["scores"]["de"] == dict.fromkeys(names, 0.5)
    assert result["average"] == dict.fromkeys(names, 0.75)
    assert result["protocol"]["sentences"] == "all"
    written = sorted(str(path) for path in Path().glob("[!.]*"))
    assert written == ["model", "scores.json", "scores.md", "tatoeba"]
    printed = capsys.readouterr().out
    assert "measured here" in printed
    assert "published: CCP paper, Table 1" in printed
    assert "CCP+Calibration" in printed


def test_an_older_result_stays_where_the_model_is_not_there() -> None:
    older = '{"benchmark": "an older result"}'
    write_text("scores.json", older, ours="evaluate")
    with pytest.raises(ValueError, match="nowhere"):
        run(f"{TATOEBA} --model ./nowhere")
    assert Path("scores.json").read_text() == older


@pytest.fixture
def lareqa() -> None:
    tiny.transformer().save_pretrained("transformer")
    CalibrationLayer(32, ["en", "de"]).save("calibration")
    write_lareqa(Path("lareqa"), languages=("en", "de"))


@pytest.mark.usefixtures("lareqa")
def test_options_reach_the_evaluator(capsys: pytest.CaptureFixture[str]) -> None:
    run(f"{LAREQA} --calibration calibration --context --embedding_cache kept")
    protocol = scores()["protocol"]
    assert protocol["pooling"] == "mean of the hidden states of layer 0"
    assert protocol["calibration"] == "CalibrationLayer"
    assert protocol["candidate"] == "sentence followed by its paragraph"
    assert len(list(Path("kept").rglob("*.npy"))) == 1
    by_language = {"map_at_20", "recall_at_10_other_languages", "language_preference"}
    assert by_language < set(scores()["average"])
    table = Path("scores.md").read_text()
    assert table.strip() in capsys.readouterr().out
    assert "measured here, test split" in table
    # The candidates are the papers', but not all of them.
    assert "- corpus_size: 4 here; 13014 in MSM paper, Table 12" in table
    assert "- candidate: sentence here" not in table


@pytest.mark.usefixtures("lareqa")
def test_a_calibration_of_another_width_is_refused() -> None:
    CalibrationLayer(8).save("calibration")
    with pytest.raises(ValueError, match="has 32 .* 8"):
        run(f"{LAREQA} --calibration calibration")


@pytest.mark.usefixtures("lareqa")
def test_a_calibration_that_maps_queries_apart_is_refused() -> None:
    generator = np.random.default_rng(0)
    clouds = {
        "en": generator.normal(1, 1, (60, 32)),
        "de": generator.normal(-1, 1, (60, 32)),
    }
    VectorCalibration.fit(clouds, queries_only=True).save("queries")
    with pytest.raises(ValueError, match="maps queries apart.*export"):
        run(f"{LAREQA} --calibration queries")


@pytest.mark.parametrize("steps", [("lsar",), ("shift",)])
def test_texts_are_mapped_as_stored_vectors_are(steps: tuple[str, ...]) -> None:
    generator = np.random.default_rng(0)
    clouds = {code: generator.normal(place, 1, (60, 32)) for place, code in enumerate(("de", "en"))}
    calibration = VectorCalibration.fit(clouds, steps=steps)
    evaluator = TatoebaEvaluator({"de": (["sun"], ["moon"])}, calibration=calibration.layer())
    model = tiny.transformer()
    texts = ["sun moon", "star"]
    mapped = evaluator.embed_texts(model, texts, ["en", "de"])
    expected = calibration.transform(model.encode(texts), "document", ["en", "de"])
    np.testing.assert_allclose(mapped, expected, atol=1e-5)


def test_a_rank_in_the_environment_is_none_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    run(TATOEBA)
    assert scores()["benchmark"] == "tatoeba"


def test_scores_are_written_where_nobody_reads_what_is_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("builtins.print", Mock(side_effect=BrokenPipeError))  # `| head`
    with pytest.raises(BrokenPipeError):
        run(TATOEBA)
    assert "75.0" in Path("scores.md").read_text()


def test_scores_are_printed_before_a_full_disk_refuses_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = Mock(side_effect=OSError(errno.ENOSPC, "full"))
    monkeypatch.setattr("st_xlret.commands.evaluate.write_json", full)
    with pytest.raises(OSError, match="scores.json"):
        run(TATOEBA)
    assert "75.0" in capsys.readouterr().out


def write_result(
    name: str, accuracy: float, benchmark: str = "tatoeba", corpus_size: str = ""
) -> None:
    average = {"accuracy": accuracy}
    result = BenchmarkResult(benchmark, {"fr": average}, average, {"corpus_size": corpus_size})
    Path(f"{name}.json").write_text(json.dumps(result.as_json("runs/model")))


def test_seeds_are_averaged_and_both_tables_written(capsys: pytest.CaptureFixture[str]) -> None:
    write_result("base", 0.5)
    write_result("1", 0.6)
    write_result("2", 0.7)
    write_result("3", 0.8)
    run("--compare base.json ours_1=1.json ours_1=2.json ours_1=3.json --output table.md")
    half = t.ppf(0.975, 2) * 0.1 / 3**0.5
    table = Path("table.md").read_text()
    assert f"70.0 ± {100 * half:.1f}" in table
    assert capsys.readouterr().out == table
    with open("table.csv", encoding="utf-8", newline="") as file:
        base, ours = csv.DictReader(file)
    assert base == {"system": "base", "seeds": "1", "accuracy": "0.5", "accuracy_interval": ""}
    assert (ours["system"], ours["seeds"], ours["accuracy"]) == ("ours_1", "3", "0.7")
    assert float(ours["accuracy_interval"]) == pytest.approx(half)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--model m --benchmark bucket --data tatoeba", "'bucket'.*'tatoeba'"),
        ("--model m --data nowhere", "nowhere"),
        ("--model m --output scores.json --data tatoeba", "folder"),
        ("--model m --output a.json/never.json --data tatoeba", r"a\.json"),
        ("--model m --benchmark lareqa", "lareqa .*xquad-r/en.json"),
        (
            "--model m --context --data tatoeba",
            "--context is not read by --benchmark tatoeba.*max_sentences",
        ),
        ("--model m --distributed --data tatoeba", "--embedding_cache is missing"),
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
    Path("scores.json").mkdir()
    Path("broken.json").write_text("{}")
    with pytest.raises((ValueError, OSError), match=message):
        run(f"--output never.{'md' if 'compare' in arguments else 'json'} {arguments}")
    assert not list(Path().rglob("never*"))
