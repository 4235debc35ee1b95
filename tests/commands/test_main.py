from __future__ import annotations

import subprocess
import sys
from unittest.mock import Mock

import pytest

from st_xlret.calibration import STEPS
from st_xlret.commands import COMMANDS, main
from st_xlret.evaluation import BENCHMARKS


def test_commands_are_listed_and_an_error_is_one_line_that_names_what_is_missing(capsys) -> None:
    main(["--help"])
    printed = capsys.readouterr().out
    assert all(name in printed and purpose in printed for name, purpose in COMMANDS.items())
    with pytest.raises(SystemExit, match=f"measure.*{', '.join(COMMANDS)}"):
        main(["measure"])
    for command in set(COMMANDS) - {"apply", "train"}:
        with pytest.raises(SystemExit, match="^error: --.* missing$"):
            main([command])


def test_an_interrupted_command_ends_in_one_line(monkeypatch) -> None:
    monkeypatch.setattr("st_xlret.commands.train.main", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(SystemExit, match="^stopped$"):
        main(["train"])


def test_every_command_has_its_help_and_choices_without_heavy_libraries(repository) -> None:
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
    printed = "".join(done.stdout.split())  # names are broken at their hyphens
    assert all(name in printed for name in (*(f"st-xlret{command}" for command in COMMANDS), *STEPS, *BENCHMARKS))


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
