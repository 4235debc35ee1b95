"""A study runs what is missing, each row after those that it needs, and chooses learning rates."""

import json
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from tests import tiny
from training_scripts.studies import merge_models, run

STUDY = """
prepare:
  sentences.txt: {script: prepare, options: {output: "{output}/sentences.txt"}}
  unused: {script: prepare, options: {output: "{output}/unused"}}
tune:
  by: held-out.json/score
  further: 2
  measure:
    held-out.json:
      script: held-out
      options: {model: "{trained}", output: "{folder}/held-out.json"}
measure:
  measured.json: {script: measure, options: {model: "{trained}", output: "{folder}/measured.json"}}
counts: {tokens: results.json/tokens}
columns: {pool: measured.json/pool, of both: "measured.json/languages/de,fr/score"}
rows:
  as it is: {}
  CCP:
    script: train first
    rates: [3.0e-5, 1.0e-4]
    options:
      model: "{model}"
      data: ["{data}/a", ["{data}/b"]]
      seed: "{seed}"
      exclude: "{output}/sentences.txt"
      bf16: true
      window: 5
  "CCP, no bank":
    like: CCP
    rate_of: CCP
    options: {window: null, loss_options: {ccp: {bank_size: 0}}}
  half of CCP: {merged: {CCP: 0.5}}
  "half of CCP, then pairs": {like: CCP, start: half of CCP, rates: [2.0e-5]}
"""


class Programs:
    """Stands in for the programs: keeps their commands, and writes what they would.

    Training with a learning rate that has no score fails; the command of the number `interrupted`
    ends the study.
    """

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.scores = {"3e-05": 0.1, "0.0001": 0.3, "0.0003": 0.2, "2e-05": 0.0}
        self.interrupted: int | None = None

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        script, *words = command[2:]
        if len(self.commands) == self.interrupted:
            self.interrupted = None
            raise KeyError("interrupted")
        self.commands.append([script, *words])
        options = dict(option_values(words))
        output = Path(options.get("output", options.get("output_dir", "")))
        status = 0
        if script == "train":
            status = self.train(output, options["learning_rate"])
        elif script == run.MERGE:
            output.mkdir()
        elif script == "prepare":
            output.write_text("")
        else:
            self.measure(output)
        return subprocess.CompletedProcess(command, status)

    def train(self, folder: Path, rate: str) -> int:
        if rate not in self.scores:
            return 1
        (folder / "model").mkdir()
        (folder / "results.json").write_text('{"tokens": 8000}')
        return 0

    def measure(self, output: Path) -> None:
        """The score of the rate in a folder's name; a second seed finds more in the pool."""
        folder = output.parent.name
        score = None
        for rate in self.scores:
            if f"-{run.run_name(rate)}-" in folder:
                score = self.scores[rate]
                break
        pool = 0.52 if folder.endswith("-1") else 0.5
        languages = {"de": {"score": 0.25}, "fr": {"score": 0.25}}
        figures = {"score": score, "pool": pool, "languages": languages}
        output.write_text(json.dumps(figures))

    def of(self, script: str) -> list[list[str]]:
        return [words for words in self.commands if words[0] == script]

    @property
    def rates(self) -> list[str]:
        return [words[words.index("--learning_rate") + 1] for words in self.of("train")]


def option_values(words: list[str]) -> Iterator[tuple[str, str]]:
    for name, value in pairwise(words):
        if name.startswith("--"):
            yield name[2:], value


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    (tmp_path / "study.yaml").write_text(STUDY)
    return f"--study {tmp_path}/study.yaml --output {tmp_path}/out --data d --model m".split()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    programs = Programs()
    monkeypatch.setattr(run.subprocess, "run", programs)
    return programs


def test_the_commands_of_a_row(given: list[str], programs: Programs, tmp_path: Path) -> None:
    output = tmp_path / "out"
    rows = ["--rows", "CCP, no bank", "half of CCP, then pairs"]

    run.main([*given, *rows, "--options", "--max_steps 7"])

    by_folder = {}
    for words in programs.of("train"):
        folder = words[words.index("--output_dir") + 1]
        by_folder[Path(folder).name] = words
    expected = (
        f"train first --model m --data d/a d/b --seed 0 --exclude {output}/sentences.txt "
        "--bf16 true --window 5 --learning_rate 0.0001 "
        f"--output_dir {output}/CCP-0-0001-0 --max_steps 7"
    )
    assert by_folder["CCP-0-0001-0"] == expected.split()
    second = by_folder["CCP-no-bank-0-0001-0"]
    assert "--window" not in second
    assert second[second.index("--loss_options") + 1] == '{"ccp": {"bank_size": 0}}'
    third = by_folder["half-of-CCP-then-pairs-2e-05-0"]
    assert third[third.index("--model") + 1] == str(output / "half-of-CCP-0" / "model")
    (merged,) = programs.of(run.MERGE)
    assert merged[merged.index("--add") + 1] == f"{output}/CCP-0-0001-0/model:0.5"
    # What no row mentions is not prepared.
    assert len(programs.of("prepare")) == 1
    assert not (output / "unused").exists()


def test_a_model_of_another_command_is_refused(given: list[str], programs: Programs) -> None:
    run.main([*given, "--rows", "CCP", "--options", "--max_steps 7"])
    with pytest.raises(ValueError, match="CCP-0-0001-0 was made by another command"):
        run.main([*given, "--rows", "CCP", "--options", "--max_steps 9"])


