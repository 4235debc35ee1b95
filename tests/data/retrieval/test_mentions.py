"""Mentions of entities as queries, and Mewsli-X's English pairs to train on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from st_xlret.data import DataError, load_retrieval
from st_xlret.data.retrieval.mentions import entity_text, mention_in_context
from tests.data.files import write_jsonl


def pair(**changed: Any) -> dict[str, Any]:
    context = {
        "document_id": "Q1",
        "language": "en",
        "text": "It rained. The Nile rose. Nobody saw it.",
        "sentence_spans": [{"start": 0, "end": 10}, {"start": 11, "end": 25}, {"start": 26, "end": 40}],
    }
    mention = {"example_id": "m", "entity_id": "Q2", "mention_span": {"start": 15, "end": 19, "text": "Nile"}}
    entity = {
        "entity_id": "Q2",
        "description": "A river.",
        "description_language": "en",
        "sentence_spans": [{"start": 0, "end": 8}],
    }
    return {"contextual_mention": {"context": context | changed, "mention": mention}, "entity": entity}


def test_pairs_to_train_on(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "wikipedia_pairs-train.jsonl", [pair(), pair(text=pair()["entity"]["description"])])
    options: dict[str, Any] = {"cache_dir": tmp_path / "cache", "show_progress": False}
    (row,) = load_retrieval(file, skip_bad_lines=True, **options)
    assert row == {"query": "Nile: The { Nile } rose.", "positive": "A river.", "language": "en"}
    with pytest.raises(DataError, match="wikipedia_pairs-train.jsonl, line 2.*not within the text of 8"):
        load_retrieval(file, **options)


def test_mentions_are_marked_in_their_sentences() -> None:
    text = "One {x}. Two\nlines  here. Three."
    spans = [(0, 8), (9, 25), (26, 32)]
    assert mention_in_context(text, 13, 18, spans) == "lines: Two { lines } here."
    assert mention_in_context(text, 0, 3, spans) == "One: { One } (x)."
    assert mention_in_context(text, 4, 12, spans).startswith("{x}. Two: One { {x}. Two } lines")
    assert mention_in_context("Ann won.", 0, 3, []) == "Ann: { Ann } won."
    with pytest.raises(ValueError, match="3..99 is not within the text of 8"):
        mention_in_context("Ann won.", 3, 99, [])


def test_a_description_without_sentences_is_taken_whole() -> None:
    assert entity_text({"description": "A\ntown", "sentence_spans": []}) == "A town"
