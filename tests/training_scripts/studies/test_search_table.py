"""The table of the study of search."""

from __future__ import annotations

import json
from pathlib import Path

from training_scripts.studies.search_table import COLUMNS, figures_of, means_of, table_of

ALIGNED = {"raw pool": 0.5, "raw own": 0.75, "aligned pool": 0.6, "aligned own": 0.7}


def test_figures_are_those_of_all_files_of_a_run(tmp_path: Path) -> None:
    assert figures_of(tmp_path) == {}
    (tmp_path / "measured.json").write_text(json.dumps({"raw pool": 0.5}))
    (tmp_path / "results.json").write_text(json.dumps({"steps": 7, "tokens": 8000, "held_out_before": 1}))
    assert figures_of(tmp_path) == {"raw pool": 0.5, "steps": 7, "tokens": 8000}


def test_a_row_has_the_mean_of_its_seeds_and_what_is_not_measured_is_empty() -> None:
    rows = {"checkpoint": [ALIGNED], "CCP": [{"raw pool": 0.25, "tokens": 100}, {"raw pool": 0.5, "tokens": 300}]}
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table_of(rows, {"CCP": "3e-05"}).splitlines()]
    pool = 4 + list(COLUMNS).index("raw pool")
    assert lines[2][:4] == ["checkpoint", "1", "", ""] and lines[2][pool] == "50.0"
    assert lines[3][:4] == ["CCP", "2", "3e-05", "200"] and lines[3][pool] == "37.5 ± 12.5"
    assert lines[3][pool + 1 :] == [""] * (len(COLUMNS) - 1)


def test_the_plot_has_rows_with_all_four_figures() -> None:
    rows = {"checkpoint": [ALIGNED, {**ALIGNED, "raw pool": 0.25}], "CCP": [{"raw pool": 0.25}]}
    assert means_of(rows) == {
        "checkpoint": {"raw pool": 37.5, "raw own": 75.0, "aligned pool": 60.0, "aligned own": 70.0}
    }
