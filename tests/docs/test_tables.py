"""The tables of the pages list what the package has."""

from pathlib import Path

import pytest

from docs.tools.tables import END, PAGES, TABLES, loss_classes, with_tables
from st_xlret.evaluation import BENCHMARKS
from st_xlret.stores.registry import STORES

LISTED = {
    "benchmarks": BENCHMARKS,
    "columns": loss_classes(),
    "stores": [kind.example for kind in STORES],
}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_a_row_for_each_entry_of_its_registry(table: str) -> None:
    header, rule, *rows = TABLES[table]().splitlines()
    for name, row in zip(LISTED[table], rows, strict=True):
        assert f"`{name}`" in row


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_what_the_code_declares(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- table: ") == text.count(END)
    assert with_tables(text) == text, "run python -m docs.tools.tables"


def test_every_table_is_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for table in TABLES:
        assert f"<!-- table: {table} -->" in text


def test_a_table_replaces_what_stands_between_its_markers() -> None:
    page = with_tables(f"Before\n\n<!-- table: stores -->\n\nold\n\n{END}\n\nafter\n")
    assert page.startswith("Before\n\n<!-- table: stores -->\n\n| source")
    assert page.endswith(f"|\n\n{END}\n\nafter\n")
    assert with_tables(page) == page


def test_a_page_that_asks_for_another_table_is_refused() -> None:
    with pytest.raises(KeyError, match="recipes"):
        with_tables(f"<!-- table: recipes -->\n{END}")
