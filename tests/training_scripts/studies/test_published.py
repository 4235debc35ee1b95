"""The published figures: the rows of docs/studies.csv are rows of the studies, and the cards have its figures."""

import csv
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_commands import parse
from training_scripts.studies.run import read_rows, words_of

REPOSITORY = Path(__file__).parents[3]
STUDIES = REPOSITORY / "training_scripts" / "studies"
CARDS = sorted(
    card for card in (REPOSITORY / "model_cards").glob("*.md") if card.name != "README.md"
)
VALUES = dict.fromkeys(("data", "model", "output", "folder", "trained"), "x") | {"seed": "0"}


def published(table: str = "studies") -> list[dict[str, str]]:
    with open(REPOSITORY / "docs" / f"{table}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def content_of(study: str) -> dict[str, Any]:
    return yaml.safe_load((STUDIES / f"{study}.yaml").read_text())


def test_published_rows_have_the_learning_rates_of_their_study() -> None:
    for study in ("search", "few-pairs"):
        rows = read_rows(content_of(study)["rows"])
        lines = {line["row"]: line for line in reversed(published()) if line["study"] == study}
        assert set(rows) <= set(lines)
        for name in rows if study == "search" else ():
            assert lines[name]["learning rate"].partition(" of ")[2] == (rows[name].rate_of or "")


def test_the_table_of_the_papers_is_that_of_their_study() -> None:
    content, lines = content_of("papers"), published("papers")
    assert [line["row"] for line in lines] == list(content["rows"])
    for line in lines:
        for column in content["columns"]:
            assert float(line[column]) > 0 and bool(line[f"{column} ± (95 %)"]) == (
                line["seeds"] > "1"
            ), line["row"]


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.stem)
def test_the_tables_of_a_card_are_those_of_the_studies(card: Path) -> None:
    figures = {
        (line["row"], column): cell
        for line in reversed(published())
        for column, cell in line.items()
    }
    header: list[str] = []
    compared = 0
    for line in card.read_text(encoding="utf-8").splitlines():
        cells = (
            [cell.strip() for cell in line.strip("| ").split("|")] if line.startswith("|") else []
        )
        header = (header or cells) if cells else []
        for column, cell in zip(header[1:], cells[1:], strict=True):
            if header[0] == "row" and figures.get((cells[0], column)):
                assert cell == figures[cells[0], column], (cells[0], column)
                compared += 1
    assert compared > 40


def test_no_row_reads_what_it_is_tested_or_tuned_on() -> None:
    for name, row in read_rows(content_of("search")["rows"]).items():
        words = words_of(
            {key: value for key, value in row.options.items() if key != "dictionaries"}, VALUES
        )
        assert not [word for word in words if "squad_v1.1/dev" in word or "tatoeba" in word], name
        if row.script and "pairs" in row.options:
            assert row.options["exclude"] == "{output}/test-sentences.txt", name
        elif row.script:
            assert not [word for word in words if "tico19" in word], name


def every_command() -> list[tuple[str, dict[str, Any]]]:
    """Each script of the studies, with all options that it is given."""
    options_of: dict[tuple[str, Any, bool], dict[str, Any]] = {}
    for file in sorted(STUDIES.glob("*.yaml")):
        content = content_of(file.stem)
        commands = [
            *content["measure"].values(),
            *content.get("tune", {}).get("measure", {}).values(),
        ]
        for each in content["prepare"].values():
            commands += each if isinstance(each, list) else [each]
        commands += [
            {"script": row.script, "options": row.options}
            for row in read_rows(content["rows"]).values()
        ]
        for command in [command for command in commands if command["options"]]:
            options = {
                name: value for name, value in command["options"].items() if value is not None
            }
            kind = options.get("mode", options.get("objective"))
            options_of.setdefault((command["script"], kind, "from_scratch" in options), {}).update(
                options
            )
    return [(script, options) for (script, *_), options in options_of.items()]


@pytest.mark.parametrize(
    ("script", "options"), every_command(), ids=lambda each: each if isinstance(each, str) else ""
)
def test_every_command_is_one_that_its_script_takes(
    script: str, options: dict[str, Any], tmp_path: Path
) -> None:
    values = dict.fromkeys(VALUES, str(tmp_path)) | {"seed": "0"}
    words = words_of(
        {name: value for name, value in options.items() if "*" not in str(value)}, values
    )
    if ".train_" in script:
        words += ["--output_dir", str(tmp_path / "run"), "--use_cpu"]
        words += ["--dictionaries", "words.tsv"] if "ML-CTL" in str(options.get("mode")) else []
    parse([*script.replace("st_xlret ", "st-xlret ").split(), *words])
