"""Sentences of several languages with the same verse reference are pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from st_xlret.data import DataError, PairOptions, PairReport, load_pairs


def verse_documents() -> list[dict[str, Any]]:
    return [
        {"language": "en", "sentences": ["E1", "E2", ""], "verses": ["X 1:1", "X 1:2", "X 1:3"]},
        {
            "language": "de",
            "sentences": ["D2", "", "D3", "D4"],
            "verses": ["X 1:2", "X 1:1", "X 1:3", "X 1:4"],
        },
        {"language": "fr", "sentences": ["F1"], "verses": ["X 1:1"]},
    ]


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def load(sources: Any, report: PairReport | None = None, **options: Any) -> list[tuple[str, ...]]:
        pairs = load_pairs(sources, PairOptions(**options), report=report, cache_dir=tmp_path, show_progress=False)
        return [tuple(row.values()) for row in pairs]

    return load


def test_equal_verses_are_pairs(load: Any) -> None:
    expected = [("E2", "D2", "en", "de"), ("E1", "F1", "en", "fr")]
    assert load(verse_documents()) == expected
    assert load(Dataset.from_list(verse_documents())) == expected
    report = PairReport()
    assert load((d for d in verse_documents()), report, languages=["en", "fr"]) == expected[1:]
    assert report.other_languages == {"de": 1}


def test_without_english_the_largest_language_is_the_source(load: Any) -> None:
    documents = verse_documents()
    documents[0]["language"] = "sw"
    assert load(documents) == [("D2", "E2", "de", "sw")]
    assert load(documents, languages=["fr", "sw"]) == [("E1", "F1", "sw", "fr")]
    with pytest.raises(DataError, match="no pairs left"):
        load(documents, languages=["es"])


def test_verses_must_match_the_sentences(load: Any) -> None:
    records = [*verse_documents(), {"language": "fr", "sentences": ["F2", "F3"], "verses": ["X 1:2"]}]
    with pytest.raises(DataError, match="line 4: .*2 sentences, found 1"):
        load(records)
    report = PairReport()
    assert len(load(records, report, skip_bad_lines=True)) == 2 and report.bad_line_count == 1
