from __future__ import annotations

import contextlib
import runpy
import subprocess
import sys

import pytest

from st_xlret.calibration import STEPS
from st_xlret.commands import COMMANDS, main
from st_xlret.commands.calibrate import Arguments
from st_xlret.evaluation import BENCHMARKS


def test_commands_are_listed(capsys) -> None:
    main(["--help"])
    printed = capsys.readouterr().out
    assert all(name in printed and purpose in printed for name, purpose in COMMANDS.items())
    with pytest.raises(SystemExit, match=f"measure.*{', '.join(COMMANDS)}"):
        main(["measure"])


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"apply", "train"}))
def test_an_error_is_one_line_that_names_what_is_missing(command: str) -> None:
    with pytest.raises(SystemExit, match="^error: --.* missing$"):
        main([command])


def test_an_interrupted_command_ends_in_one_line(monkeypatch) -> None:
    def interrupted(*_, **__) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("st_xlret.commands.train.main", interrupted)
    with pytest.raises(SystemExit, match="^stopped$"):
        main(["train"])


def test_every_command_has_help_under_its_own_name_without_heavy_libraries(repository) -> None:
    program = (
        "import contextlib, sys\n"
        "from st_xlret.commands import main\n"
        f"for command in {[*COMMANDS]}:\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main([command, '--help'])\n"
        "    heavy = {'torch', 'datasets', 'sentence_transformers', 'mteb'} & set(sys.modules)\n"
        "    assert not heavy, (command, heavy)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(f"st-xlret {command}" in done.stdout for command in COMMANDS)


def test_the_lists_of_choices_are_those_of_the_package(capsys) -> None:
    assert set(Arguments.__dataclass_fields__["steps"].metadata["choices"]) == set(STEPS)
    with contextlib.suppress(SystemExit):
        main(["evaluate", "--help"])
    printed = "".join(capsys.readouterr().out.split())  # names are broken at their hyphens
    assert all(name in printed for name in BENCHMARKS)


def test_the_package_runs_as_a_program(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["st-xlret", "--version"])
    runpy.run_module("st_xlret", run_name="__main__")
    assert capsys.readouterr().out.startswith("st-xlret ")


@pytest.mark.parametrize(
    "command",
    [
        "index https://me:secret@nowhere.invalid/docs.jsonl --model m --output i.parquet",
        "index s3://bucket/docs.jsonl?X-Amz-Signature=secret --model m --output i.parquet",
        "report --documents docs.jsonl --model https://me:secret@nowhere.invalid/m --output b.json",
        "report --vectors mysql:host=h,password=secret --output b.json",
        "export m --output o --push_to_hub https://me:secret@huggingface.co/m",
        "search i.parquet --query a --model hf_secretsecretsecret",
        "train ccp --documents https://me:secret@nowhere.invalid/docs.jsonl --output_dir runs",
        "calibrate --password=secret",
    ],
)
def test_no_error_shows_a_secret(command: str, tmp_path, monkeypatch, capsys, caplog) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs.jsonl").write_text('{"text": "sun", "language": "en"}\n' * 99)
    with pytest.raises(SystemExit) as stopped:
        main(command.split())
    assert "secret" not in f"{stopped.value} {caplog.text} {capsys.readouterr()}"