def test_the_table_has_mean_and_spread(
    given: list[str], programs: Programs, tmp_path: Path
) -> None:
    table = run.main([*given, "--seeds", "0", "1"])

    lines = {}
    for line in table.splitlines():
        row, *cells = [cell.strip() for cell in line.split("|")[1:-1]]
        lines[row] = cells
    assert lines["as it is"] == ["1", "", "", "50.0", "25.0"]
    assert lines["CCP"] == ["2", "0.0001", "8000", "51.0 ± 12.7", "25.0 ± 0.0"]
    assert lines["CCP, no bank"][1] == "0.0001 of CCP"
    assert lines["half of CCP, then pairs"][1] == "2e-05"
    header, as_it_is, ccp, *_ = (tmp_path / "out" / "study.csv").read_text().splitlines()
    assert header == "row,seeds,learning rate,tokens,pool,of both,pool ± (95 %),of both ± (95 %)"
    assert as_it_is == "as it is,1,,,50.0,25.0,,"
    assert ccp.endswith(",51.0,25.0,12.7,0.0")


def test_a_finished_study_is_not_run_again(
    given: list[str], programs: Programs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = run.main([*given, "--seeds", "0", "1"])
    # The first seed tries the rates and one beyond the best; the models of others are removed.
    assert sorted(programs.rates) == ["0.0001"] * 4 + ["0.0003"] + ["2e-05"] * 2 + ["3e-05"]
    models = {path.parent.name for path in (tmp_path / "out").glob("CCP-0*/model")}
    assert models == {"CCP-0-0001-0", "CCP-0-0001-1"}
    count = len(programs.commands)

    again = run.main([*given, "--seeds", "0", "1"])
    of_table_only = run.main([*given, "--seeds", "0", "1", "--table_only"])

    assert table == again == of_table_only
    assert len(programs.commands) == count
    assert table in capsys.readouterr().out


@pytest.mark.parametrize("number", [0, 2, 4, 7])
def test_an_interrupted_study_goes_on(
    given: list[str], programs: Programs, tmp_path: Path, number: int
) -> None:
    programs.interrupted = number
    with pytest.raises(KeyError, match="interrupted"):
        run.main([*given, "--rows", "CCP"])

    table = run.main([*given, "--rows", "CCP"])

    assert "| 0.0001 |" in " ".join(table.split())
    models = [path.parent.name for path in (tmp_path / "out").glob("*/model")]
    assert models == ["CCP-0-0001-0"]
    assert len(programs.commands) == 8


@pytest.mark.parametrize(
    ("rates", "scores", "tried", "row"),
    [
        # A further rate that fails is the worst; a given one leaves the choice open.
        ("", {"3e-05": 0.1, "0.0001": 0.3}, "3e-05 0.0001 0.0003", "| 0.0001"),
        ("", {"3e-05": 0.1}, "3e-05 0.0001", "not finished: CCP"),
        (
            "",
            {"3e-05": 0.3, "0.0001": 0.1, "9e-06": 0.4, "3e-06": 0.5},
            "3e-05 0.0001 9e-06 3e-06",
            "| 3e-06",
        ),
        (
            "3e-5 3e-4 1e-4",
            {"3e-05": 0.1, "0.0003": 0.4, "0.0001": 0.2, "0.0009": 0.3},
            "3e-05 0.0003 0.0001 0.0009",
            "| 0.0003",
        ),
        # There is no round rate beyond the best.
        ("1.2e-4 1.3e-4", {"0.00012": 0.3, "0.00013": 0.4}, "0.00012 0.00013", "| 0.00013"),
        ("1e-5", {"1e-05": 0.1}, "1e-05", "| 1e-05"),
    ],
)
def test_rates_beyond_an_end_are_tried_while_the_best_is_there(
    given: list[str],
    programs: Programs,
    rates: str,
    scores: dict[str, float],
    tried: str,
    row: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    programs.scores = scores
    options = ["--rates", *rates.split()] if rates else []

    run.main([*given, "--rows", "CCP", *options])

    printed = capsys.readouterr()
    assert programs.rates == tried.split()
    assert row in " ".join(f"{printed.out} {printed.err}".split())


def test_rows_that_need_one_that_failed_are_left_out(
    given: list[str], programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    programs.scores = {"2e-05": 0.1}
    run.main(given)
    printed = capsys.readouterr()
    assert "half of CCP, then pairs is left out" in printed.err
    assert "CCP, no bank is left out" in printed.err
    assert "| as it is" in printed.out


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"like": "b"}, "'b'"),
        ({"sript": "x"}, "sript"),
        ({"options": {"x": "{data}/x"}}, "{data"),
    ],
)
def test_wrong_rows_are_named(row: dict[str, Any], named: str) -> None:
    with pytest.raises((ValueError, TypeError), match=named):
        run.words_of(run.rows_of({"a": row})["a"].options, {})


@pytest.mark.parametrize(
    ("entries", "shares"), [(("a:0.5", "b:0.25"), (0.5, 0.25)), (("a", "b"), (0.5, 0.5))]
)
def test_changes_of_weights_are_added_with_their_shares(
    entries: tuple[str, str], shares: tuple[float, float], tmp_path: Path
) -> None:
    states = {}
    for seed, name in enumerate(("original", "a", "b")):
        model = tiny.transformer(seed=seed)
        model.save(str(tmp_path / name))
        states[name] = model.state_dict()
    original = states["original"]
    added = [str(tmp_path / entry) for entry in entries]
    output = str(tmp_path / "merged")

    start = str(tmp_path / "original")
    merge_models.main(["--model", start, "--add", *added, "--output", output])

    merged = SentenceTransformer(output, device="cpu").state_dict()
    for name, weight in merged.items():
        if weight.is_floating_point():
            change = shares[0] * (states["a"][name] - original[name])
            change += shares[1] * (states["b"][name] - original[name])
            torch.testing.assert_close(weight, original[name] + change)
