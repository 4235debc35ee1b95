"""The published figures: rows of docs/studies.csv are those of the studies, and of the cards."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_commands import parse
from training_scripts.studies.run import rows_of, words_of

REPOSITORY = Path(__file__).parents[3]
STUDIES = REPOSITORY / "training_scripts" / "studies"
CARDS = sorted((REPOSITORY / "model_cards").glob("*.md"))
CARDS = [card for card in CARDS if card.name != "README.md"]
VALUES = dict.fromkeys(("data", "model", "output", "folder", "trained"), "x") | {"seed": "0"}


def published(table: str = "studies") -> list[dict[str, str]]:
    with open(REPOSITORY / "docs" / f"{table}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def content_of(study: str) -> dict[str, Any]:
    return yaml.safe_load((STUDIES / f"{study}.yaml").read_text())


def test_rows_of_the_studies_are_published() -> None:
    for study in ("search", "few-pairs"):
        rows = rows_of(content_of(study)["rows"])
        lines = {line["row"] for line in published() if line["study"] == study}
        assert set(rows) <= lines


def test_published_rows_have_the_learning_rates_of_their_study() -> None:
    rows = rows_of(content_of("search")["rows"])
    lines = {line["row"]: line for line in reversed(published()) if line["study"] == "search"}
    for name, row in rows.items():
        _, _, rate_of = lines[name]["learning rate"].partition(" of ")
        assert rate_of == (row.rate_of or "")


def test_the_table_of_the_papers_is_that_of_their_study() -> None:
    content = content_of("papers")
    lines = published("papers")
    assert [line["row"] for line in lines] == list(content["rows"])
    for line in lines:
        for column in content["columns"]:
            has_interval = bool(line[f"{column} ± (95 %)"])
            assert float(line[column]) > 0, line["row"]
            assert has_interval == (line["seeds"] > "1"), line["row"]


def rows_of_tables(text: str) -> Iterator[dict[str, str]]:
    """The rows of the tables of a page, column -> cell."""
    header: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if header:
            yield dict(zip(header, cells, strict=True))
        else:
            header = cells


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.stem)
def test_the_tables_of_a_card_are_those_of_the_studies(card: Path) -> None:
    figures = {}
    for line in reversed(published()):
        for column, cell in line.items():
            figures[line["row"], column] = cell
    compared = 0
    for row in rows_of_tables(card.read_text(encoding="utf-8")):
        name = row.pop("row", None)
        for column, cell in row.items():
            expected = figures.get((name, column))
            if expected:
                assert cell == expected, (name, column)
                compared += 1
    assert compared > 40


def test_no_row_reads_what_it_is_tested_or_tuned_on() -> None:
    for name, row in rows_of(content_of("search")["rows"]).items():
        options = {key: value for key, value in row.options.items() if key != "dictionaries"}
        words = " ".join(words_of(options, VALUES))
        assert "squad_v1.1/dev" not in words, name
        assert "tatoeba" not in words, name
        if row.script and "pairs" in options:
            assert options["exclude"] == "{output}/test-sentences.txt", name
        elif row.script:
            assert "tico19" not in words, name


def commands_of(content: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The scripts of a study, each with its options."""
    commands = [*content["measure"].values()]
    commands += content.get("tune", {}).get("measure", {}).values()
    for prepared in content["prepare"].values():
        commands += prepared if isinstance(prepared, list) else [prepared]
    found = [(command["script"], command["options"]) for command in commands]
    for row in rows_of(content["rows"]).values():
        found.append((row.script, row.options))
    return found


def every_command() -> list[tuple[str, dict[str, Any]]]:
    """Each script of the studies, with all options that it is given.

    Options that exclude others, those of an encoder from scratch and pairs, are kept apart.
    """
    options_of: dict[tuple[Any, ...], dict[str, Any]] = {}
    for file in sorted(STUDIES.glob("*.yaml")):
        for script, options in commands_of(content_of(file.stem)):
            given = {name: value for name, value in options.items() if value is not None}
            if given:
                kind = given.get("mode", given.get("objective"))
                key = (script, kind, "from_scratch" in given, "pairs" in given)
                options_of.setdefault(key, {}).update(given)
    return [(script, options) for (script, *_), options in options_of.items()]


@pytest.mark.parametrize(
    ("script", "options"), every_command(), ids=lambda each: each if isinstance(each, str) else ""
)
def test_every_command_is_one_that_its_script_takes(
    script: str, options: dict[str, Any], tmp_path: Path
) -> None:
    values = dict.fromkeys(VALUES, str(tmp_path)) | {"seed": "0"}
    without_patterns = {name: value for name, value in options.items() if "*" not in str(value)}
    words = words_of(without_patterns, values)
    if ".train_" in script:
        words += ["--output_dir", str(tmp_path / "run"), "--use_cpu"]
        if "ML-CTL" in str(options.get("mode")):
            words += ["--dictionaries", "words.tsv"]
    program = script.replace("st_xlret ", "st-xlret ").split()
    parse([*program, *words])
