"""A figure stands under its own name, or there is no table."""

import pytest

from st_xlret.tables import markdown_table, percent, records_table


def cells(table: str) -> list[list[str]]:
    """The cells of a table, without the line below its header."""
    lines = table.splitlines()
    del lines[1]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("row", [["fr"], ["fr", "1.0"], ["fr", "1.0", "2.0", "3.0"]])
def test_a_row_that_does_not_fit_its_header_is_refused(row: list[str]) -> None:
    header = ["language", "mrr_at_10", "recall_at_10"]
    with pytest.raises(ValueError, match=f"{len(row)} cells under a header of 3: .*'fr'"):
        markdown_table(header, [["de", "1.0", "2.0"], row])


def test_the_header_of_records_has_the_names_of_all() -> None:
    table = records_table(
        [
            {"language": "de", "mrr_at_10": "50.0"},
            {"language": "fr", "recall_at_10": "20.0", "mrr_at_10": "10.0"},
        ]
    )
    assert cells(table) == [
        ["language", "mrr_at_10", "recall_at_10"],
        ["de", "50.0", "-"],
        ["fr", "10.0", "20.0"],
    ]


def test_a_missing_fraction_is_a_dash() -> None:
    assert percent(None) == "-"
    assert percent(0.125) == "12.5"
