"""Hard negatives, mined once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from st_xlret.data import DataError
from st_xlret.training import hard_negatives
from st_xlret.training.hard_negatives import mine_negatives_once
from tests import tiny


@pytest.fixture
def model(tmp_path: Path) -> str:
    tiny.static(features=16).save(str(tmp_path / "model"))
    return str(tmp_path / "model")


@pytest.fixture
def questions() -> Dataset:
    rows = [
        {"query": word, "positive": f"{word} bear", "language": "de" if word == "sun" else "en"} for word in tiny.WORDS
    ]
    return Dataset.from_list(rows[:-1])


@pytest.mark.parametrize("count", [1, 2])
def test_each_question_has_passages_of_others(count: int, model: str, questions: Dataset, tmp_path: Path) -> None:
    mined = mine_negatives_once(questions, model, count, tmp_path / "negatives", relative_margin=0.0)
    negatives = [f"negative_{i + 1}" for i in range(count)]
    assert mined.column_names == ["query", "positive", *negatives, "language"]
    assert len(mined) > 0
    for row in mined:
        found = {row[name] for name in negatives}
        assert len(found) == count and found < set(questions["positive"]) - {row["positive"]}
        assert row["language"] == ("de" if row["query"] == "sun" else "en")


def test_what_is_kept_is_taken(model: str, questions: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    mine = hard_negatives.mine_hard_negatives
    monkeypatch.setattr(hard_negatives, "mine_hard_negatives", lambda *a, **o: calls.append(a) or mine(*a, **o))
    first = mine_negatives_once(questions, model, 1, tmp_path / "negatives")
    again = mine_negatives_once(questions, "another model", 1, tmp_path / "negatives")
    assert again.to_list() == first.to_list() and len(calls) == 1
    mine_negatives_once(questions, model, 1, tmp_path / "negatives", keep=False)
    assert len(calls) == 2


def test_too_few_passages_are_an_error_and_leave_nothing(model: str, questions: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="12 hard negatives"):
        mine_negatives_once(questions, model, 12, tmp_path / "negatives")
    assert not (tmp_path / "negatives").exists()
