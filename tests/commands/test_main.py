"""What holds for every command: help, errors of a line without secrets, nothing replaced."""

import subprocess
import sys
from dataclasses import fields
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import get_args
from unittest.mock import Mock

import pytest

from st_xlret.calibration import STEPS
from st_xlret.commands import COMMANDS, main
from st_xlret.commands.sources import DocumentArguments
from st_xlret.data.documents import Unit
from st_xlret.evaluation import BENCHMARKS


def test_commands_are_listed_and_an_error_is_one_line_that_names_what_is_missing(capsys) -> None:
    main(["--help"])
    printed = capsys.readouterr().out
    for name, purpose in COMMANDS.items():
        assert name in printed
        assert purpose in printed
    with pytest.raises(SystemExit, match=f"measure.*{', '.join(COMMANDS)}"):
        main(["measure"])
    for command in set(COMMANDS) - {"apply", "train"}:
        with pytest.raises(SystemExit, match="^error: --.* missing$"):
            main([command])


def test_an_interrupted_command_ends_in_one_line_and_a_console_of_ascii_in_none(
    monkeypatch,
) -> None:
    monkeypatch.setattr("st_xlret.commands.train.main", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(SystemExit, match="^stopped$"):
        main(["train"])
    monkeypatch.setattr("sys.stdout", TextIOWrapper(BytesIO(), "ascii"))
    monkeypatch.setattr("st_xlret.commands.train.main", lambda *_, **__: print("Störche"))
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
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=repository, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    printed = "".join(done.stdout.split())  # names are broken at their hyphens
    for command in COMMANDS:
        assert f"usage:st-xlret{command}" in printed or command == "train"
    for choice in (*STEPS, *BENCHMARKS):
        assert choice in printed


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
        "calibrate --password=secret auth=secret",
        "calibrate {'api_key':'secret','password':p@secret}",
    ],
)
def test_no_error_shows_a_secret(command: str, tmp_path, monkeypatch, capsys, caplog) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs.jsonl").write_text('{"text": "sun", "language": "en"}\n' * 99)
    with pytest.raises(SystemExit) as stopped:
        main(command.split())
    assert "secret" not in f"{stopped.value} {caplog.text} {capsys.readouterr()}"


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("report --model m --documents docs.json --output docs.json", "docs.json"),
        ("report --model m --documents docs.json --output bias.json", "bias.png"),
        ("mine docs.tsv other.txt --model m --output docs.tsv", "docs.tsv"),
        ("mine docs.txt other.txt --model m --output pairs.jsonl", "pairs.jsonl"),
        ("evaluate --model m --data data --output t.json", "t.json"),
        ("evaluate --model m --data data --output t.json", "t.md"),
        ("evaluate --compare a=r.json --output t.md", "t.csv"),
        ("index docs --model m --output docs/index.parquet", "docs/a.txt"),
        ("index docs.txt --model m --output other.parquet --overwrite", "other.parquet"),
        ("calibrate --vectors m/vectors.parquet --output m --overwrite", "m/vectors.parquet"),
        ("calibrate --model m --documents m/README.md --output m --overwrite", "m/README.md"),
        ("calibrate --model m --documents docs.json --output m --overwrite", "m/modules.json"),
        ("export m --output m --overwrite", "m/modules.json"),
        ("export m/checkpoint-5 --output m --overwrite", "m/checkpoint-5/modules.json"),
    ],
)
def test_what_is_not_ours_or_is_read_stays(
    command: str, file: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ours = {path: '{"benchmark": "bucc"}' for path in ("m/modules.json", "r.json", "t.json")}
    for path, content in {**ours, file: "mine"}.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(content)
    before = {path: path.read_text() for path in Path().rglob("*") if path.is_file()}
    with pytest.raises(SystemExit, match=r"^error: (?s:.*)(give another|move it away)"):
        main(command.split())
    assert {path: path.read_text() for path in Path().rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("source", "option"),
    [
        ("--model m --documents d.jsonl", "--text_field body"),
        ("--model m --documents d.jsonl", "--language_field Sprache"),
        ("--model m --documents d.jsonl", "--languages_file codes.txt"),
        ("--model m --documents d.jsonl", "--vector_field dense"),
        ("--vectors v.parquet", "--documents d.jsonl"),
        ("--vectors v.parquet", "--model m"),
        ("--vectors v.parquet", "--unit text"),
        ("--vectors v.parquet", "--query_prompt ask"),
        ("--vectors v.parquet", "--skip_bad_lines"),
    ],
)
@pytest.mark.parametrize("command", ["report", "calibrate"])
def test_an_option_of_another_source_is_not_passed_over(
    command: str, source: str, option: str
) -> None:
    output = "b.json" if command == "report" else "calibrated"
    with pytest.raises(SystemExit, match=f"{option.split()[0]} is not read with(out)? --vectors"):
        main([command, *source.split(), *option.split(), "--output", output])


@pytest.mark.parametrize("option", ["--private", "--create_pr", "--revision v1"])
def test_options_of_the_hub_need_a_repository(option: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is not read without --push_to_hub"):
        main(["export", "m", "--output", str(tmp_path / "o"), *option.split()])


@pytest.mark.parametrize(
    "command",
    [
        "evaluate --model m --data d --output e5.small",
        "evaluate --model m --data d --output e5.md",
        "evaluate --compare a=r.json --output v1.0",
        "report --vectors v.parquet --output v1.0",
    ],
)
def test_no_two_outputs_have_one_second_file(command: str) -> None:
    with pytest.raises(SystemExit, match=r"name a file that ends in \.(json|md)$"):
        main(command.split())


@pytest.mark.parametrize(
    "command",
    [
        "search i.parquet --query a --top_k 0",
        "mine a.txt b.txt --model m --output o.tsv --k 0",
        "mine a.txt b.txt --model m --output o.tsv --batch_size 0",
        "index a.txt --model m --output o.parquet --batch_size 0",
        "report --documents a.txt --model m --output o.json --batch_size 0",
        "report --documents a.txt --model m --output o.json --texts_per_language 0",
        "report --vectors v.parquet --output o.json --neighbours 0",
        "calibrate --documents a.txt --model m --output o --texts_per_language 0",
        "evaluate --model m --data d --output o.json --batch_size 0",
    ],
)
def test_a_count_of_nothing_is_named(command: str) -> None:
    *_, name, _ = command.split()
    with pytest.raises(SystemExit, match=f"^error: {name.strip('-')} 0: it has to be 1 or more$"):
        main(command.split())


def test_the_option_has_the_units_that_there_are() -> None:
    (unit,) = [each for each in fields(DocumentArguments) if each.name == "unit"]
    assert unit.metadata["choices"] == [*get_args(Unit)]
