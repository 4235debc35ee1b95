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

from st_xlret.commands.evaluate import Arguments, evaluate, main
from st_xlret.evaluation.base import BenchmarkResult
from st_xlret.modules.calibration_layer import CalibrationLayer
from tests.evaluation.samples import write_lareqa


def test_writes_scores_and_prints_them_beside_the_papers(
    repository, static_model, tatoeba_folder, tmp_path, monkeypatch, capsys
) -> None:
    def run(*arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", ["run.py", *map(str, arguments)])
        runpy.run_path(str(repository / "evaluation" / "run.py"), run_name="__main__")

    static_model.save_pretrained(str(tmp_path / "model"))
    output = tmp_path / "new" / "scores.json"
    output.parent.mkdir()
    output.write_text('{"benchmark": "an older result"}')
    arguments = ["--model", tmp_path / "model", "--benchmark", "tatoeba", "--data", tatoeba_folder]
    with pytest.raises(SystemExit, match="^error: .*nowhere"):
        run("--model", "./nowhere", *arguments[2:], "--output", output)
    assert output.read_text() == '{"benchmark": "an older result"}'
    run(*arguments, "--languages", "fr", "de", "--output", output)
    written = json.loads(output.read_text())
    assert set(written) == {"benchmark", "model", "scores", "average", "protocol"}
    assert written["benchmark"] == "tatoeba" and written["model"] == str(tmp_path / "model")
    one, half = ({key: value for key in ("accuracy", "accuracy_to_en", "accuracy_from_en")} for value in (1.0, 0.5))
    assert written["scores"] == {"fr": one, "de": half}
    assert written["average"] == dict.fromkeys(one, 0.75)
    assert sorted(os.listdir(output.parent)) == ["scores.json", "scores.md"]
    printed = capsys.readouterr().out
    assert "measured here" in printed and "published: CCP paper, Table 1" in printed and "CCP+Calibration" in printed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "no-such-owner/no-such-model"}, "no-such-owner/no-such-model|couldn't connect"),
        ({"benchmark": "bucket"}, "'bucket'.*'tatoeba'"),
        ({"languages": ["xx"]}, "'xx'"),
        ({"data": "nowhere"}, "nowhere"),
        ({"output": "EMPTY"}, "folder"),
        ({"output": "FILE/scores.json"}, "a-file"),
        ({"benchmark": "lareqa", "data": None}, "lareqa .*xquad-r/en.json"),
        ({"split": "dev"}, "'dev'"),
    ],
)
def test_errors_name_the_argument(tatoeba_folder, tmp_path, changes, message) -> None:
    (tmp_path / "a-file").touch()
    places = {"EMPTY": str(tmp_path), "FILE/scores.json": str(tmp_path / "a-file" / "scores.json")}
    changes = {key: places.get(str(value), value) for key, value in changes.items()}
    options = {"model": "unused", "data": str(tatoeba_folder), "output": "never-written.json"}
    with pytest.raises((ValueError, OSError), match=message):
        evaluate(Arguments(**{**options, **changes}))


def arguments(model, tmp_path, **options):
    model.save_pretrained(str(tmp_path / "model"))
    output = str(tmp_path / "scores.json")
    return Arguments(model=str(tmp_path / "model"), output=output, **options)


def written(tmp_path: Path) -> dict:
    return json.loads((tmp_path / "scores.json").read_text())


def test_layer_and_calibration_reach_the_evaluator(transformer_model, tatoeba_folder, tmp_path) -> None:
    CalibrationLayer(16, ["en", "fr", "de"]).save(str(tmp_path / "calibration"))
    options = {"calibration": str(tmp_path / "calibration"), "layer": 2}
    evaluate(arguments(transformer_model, tmp_path, data=str(tatoeba_folder), **options))
    protocol = written(tmp_path)["protocol"]
    assert protocol["pooling"] == "mean of the hidden states of layer 2"
    assert protocol["calibration"] == "CalibrationLayer"


