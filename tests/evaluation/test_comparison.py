"""Runs in one table: seeds are averaged, and what cannot be compared is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scipy.stats import t

from st_xlret.commands.evaluate import main
from st_xlret.evaluation.base import BenchmarkResult


def write(file: Path, accuracy: float, benchmark: str = "tatoeba", **more: float) -> str:
    average = {"accuracy": accuracy, **more}
    file.write_text(json.dumps(BenchmarkResult(benchmark, {"fr": average}, average).as_json("runs/model")))
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
        (["a.json", "bucc.json"], "'bucc' and 'a' differ in their benchmark: bucc and tatoeba"),
        (["a.json", "broken.json"], "broken.json is no result .*KeyError"),
        (["a.json", "nowhere.json"], "nowhere.json"),
        (["a.json", "--model", "x"], "--compare and --model exclude each other"),
    ],
)
def test_what_cannot_be_compared_is_named(
    runs: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.json", 0.5)
    write(tmp_path / "bucc.json", 0.5, benchmark="bucc")
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises((ValueError, OSError), match=message):
        main(["--compare", *runs, "--output", "table.md"])
    assert not (tmp_path / "table.md").exists()
