"""A study runs what is missing, each row after those that it needs, and chooses learning rates."""

import json
import subprocess
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
  measure: {held-out.json: {script: held-out, options: {model: "{trained}", output: "{folder}/held-out.json"}}}
measure:
  measured.json: {script: measure, options: {model: "{trained}", output: "{folder}/measured.json"}}
counts: {tokens: results.json/tokens}
columns: {pool: measured.json/pool, of both: "measured.json/languages/de,fr/score"}
rows:
  as it is: {}
  CCP:
    script: train first
    rates: [3.0e-5, 1.0e-4]
    options: {model: "{model}", data: ["{data}/a", ["{data}/b"]], seed: "{seed}", exclude: "{output}/sentences.txt",
      bf16: true, window: 5}
  "CCP, no bank": {like: CCP, rate_of: CCP, options: {window: null, loss_options: {ccp: {bank_size: 0}}}}
  half of CCP: {merged: {CCP: 0.5}}
  "half of CCP, then pairs": {like: CCP, start: half of CCP, rates: [2.0e-5]}
"""


class Programs:
    """Stands in for the programs: keeps their commands, and writes what they would.

    Training with a learning rate that has no score fails; the command of the number `interrupted` ends the study.
    """

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.scores = {"3e-05": 0.1, "0.0001": 0.3, "0.0003": 0.2, "2e-05": 0.0}
        self.interrupted: int | None = None

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        words = command[2:]
        if len(self.commands) == self.interrupted:
            self.interrupted = None
            raise KeyError("interrupted")
        self.commands.append(words)
        options = {
            word[2:]: words[at + 1] for at, word in enumerate(words) if word.startswith("--")
        }
        output = Path(options.get("output", options.get("output_dir", "")))
        if words[0] == "train":
            if options["learning_rate"] not in self.scores:
                return subprocess.CompletedProcess(command, 1)
            (output / "model").mkdir()
            (output / "results.json").write_text('{"tokens": 8000}')
        elif words[0] == run.MERGE:
            output.mkdir()
        elif words[0] == "prepare":
            output.write_text("")
        else:
            rate = next(
                (rate for rate in self.scores if f"-{run.run_name(rate)}-" in output.parent.name),
                "",
            )
            of_row = {
                "score": self.scores.get(rate),
                "pool": 0.5 + 0.02 * output.parent.name.endswith("-1"),
            }
            output.write_text(
                json.dumps(
                    {**of_row, "languages": {code: {"score": 0.25} for code in ("de", "fr")}}
                )
            )
        return subprocess.CompletedProcess(command, 0)

    def of(self, script: str) -> list[list[str]]:
        return [words for words in self.commands if words[0] == script]

    @property
    def rates(self) -> list[str]:
        return [words[words.index("--learning_rate") + 1] for words in self.of("train")]


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    (tmp_path / "study.yaml").write_text(STUDY)
    return [
        "--study",
        str(tmp_path / "study.yaml"),
        "--output",
        str(tmp_path / "out"),
        "--data",
        "d",
        "--model",
        "m",
    ]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    programs = Programs()
    monkeypatch.setattr(run.subprocess, "run", programs)
    return programs


def test_the_commands_of_a_row(given: list[str], programs: Programs, tmp_path: Path) -> None:
    output = tmp_path / "out"
    run.main(
        [*given, "--rows", "CCP, no bank", "half of CCP, then pairs", "--options", "--max_steps 7"]
    )
    by_folder = {
        Path(words[words.index("--output_dir") + 1]).name: words for words in programs.of("train")
    }
    assert by_folder["CCP-0-0001-0"] == [
        *("train", "first", "--model", "m", "--data", "d/a", "d/b", "--seed", "0", "--exclude"),
        *(
            f"{output}/sentences.txt",
            "--bf16",
            "true",
            "--window",
            "5",
            "--learning_rate",
            "0.0001",
        ),
        *("--output_dir", str(output / "CCP-0-0001-0"), "--max_steps", "7"),
    ]
    second = by_folder["CCP-no-bank-0-0001-0"]
    assert (
        "--window" not in second
        and second[second.index("--loss_options") + 1] == '{"ccp": {"bank_size": 0}}'
    )
    third = by_folder["half-of-CCP-then-pairs-2e-05-0"]
    assert third[third.index("--model") + 1] == str(output / "half-of-CCP-0" / "model")
    (merged,) = programs.of(run.MERGE)
    assert merged[merged.index("--add") + 1] == f"{output / 'CCP-0-0001-0' / 'model'}:0.5"
    # What no row mentions is not prepared.
    assert len(programs.of("prepare")) == 1 and not (output / "unused").exists()
    with pytest.raises(ValueError, match="CCP-0-0001-0 was made by another command"):
        run.main([*given, "--rows", "CCP", "--options", "--max_steps 9"])


def test_the_table_has_mean_and_spread_and_a_finished_study_is_not_run_again(
    given: list[str], programs: Programs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = run.main([*given, "--seeds", "0", "1"])
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    lines = {row: values for row, *values in cells}
    assert lines["as it is"] == ["1", "", "", "50.0", "25.0"]
    assert lines["CCP"] == ["2", "0.0001", "8000", "51.0 ± 12.7", "25.0 ± 0.0"]
    assert (
        lines["CCP, no bank"][1] == "0.0001 of CCP"
        and lines["half of CCP, then pairs"][1] == "2e-05"
    )
    csv = (tmp_path / "out" / "study.csv").read_text().splitlines()
    assert csv[0] == "row,seeds,learning rate,tokens,pool,of both,pool ± (95 %),of both ± (95 %)"
    assert csv[1] == "as it is,1,,,50.0,25.0,," and csv[2].endswith(",51.0,25.0,12.7,0.0")
    # The first seed tries the rates and one beyond the best; the models of the others are removed.
    assert sorted(programs.rates) == ["0.0001"] * 4 + ["0.0003"] + ["2e-05"] * 2 + ["3e-05"]
    models = {path.parent.name for path in (tmp_path / "out").glob("CCP-0*/model")}
    assert models == {"CCP-0-0001-0", "CCP-0-0001-1"}
    count = len(programs.commands)
    assert (
        run.main([*given, "--seeds", "0", "1"])
        == table
        == run.main([*given, "--seeds", "0", "1", "--table_only"])
    )
    assert len(programs.commands) == count and table in capsys.readouterr().out


@pytest.mark.parametrize("number", [0, 2, 4, 7])
def test_an_interrupted_study_goes_on(
    given: list[str], programs: Programs, tmp_path: Path, number: int
) -> None:
    programs.interrupted = number
    with pytest.raises(KeyError, match="interrupted"):
        run.main([*given, "--rows", "CCP"])
    assert "| 0.0001 |" in " ".join(run.main([*given, "--rows", "CCP"]).split())
    models = [path.parent.name for path in (tmp_path / "out").glob("*/model")]
    assert models == ["CCP-0-0001-0"] and len(programs.commands) == 8


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
            None,
            "| 0.0003",
        ),
        (
            "1.2e-4 1.3e-4",
            {"0.00012": 0.3, "0.00013": 0.4},
            None,
            "| 0.00013",
        ),  # no round rate beyond
        ("1e-5", {"1e-05": 0.1}, None, "| 1e-05"),
    ],
)
def test_rates_beyond_an_end_are_tried_while_the_best_is_there(
    given: list[str],
    programs: Programs,
    rates: str,
    scores: dict[str, float],
    tried: str | None,
    row: str,
    capsys,
) -> None:
    programs.scores = scores
    run.main([*given, "--rows", "CCP", *(["--rates", *rates.split()] if rates else [])])
    printed = " ".join("".join(capsys.readouterr()).split())
    assert programs.rates == (tried.split() if tried else [*scores]) and row in printed


def test_rows_that_need_one_that_failed_are_left_out_and_wrong_ones_named(
    given: list[str], programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    programs.scores = {"2e-05": 0.1}
    run.main(given)
    printed = capsys.readouterr()
    assert (
        "half of CCP, then pairs is left out" in printed.err
        and "CCP, no bank is left out" in printed.err
    )
    assert "| as it is" in printed.out
    for row, message in (
        ({"like": "b"}, "'b'"),
        ({"sript": "x"}, "sript"),
        ({"options": {"x": "{data}/x"}}, "{data"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            run.words_of(run.read_rows({"a": row})["a"].options, {})


def test_changes_of_weights_are_added_with_their_shares(tmp_path: Path) -> None:
    made = {name: tiny.transformer(seed=seed) for seed, name in enumerate(("original", "a", "b"))}
    for name, model in made.items():
        model.save(str(tmp_path / name))
    original, a, b = (model.state_dict() for model in made.values())
    for added, shares in ((("a:0.5", "b:0.25"), (0.5, 0.25)), (("a", "b"), (0.5, 0.5))):
        output, folders = (
            str(tmp_path / f"merged {shares}"),
            [str(tmp_path / name) for name in added],
        )
        merge_models.main(
            ["--model", str(tmp_path / "original"), "--add", *folders, "--output", output]
        )
        merged = SentenceTransformer(output, device="cpu").state_dict()
        for name in [name for name, weight in merged.items() if weight.is_floating_point()]:
            change = shares[0] * (a[name] - original[name]) + shares[1] * (b[name] - original[name])
            torch.testing.assert_close(merged[name], original[name] + change)
