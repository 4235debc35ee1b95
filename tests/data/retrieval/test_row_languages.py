"""Questions in several languages: each row has its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from st_xlret.data import DataError, RetrievalReport, load_retrieval
from st_xlret.data.retrieval.layouts import find_retrieval
from tests.data.files import write_jsonl
from tests.data.retrieval.layouts import dpr, squad, triplets

TYDI = {
    "query_id": "1",
    "query": "Dodoma ni nini?",
    "positive_passages": [{"docid": "7#0", "title": "Dodoma", "text": "Ni mji mkuu."}],
    "negative_passages": [{"docid": "8#0", "title": "Moshi", "text": "Ni mji."}, {"docid": "9#0", "text": "Mto."}],
}


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def run(sources: Any, **options: Any) -> list[dict[str, Any]]:
        return load_retrieval(sources, **{"cache_dir": tmp_path / "cache", "show_progress": False, **options}).to_list()

    return run


@pytest.mark.parametrize("end", ["", ".gz"])
def test_mr_tydi_has_the_language_of_its_folder(tmp_path: Path, load: Any, end: str) -> None:
    file = write_jsonl(tmp_path / "data" / "mrtydi-v1.1-swahili" / f"train.jsonl{end}", [TYDI])
    expected = {"query": "Dodoma ni nini?", "positive": "Dodoma Ni mji mkuu.", "language": "sw"}
    assert load(file) == [expected]
    assert load(file, negatives=2, titles=False) == [
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
    rows = load(tmp_path / "data")
    assert [(row["language"], row["positive"]) for row in rows] == [
        ("te", "Dodoma Ni mji mkuu."),
        ("te", "Zaidi."),
        ("sw", "Dodoma Ni mji mkuu."),
    ]
    assert [row["query"] for row in load(tmp_path / "data", split="dev")] == ["dev"]


def test_a_language_that_nothing_tells_must_be_named(tmp_path: Path, load: Any) -> None:
    file = write_jsonl(tmp_path / "train.jsonl", [TYDI])
    with pytest.raises(DataError, match="train.jsonl, line 1.*train.jsonl=sw"):
        load(file)
    assert load(f"{file}=sw")[0]["language"] == "sw"
    assert load([write_jsonl(tmp_path / "own.jsonl", [{**TYDI, "lang": "swh"}])])[0]["language"] == "swh"
    with pytest.raises(ValueError, match="unknown language code 'klingon'"):
        load(f"{file}=klingon")


def test_rows_of_ones_own(tmp_path: Path, load: Any) -> None:
    rows: list[dict[str, Any]] = [
        {"query": "nani?", "positive": "mimi", "negatives": ["yeye", "sisi"], "language": "sw"},
        {"query": "who?", "positive": "me", "negative": "him"},
    ]
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    assert [row["language"] for row in load(file)] == ["sw", "en"]
    assert [row["language"] for row in load(f"{file}=fr")] == ["sw", "fr"]
    assert [row["negative_2"] for row in load(file, negatives=2)] == ["sisi", "him"]
    report = RetrievalReport()
    assert [row["query"] for row in load(file, languages=["sw"], report=report)] == ["nani?"]
    assert report.other_languages == {"en": 1} and "left out by the language filter: en 1" in str(report)
    bad = write_jsonl(tmp_path / "bad.jsonl", [rows[0], {"query": "?", "positive": ["a"]}])
    with pytest.raises(DataError, match=r"bad.jsonl, line 2.*'positive' must be a str"):
        load(bad)


@pytest.mark.parametrize("make", [dpr, squad])
def test_xor_tydi_names_the_languages_in_its_file_of_questions(tmp_path: Path, load: Any, make: Any) -> None:
    source = make(tmp_path / "xorqa_dpr_data_query=L" / "dpr_train_data.json")
    assert {row["language"] for row in load(source)} == {"en"}
    questions = [
        {"id": "1", "question": "Who lives there?", "lang": "fi", "answers": ["A wolf"]},
        {"id": "2", "question": "What does  it eat?", "lang": "ja", "answers": ["meat"]},
    ]
    beside = write_jsonl(source.parent / "xor_train_retrieve_eng_span.jsonl", questions)
    assert [row["language"] for row in load(source)] == ["en", "fi", "ja"]
    assert [row["language"] for row in load(f"{source}=te")] == ["te", "fi", "ja"]
    with pytest.raises(DataError, match="without passages.*dpr_train_data.json"):
        load(beside)


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
    assert [source.has_negatives for source in find_retrieval(sources)] == [True, True, False, False, True, True]
