"""Positions of words travel through CrossLingualDataCollator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from st_xlret.data import CrossLingualDataCollator
from tests import tiny

ROW = {
    "source": "sun moon star",
    "target": "rain wind",
    "source_language": "fr",
    "target_language": "en",
    "source_word": "moon",
    "target_word": "wind",
    "source_start": 2,
    "source_end": 3,
    "target_start": 1,
    "target_end": 4,
}


def collate(*rows: dict[str, Any]) -> dict[str, Any]:
    return CrossLingualDataCollator(tiny.transformer().preprocess)(list(rows))


def test_spans_go_to_their_columns() -> None:
    batch = collate(ROW, {**ROW, "source_start": 1, "target_end": 2})
    assert batch["source_word_start"].tolist() == [2, 1] and batch["source_word_end"].tolist() == [3, 3]
    assert batch["target_word_start"].tolist() == [1, 1] and batch["target_word_end"].tolist() == [4, 2]
    assert batch["source_word_start"].dtype == torch.int64
    assert {"source_text_id", "source_language_id", "source_input_ids"} <= set(batch)
    assert not [name for name in batch if name.startswith(("source_start_", "source_end_", "source_word_input"))]


def test_words_are_optional_and_never_tokenised() -> None:
    without = {name: value for name, value in ROW.items() if not name.endswith("_word")}
    assert set(collate(without)) == set(collate(ROW))


def test_texts_of_such_names_stay_texts() -> None:
    batch = collate({"the_start": "sun moon", "the_end": "rain", "word": "wind"})
    assert {"the_start_input_ids", "the_end_input_ids", "word_input_ids"} <= set(batch)


@pytest.mark.parametrize(
    "changed", [{"source_end": 2}, {"source_start": -1}, {"source_end": None}, {"source_start": "2"}]
)
def test_a_span_that_is_none_is_named(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="source_start and source_end must be token positions.*'sun moon star'"):
        collate(ROW, {**ROW, **changed})


def test_half_a_span_is_an_error() -> None:
    with pytest.raises(ValueError, match="got 2 and None"):
        collate({name: value for name, value in ROW.items() if name != "source_end"})
