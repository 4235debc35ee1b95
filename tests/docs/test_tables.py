"""The tables of the pages list what the package has."""

import pytest

from docs.tools.tables import TABLES, loss_classes, with_tables
from st_xlret.evaluation import BENCHMARKS
from st_xlret.stores.registry import STORES
from tests.conftest import REPOSITORY


def losses_by_layout() -> list[str]:
    names = []
    for name, loss in loss_classes().items():
        names += [name] * len(loss.layouts)
    return names


LISTED = {
    "benchmarks": BENCHMARKS,
    "losses": loss_classes(),
    "columns": losses_by_layout(),
    "stores": [kind.example for kind in STORES],
    "mapped copies": [kind.name for kind in STORES],
}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_a_row_for_each_entry_of_its_registry(table: str) -> None:
    page = with_tables(f"Before\n\n<!-- table: {table} -->\n\nafter")
    before, header, rule, *rows, after = [line for line in page.splitlines() if line]
    assert [before, after] == ["Before", "after"]
    for name, row in zip(LISTED[table], rows, strict=True):
        assert f"`{name}`" in row


def test_every_table_is_on_a_page_and_no_page_asks_for_another() -> None:
    asked = set()
    for page in (REPOSITORY / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        with_tables(text)
        asked |= {table for table in TABLES if f"<!-- table: {table} -->" in text}
    assert asked == set(TABLES)
    with pytest.raises(KeyError, match="recipes"):
        with_tables("<!-- table: recipes -->")
