"""Questions in several languages, each with its own; mentions of entities as queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from st_xlret.data import DataError, RetrievalReport, load_retrieval
from st_xlret.data.question_formats import entity_text, mention_in_context
from st_xlret.data.retrieval import find_retrieval
from tests.data.files import dpr, squad, triplets, write_jsonl


def rows_of(questions: Any, *given: Any, **options: Any) -> list[dict[str, Any]]:
    return questions(*given, **options)[0].to_list()


TYDI = {
    "query_id": "1",
    "query": "Dodoma ni nini?",
    "positive_passages": [{"docid": "7#0", "title": "Dodoma", "text": "Ni mji mkuu."}],
    "negative_passages": [{"docid": "8#0", "title": "Moshi", "text": "Ni mji."}, {"docid": "9#0", "text": "Mto."}],
}


@pytest.mark.parametrize("end", ["", ".gz"])
def test_mr_tydi_has_the_language_of_its_folder(tmp_path: Path, questions: Any, end: str) -> None:
    file = write_jsonl(tmp_path / "data" / "mrtydi-v1.1-swahili" / f"train.jsonl{end}", [TYDI])
    expected = {"query": "Dodoma ni nini?", "positive": "Dodoma Ni mji mkuu.", "language": "sw"}
    assert rows_of(questions, file) == [expected]
    assert rows_of(questions, file, negatives=2, titles=False) == [
        {"query": "Dodoma ni nini?", "positive": "Ni mji mkuu.", "negative_1": "Ni mji.", "negative_2": "Mto."}
        | {"language": "sw"}
    ]
    # A folder of languages, with files of other splits.
    two = {
        **TYDI,
        "query": "?",
        "positive_passages": [*TYDI["positive_passages"], {"docid": "7#1", "title": "", "text": "Zaidi."}],
    }
    write_jsonl(tmp_path / "data" / "miracl-v1.0-te" / "train.jsonl", [two])
    write_jsonl(tmp_path / "data" / "mrtydi-v1.1-swahili" / "dev.jsonl.gz", [{**TYDI, "query": "dev"}])
    rows = rows_of(questions, tmp_path / "data")
    assert [(row["language"], row["positive"]) for row in rows] == [
        ("te", "Dodoma Ni mji mkuu."),
        ("te", "Zaidi."),
        ("sw", "Dodoma Ni mji mkuu."),
    ]
    assert [row["query"] for row in rows_of(questions, tmp_path / "data", split="dev")] == ["dev"]


def test_a_language_that_nothing_tells_must_be_named(tmp_path: Path, questions: Any) -> None:
    file = write_jsonl(tmp_path / "train.jsonl", [TYDI])
    with pytest.raises(DataError, match="train.jsonl, line 1.*PATH=sw"):
        rows_of(questions, file)
    assert rows_of(questions, f"{file}=sw")[0]["language"] == "sw"
    assert rows_of(questions, [write_jsonl(tmp_path / "own.jsonl", [{**TYDI, "lang": "swh"}])])[0]["language"] == "swh"
    with pytest.raises(ValueError, match="unknown language code 'klingon'"):
        rows_of(questions, f"{file}=klingon")


def test_rows_of_ones_own(tmp_path: Path, questions: Any) -> None:
    rows: list[dict[str, Any]] = [
        {"query": "nani?", "positive": "mimi", "negatives": ["yeye", "sisi"], "language": "sw"},
        {"query": "who?", "positive": "me", "negative": "him"},
    ]
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    assert [row["language"] for row in rows_of(questions, file)] == ["sw", "en"]
    assert [row["language"] for row in rows_of(questions, f"{file}=fr")] == ["sw", "fr"]
    assert [row["negative_2"] for row in rows_of(questions, file, negatives=2)] == ["sisi", "him"]
    report = RetrievalReport()
    assert [row["query"] for row in rows_of(questions, file, languages=["sw"], report=report)] == ["nani?"]
    assert report.other_languages == {"en": 1} and "left out by the language filter: en 1" in str(report)
    bad = write_jsonl(tmp_path / "bad.jsonl", [rows[0], {"query": "?", "positive": ["a"]}])
    with pytest.raises(DataError, match=r"bad.jsonl, line 2.*'positive' must be a str"):
        rows_of(questions, bad)


@pytest.mark.parametrize("make", [dpr, squad])
def test_xor_tydi_names_the_languages_in_its_file_of_questions(tmp_path: Path, questions: Any, make: Any) -> None:
    source = make(tmp_path / "xorqa_dpr_data_query=L" / "dpr_train_data.json")
    assert {row["language"] for row in rows_of(questions, source)} == {"en"}
    asked = [
        {"id": "1", "question": "Who lives there?", "lang": "fi", "answers": ["A wolf"]},
        {"id": "2", "question": "What does  it eat?", "lang": "ja", "answers": ["meat"]},
    ]
    beside = write_jsonl(source.parent / "xor_train_retrieve_eng_span.jsonl", asked)
    assert [row["language"] for row in rows_of(questions, source)] == ["en", "fi", "ja"]
    assert [row["language"] for row in rows_of(questions, f"{source}=te")] == ["te", "fi", "ja"]
    with pytest.raises(DataError, match="without passages.*dpr_train_data.json"):
        rows_of(questions, beside)


def test_which_sources_have_negatives(tmp_path: Path) -> None:
    rows = [{"query": "a", "positive": "b"}]
    sources = [
        triplets(tmp_path / "a.tsv"),
        dpr(tmp_path / "b.json"),
        squad(tmp_path / "c.json"),
        write_jsonl(tmp_path / "d.jsonl", rows),
        write_jsonl(tmp_path / "e.jsonl", [{**rows[0], "negatives": ["c"]}]),
        write_jsonl(tmp_path / "train.jsonl", [TYDI]),
    ]
    found = find_retrieval(sources)
    assert [source.has_negatives("passage") for source in found] == [True, True, False, False, True, True]
    # The other sentences of the passage are negatives of the one with the answer.
    assert [source.has_negatives("sentence") for source in found] == [True, True, True, False, True, True]


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
    options: dict[str, Any] = {"cache_dir": tmp_path / "cache", "show_progress_bar": False}
    (row,) = load_retrieval(file, skip_bad_lines=True, **options)
    assert row == {"query": "Nile: The { Nile } rose.", "positive": "A river.", "language": "en"}
    with pytest.raises(DataError, match="wikipedia_pairs-train.jsonl, line 2.*not within the text of 8"):
        load_retrieval(file, **options)


def test_mentions_are_marked_in_their_sentences() -> None:
    assert entity_text({"description": "A\ntown", "sentence_spans": []}) == "A town"
    text = "One {x}. Two\nlines  here. Three."
    spans = [(0, 8), (9, 25), (26, 32)]
    assert mention_in_context(text, 13, 18, spans) == "lines: Two { lines } here."
    assert mention_in_context(text, 0, 3, spans) == "One: { One } (x)."
    assert mention_in_context(text, 4, 12, spans).startswith("{x}. Two: One { {x}. Two } lines")
    assert mention_in_context("Ann won.", 0, 3, []) == "Ann: { Ann } won."
    with pytest.raises(ValueError, match="3..99 is not within the text of 8"):
        mention_in_context("Ann won.", 3, 99, [])