def test_lareqa(static_model, tmp_path, capsys) -> None:
    folder = write_lareqa(tmp_path / "lareqa", languages=("en", "de"))
    evaluate(arguments(static_model, tmp_path, benchmark="lareqa", data=str(folder), context=True))
    result = written(tmp_path)
    assert set(result["scores"]) == {"en", "de"}
    assert {"map_at_20", "map", "recall_at_10_other_languages", "language_preference"} < set(result["average"])
    assert result["protocol"]["candidate"] == "sentence followed by its paragraph"
    printed, table = capsys.readouterr().out, (tmp_path / "scores.md").read_text()
    for text in (printed, table):
        assert "map_at_20 beside published figures" in text
        assert "published: MSM paper, Table 12 (zero-shot, fine-tuned on SQuAD v1.1; test split)" in text
        assert "measured here, test split" in text
        # The candidates are the papers', but not all of them.
        assert (
            "- corpus_size: 4 here; 13014 in MSM paper, Table 12" in text and "- candidate: sentence here" not in text
        )


def test_mr_tydi_with_a_cache_of_embeddings(static_model, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    folder = tmp_path / "data" / "mrtydi-v1.1-finnish"
    (folder / "collection").mkdir(parents=True)
    passages = [{"id": "1#0", "contents": "Taksi\ntaxi night"}, {"id": "2#0", "contents": "Hotelli\nhotel"}]
    (folder / "collection" / "docs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in passages))
    (folder / "topic.test.tsv").write_text("1\thotel\n2\ttaxi\n")
    (folder / "qrels.test.txt").write_text("1 0 2#0 1\n2 0 2#0 1\n")
    options = {"benchmark": "mrtydi", "data": str(tmp_path / "data"), "embedding_cache": str(tmp_path / "kept")}
    evaluate(arguments(static_model, tmp_path, **options))
    assert written(tmp_path)["scores"] == {"fi": {"mrr_at_100": 0.75, "recall_at_100": 1.0}}
    assert any((tmp_path / "kept").rglob("*.npy"))
    assert "published: CCP paper, Table 3" in (tmp_path / "scores.md").read_text()


def test_scores_are_printed_before_a_disk_that_has_filled_up_refuses_them(
    static_model, tatoeba_folder, tmp_path, capsys, monkeypatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("st_xlret.commands.evaluate.write_json", full)
    with pytest.raises(OSError, match="scores.json"):
        evaluate(arguments(static_model, tmp_path, data=str(tatoeba_folder)))
    assert "75.0" in capsys.readouterr().out


def write(file: Path, accuracy: float, benchmark: str = "tatoeba", protocol: Any = None, **more: float) -> str:
    average = {"accuracy": accuracy, **more}
    result = BenchmarkResult(benchmark, {"fr": average}, average, protocol or {})
    file.write_text(json.dumps(result.as_json("runs/model")))
    return str(file)


def test_seeds_are_averaged_and_three_tables_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = [write(tmp_path / f"{number}.json", 0.5 + number / 10) for number in (1, 2, 3)]
    base = write(tmp_path / "base.json", 0.5, f1=0.4)
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
    ("runs", "message"),
    [
        (["a.json", "bucc.json"], "tatoeba.*bucc"),
        (["a.json", "pool.json"], "30"),
        (["a.json", "a.json"], "twice"),
        (["a.json", "broken.json"], "broken.json"),
        (["a.json", "nowhere.json"], "nowhere.json"),
    ],
)
def test_what_cannot_be_compared_is_named(
    runs: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.json", 0.5)
    write(tmp_path / "bucc.json", 0.5, benchmark="bucc")
    write(tmp_path / "pool.json", 0.5, protocol={"corpus_size": "30"})
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises((ValueError, OSError), match=message):
        main(["--compare", *runs, "--output", "table.md"])
    assert not (tmp_path / "table.md").exists()


@pytest.mark.parametrize("option", [["--model", "m"], ["--data", "d"], ["--languages", "fr"], ["--layer", "0"]])
def test_what_a_comparison_does_not_read_is_not_passed_over(option: list[str]) -> None:
    with pytest.raises(ValueError, match=f"--compare.*{option[0]}"):
        main(["--compare", "a.json", *option, "--output", "table.md"])
