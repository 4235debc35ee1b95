"""The cards of this repository: read by the Hub's own reader, with examples that run and scores of their own model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from st_xlret.hub import check_card
from tests import tiny
from tests.docs.blocks import python_blocks

OWN = " (this model)"


@pytest.fixture(params=["ccp", "language-agnostic-ir", "ml-ctl", "msm"])
def card(request: pytest.FixtureRequest, repository: Path) -> str:
    return (repository / "model_cards" / f"{request.param}.md").read_text(encoding="utf-8")


def test_the_example_of_usage_runs(card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sentence_transformers.SentenceTransformer", lambda name: tiny.static())
    (block,) = python_blocks(card)
    names: dict[str, Any] = {}
    exec(compile(block.code, "card", "exec"), names)
    assert names["similarities"].shape == (3, 3)


def test_the_metadata_is_the_row_of_the_model(card: str) -> None:
    check_card(card)
    values: dict[tuple[str, str], list[float]] = {}
    for entry in ModelCard(card).data.eval_results:
        values.setdefault((entry.dataset_name, entry.metric_type), []).append(100 * entry.metric_value)
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in card.splitlines() if line.startswith("|")]
    own = [[float(cell) for cell in cells if cell] for name, *cells in rows if name.endswith(OWN)]
    assert values and own == [pytest.approx(of_model, abs=0.051) for of_model in values.values()]


def test_it_says_what_the_host_says_and_more(card: str) -> None:
    headings = set(re.findall(r"^#+ (.*)$", card, re.MULTILINE))
    assert {"Model Details", "Full Model Architecture", "Usage", "Framework Versions", "BibTeX"} <= headings
    assert {"Summary", "Training data", "Training", "Results", "Limits"} <= headings
    assert "CC BY" in card and "@inproceedings{" in card
    assert re.search(r"python (-m )?training_scripts[/.](studies\.)?train_", card)
