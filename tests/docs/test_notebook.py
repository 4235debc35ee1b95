"""The notebook runs, and shows what it printed when it ran."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

NOTEBOOK = REPOSITORY / "examples" / "quickstart.ipynb"
SENTENCES = "training_scripts/demo/tico19/sentences.tsv"


def code_cells() -> list[dict[str, Any]]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_the_cells_run(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setattr(pyplot, "show", lambda: None)
    sentences = workspace.parent / SENTENCES
    sentences.parent.mkdir(parents=True)
    sentences.write_bytes((REPOSITORY / SENTENCES).read_bytes())
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in code_cells():
        exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), namespace)
    assert Path("map").is_dir()


def test_the_outputs_are_those_of_one_run_in_order() -> None:
    cells = code_cells()
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 1
    assert all(output["output_type"] != "error" for output in outputs)
