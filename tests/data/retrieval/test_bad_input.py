"""What is wrong with retrieval data is named with file and line, or counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from st_xlret.data import DataError
from st_xlret.data.retrieval.loading import RetrievalReport, layout_of, load_retrieval
from tests.data.retrieval.layouts import beir, dpr, squad, triplets


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def run(sources: Any, **options: Any) -> Any:
        report = RetrievalReport()
        options = {"cache_dir": tmp_path / "cache", "show_progress": False, "report": report, **options}
        return load_retrieval(sources, **options), report

    return run


def test_the_layout_is_seen_from_the_file(tmp_path: Path) -> None:
    assert layout_of(beir(tmp_path / "beir")) == "beir"
    assert layout_of(dpr(tmp_path / "a.json.gz")) == "dpr"
    assert layout_of(squad(tmp_path / "b.json")) == "squad"
    assert layout_of(triplets(tmp_path / "c.tsv")) == "ms_marco"
    with pytest.raises(DataError, match="no such file or directory"):
        layout_of(tmp_path / "missing.json")
    (tmp_path / "text.json").write_text("hello")
    for name in ("text.json", "beir/qrels"):
        with pytest.raises(DataError, match=rf"{name}.*BEIR.*DPR.*SQuAD.*MS MARCO"):
            layout_of(tmp_path / name)


def test_a_split_that_is_not_there_is_not_replaced(tmp_path: Path) -> None:
    folder = beir(tmp_path / "squad", split="dev")
    with pytest.raises(FileNotFoundError, match=r"qrels/train\.tsv.*\['dev'\]"):
        load_retrieval(folder)
    (folder / "queries.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match=r"queries\.jsonl.*corpus\.jsonl"):
        load_retrieval(folder, split="dev")


@pytest.mark.parametrize(
    "line, message",
    [
        ("q1 d1\n", "train.tsv, line 2: .*'q1 d1'"),
        ("q1\td1\tyes\n", "train.tsv, line 2: .*'yes'"),
        ("q2\td2\t1\nq2\td2\t0\n", "train.tsv, line 3: .*'q2' and document 'd2'"),
        ("q9\td1\t1\n", "train.tsv, line 2: query 'q9' is not in queries.jsonl"),
        ("q1\td9\t1\n", "train.tsv, line 2: passage 'd9' is not in corpus.jsonl"),
    ],
)
def test_bad_qrels(line: str, message: str, tmp_path: Path, load: Any) -> None:
    folder = beir(tmp_path / "beir", qrels=line + "q2\td2\t1\n")
    with pytest.raises(DataError, match=message):
        load(folder)
    dataset, report = load(folder, skip_bad_lines=True)
    assert dataset["query"][:] == ["Who lives there?"] and report.bad_line_count == 1


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"question": None}, "nq.json, entry 1: no field 'question'"),
        ({"positive_ctxs": "d1"}, "nq.json, entry 1: field 'positive_ctxs' must be a list"),
        ({"positive_ctxs": ["d1"]}, "nq.json, entry 1: a context must be an object"),
        ({"positive_ctxs": [{"title": "x"}]}, "nq.json, entry 1: no field 'text'"),
    ],
)
def test_bad_entries_of_dpr(changed: dict, message: str, tmp_path: Path, load: Any) -> None:
    source = dpr(tmp_path / "nq.json", **changed)
    with pytest.raises(DataError, match=message):
        load(source)
    dataset, report = load(source, skip_bad_lines=True)
    assert len(dataset) == 2 and report.bad_line_count == 1 and "bad lines skipped: 1" in str(report)


def test_a_truncated_list(tmp_path: Path, load: Any) -> None:
    source = dpr(tmp_path / "nq.json")
    source.write_bytes(source.read_bytes()[:-200])
    with pytest.raises(DataError, match="nq.json, entry 3: the file is truncated"):
        load(source)
    assert len(load(source, skip_bad_lines=True)[0]) == 2
    packed = dpr(tmp_path / "nq.json.gz")
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(DataError, match="the file is truncated"):
        load(packed)


def test_entries_that_are_no_objects(tmp_path: Path, load: Any) -> None:
    source = tmp_path / "list.json"
    source.write_text('["a"]')
    with pytest.raises(DataError, match="list.json, entry 1: expected a JSON object, found str"):
        load(source)
    with pytest.raises(DataError, match="no questions left to train on"):
        load(source, skip_bad_lines=True)


def test_bad_squad_files(tmp_path: Path, load: Any) -> None:
    source = tmp_path / "squad.json"
    source.write_text('{"version": 1}')
    with pytest.raises(DataError, match="squad.json, line 1: .*SQuAD.*KeyError"):
        load(source)
    source = squad(source, paragraphs=[{"qas": [{"question": "Why?"}]}])
    with pytest.raises(DataError, match="squad.json, entry 1: no field 'context'"):
        load(source)
    assert len(load(source, skip_bad_lines=True)[0]) == 2


def test_bad_triplets(tmp_path: Path, load: Any) -> None:
    source = triplets(tmp_path / "triples.tsv")
    source.write_text(source.read_text() + "two\tcolumns\n")
    with pytest.raises(DataError, match="triples.tsv, line 3: expected 3 columns.*found 2"):
        load(source)
    assert load(source, skip_bad_lines=True)[1].bad_line_count == 1
    ids = triplets(tmp_path / "ids.tsv", ids=True)
    ids.write_text(ids.read_text() + "1\t99\t10\n")
    with pytest.raises(DataError, match="ids.tsv, line 3: there is no passage with the id '99'"):
        load(ids)
    (tmp_path / "collection.tsv").unlink()
    with pytest.raises(DataError, match="contains ids.*collection.tsv"):
        load(ids)


def test_empty_sides_are_counted(tmp_path: Path, load: Any) -> None:
    source = dpr(tmp_path / "nq.json", question="  ")
    assert [counts.no_query for counts in load(source)[1].languages.values()] == [1]
    source = dpr(tmp_path / "nq.json", positive_ctxs=[])
    assert [counts.no_positive for counts in load(source)[1].languages.values()] == [1]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"negatives": -1}, "negatives must not be negative, got -1"),
        ({"positives": "word"}, "positives must be 'passage' or 'sentence', got 'word'"),
        ({"language": "english"}, "unknown language code 'english'"),
    ],
)
def test_bad_options(options: dict, message: str, tmp_path: Path, load: Any) -> None:
    with pytest.raises(ValueError, match=message):
        load(triplets(tmp_path / "triples.tsv"), **options)
    with pytest.raises(DataError, match="no sources given"):
        load([])
