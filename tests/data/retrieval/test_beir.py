"""The one reader of BEIR's layout: texts, judgements and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from st_xlret.data import BadLines, DataError
from st_xlret.data.retrieval.beir import find_beir, line_of_judgement, read_qrels, read_texts
from tests.data.files import write_jsonl, write_text
from tests.data.retrieval.layouts import beir

RECORDS = [
    {"_id": "a", "title": "T", "text": "One.", "metadata": {"language": "sw", "answers": ["x"]}},
    {"id": 7, "text": "Two.", "language": "en", "metadata": None},
    {"_id": "c", "text": ""},
]


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_texts_have_titles_languages_and_metadata(name: str, tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / name, RECORDS)
    texts = list(read_texts(file))
    assert [text[:4] for text in texts] == [("a", "One.", "T", "sw"), ("7", "Two.", "", "en"), ("c", "", "", None)]
    assert texts[0].metadata["answers"] == ["x"] and texts[1].metadata == {} and texts[2].line == 3
    assert [text.id for text in read_texts(file, only={"7"})] == ["7"]


@pytest.mark.parametrize(
    "bad", [{"text": "x"}, {"_id": "x"}, {"_id": "x", "text": 3}, {"_id": "x", "text": "", "title": 1}]
)
def test_bad_records_are_named_or_skipped(bad: dict, tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "queries.jsonl", [RECORDS[0], bad])
    with pytest.raises(DataError, match=r"queries\.jsonl, line 2: .*'_id'"):
        list(read_texts(file))
    bad_lines = BadLines(skip=True)
    assert [text.id for text in read_texts(file, on_bad_line=bad_lines)] == ["a"] and bad_lines.count == 1


def test_judgements_of_beir_and_trec(tmp_path: Path) -> None:
    expected = {"q1": {"d1": 1, "d2": 0}}
    tabs = write_text(tmp_path / "a.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\n")
    trec = write_text(tmp_path / "b.txt.gz", "q1 0 d1 1\nq1\t0\td2\t0\n")
    assert read_qrels(tabs) == read_qrels(trec) == expected
    assert (line_of_judgement(tabs, "q1", "d2"), line_of_judgement(trec, "q1", "d2")) == (3, 2)
    assert line_of_judgement(tabs, "d1", "q1") == 0


def test_files_may_be_gzipped_and_missing_ones_are_named(tmp_path: Path) -> None:
    files = find_beir(beir(tmp_path / "a", end=".gz", split="dev"), "dev")
    assert [file.name for file in files] == ["corpus.jsonl.gz", "queries.jsonl.gz", "dev.tsv.gz"]
    with pytest.raises(FileNotFoundError, match="no such folder"):
        find_beir(tmp_path / "gone", "dev")
