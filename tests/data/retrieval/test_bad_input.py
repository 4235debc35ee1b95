"""What is wrong with retrieval data is named with file and line, or counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from st_xlret.data import DataError
from st_xlret.data.reading.jsonl import Limits
from st_xlret.data.retrieval.layouts import layout_of
from st_xlret.data.retrieval.loading import RetrievalReport, load_retrieval
from tests.data.files import write_bytes, write_jsonl, write_text
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


HALF = "\ud800"


@pytest.mark.parametrize(
    "changed",
    [
        {"question": f"a{HALF}b"},
        {"positive_ctxs": [{"title": "t", "text": HALF}]},
        {"positive_ctxs": [{"title": HALF, "text": "t"}]},
        {"hard_negative_ctxs": [{"title": "t", "text": f"x{HALF}"}]},
    ],
)
def test_halves_of_surrogate_pairs_are_refused(changed: dict, tmp_path: Path, load: Any) -> None:
    source = dpr(tmp_path / "nq.json", **changed)
    with pytest.raises(DataError, match="nq.json, entry 1: .*surrogate pair"):
        load(source, negatives=1)
    assert load(source, negatives=1, skip_bad_lines=True)[1].bad_line_count == 1


@pytest.mark.parametrize("start", ["0", -1, [], 1.5])
def test_bad_positions_of_answers(start: Any, tmp_path: Path, load: Any) -> None:
    question = {"question": "Why?", "answers": [{"text": "x", "answer_start": start}]}
    source = squad(tmp_path / "squad.json", paragraphs=[{"context": "It is x.", "qas": [question]}])
    with pytest.raises(DataError, match="squad.json, entry 1: field 'answer_start'"):
        load(source, positives="sentence")


@pytest.mark.parametrize("answers", [[5], [None], "seven", {"a": 1}])
def test_bad_answers(answers: Any, tmp_path: Path, load: Any) -> None:
    with pytest.raises(DataError, match="nq.json, entry 1: field 'answers' must be a list"):
        load(dpr(tmp_path / "nq.json", answers=answers), positives="sentence")
    if answers != "seven":  # which BEIR takes as one answer
        folder = beir(tmp_path / "beir")
        write_jsonl(folder / "queries.jsonl", [{"_id": "q1", "text": "Why?", "metadata": {"answers": answers}}])
        write_text(folder / "qrels" / "train.tsv", "q1\td1\t1\n")
        with pytest.raises(DataError, match="train.tsv, line 1: .*'answers' must be a list"):
            load(folder, positives="sentence")


@pytest.mark.parametrize("metadata", ["x", 5, ["a"], None])
def test_metadata_that_is_no_object_is_none(metadata: Any, tmp_path: Path, load: Any) -> None:
    folder = beir(tmp_path / "beir")
    write_jsonl(folder / "queries.jsonl", [{"_id": "q1", "text": "Why?", "metadata": metadata}])
    write_text(folder / "qrels" / "train.tsv", "q1\td1\t1\n")
    assert load(folder)[0]["query"][:] == ["Why?"]


@pytest.mark.parametrize("content", ["[" * 200_000, '{"data": ' + "[" * 200_000, '[{"question": ' + "[" * 200_000])
def test_deeply_nested_json_is_refused_at_once(content: str, tmp_path: Path, load: Any) -> None:
    source = write_text(tmp_path / "deep.json", content)
    with pytest.raises(DataError, match=r"deep.json, (entry|line) 1: .*recursion"):
        load(source)


@pytest.mark.parametrize("content", ['{"data": 5}', '{"data": "abc"}', '{"data": {"a": 1}}', '{"data": null}', "{"])
def test_squad_without_a_list_of_articles(content: str, tmp_path: Path, load: Any) -> None:
    with pytest.raises(DataError, match="a.json, line 1: .*SQuAD"):
        load(write_text(tmp_path / "a.json", content))


def test_questions_to_exclude_that_are_not_utf8_are_named(tmp_path: Path, load: Any) -> None:
    excluded = write_bytes(tmp_path / "test.txt", b"good\n\xff\n")
    with pytest.raises(DataError, match="test.txt, line 2: not UTF-8") as caught:
        load(dpr(tmp_path / "nq.json"), exclude=[excluded])
    assert "skip_bad_lines" not in str(caught.value)  # which does not apply to them


@pytest.mark.parametrize("name", ["a.json", "a.tsv"])
def test_empty_files_are_named(name: str, tmp_path: Path, load: Any) -> None:
    with pytest.raises(DataError, match=rf"{name}' is empty"):
        load(write_text(tmp_path / name, ""))


def test_an_entry_that_is_too_long_is_refused(tmp_path: Path, load: Any) -> None:
    source = dpr(tmp_path / "nq.json", question="x" * 1_000_000)
    with pytest.raises(DataError, match="nq.json, entry 1: .*longer than 1,000 characters"):
        load(source, limits=Limits(line_bytes=1000))


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
    with pytest.raises(DataError, match="squad.json, line 1: .*SQuAD.*data"):
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
