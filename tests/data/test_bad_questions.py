"""What is wrong with retrieval data is named with file and line, or counted."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from st_xlret.data import DataError
from st_xlret.data.lines import Limits
from st_xlret.data.question_formats import stream_list
from st_xlret.data.retrieval import find_retrieval, load_retrieval
from tests.data.files import beir, dpr, squad, triplets, write_bytes, write_jsonl, write_text


def test_files_of_no_layout_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.json").write_text("hello")
    for name in ("text.json", "."):
        with pytest.raises(DataError, match=r"BEIR.*DPR.*SQuAD.*MS MARCO"):
            find_retrieval(tmp_path / name)


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
        ("q1\td1\t0.5\n", "train.tsv, line 2: .*'0.5' is no whole number"),
        ("q1\td1\t" + "1" * 10_000 + "\n", "train.tsv, line 2: .*'1+' is no whole number"),
        ("q1\t0\td1\t1\tx\n", "train.tsv, line 2: expected 'query document judgement'"),
        ("q2\td2\t1\nq2\td2\t0\n", "train.tsv, line 3: .*'q2' and document 'd2'"),
        ("q9\td1\t1\n", "train.tsv, line 2: query 'q9' is not in queries.jsonl"),
        ("q1\td9\t1\n", "train.tsv, line 2: passage 'd9' is not in corpus.jsonl"),
    ],
)
def test_bad_qrels(line: str, message: str, tmp_path: Path, questions: Any) -> None:
    folder = beir(tmp_path / "beir", qrels=line + "q2\td2\t1\n")
    with pytest.raises(DataError, match=message):
        questions(folder)
    dataset, report = questions(folder, skip_bad_lines=True)
    assert dataset["query"][:] == ["Who lives there?"] and report.bad_line_count == 1


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"question": None}, "nq.json, entry 1: no field 'question'"),
        ({"positive_ctxs": "d1"}, "nq.json, entry 1: field 'positive_ctxs' must be a list"),
        ({"positive_ctxs": ["d1"]}, "nq.json, entry 1: field 'positive_ctxs' must be a list of objects"),
        ({"positive_ctxs": [{"title": "x"}]}, "nq.json, entry 1: no field 'text'"),
        ({"question": "a\ud800b"}, "nq.json, entry 1: .*surrogate pair"),
        ({"hard_negative_ctxs": [{"title": "t", "text": "\ud800"}]}, "nq.json, entry 1: .*surrogate pair"),
    ],
)
def test_bad_entries_of_dpr(changed: dict, message: str, tmp_path: Path, questions: Any) -> None:
    source = dpr(tmp_path / "nq.json", **changed)
    with pytest.raises(DataError, match=message):
        questions(source)
    dataset, report = questions(source, skip_bad_lines=True)
    assert len(dataset) == 2 and report.bad_line_count == 1 and "bad lines skipped: 1" in str(report)


@pytest.mark.parametrize("start", ["0", -1, [], 1.5])
def test_bad_positions_of_answers(start: Any, tmp_path: Path, questions: Any) -> None:
    question = {"question": "Why?", "answers": [{"text": "x", "answer_start": start}]}
    source = squad(tmp_path / "squad.json", paragraphs=[{"context": "It is x.", "qas": [question]}])
    with pytest.raises(DataError, match="squad.json, entry 1: field 'answer_start'"):
        questions(source, positives="sentence")


@pytest.mark.parametrize("answers", [[5], [None], "seven", {"a": 1}])
def test_bad_answers(answers: Any, tmp_path: Path, questions: Any) -> None:
    with pytest.raises(DataError, match="nq.json, entry 1: field 'answers' must be a list"):
        questions(dpr(tmp_path / "nq.json", answers=answers), positives="sentence")
    if answers != "seven":  # which BEIR takes as one answer
        folder = beir(tmp_path / "beir")
        write_jsonl(folder / "queries.jsonl", [{"_id": "q1", "text": "Why?", "metadata": {"answers": answers}}])
        write_text(folder / "qrels" / "train.tsv", "q1\td1\t1\n")
        with pytest.raises(DataError, match="train.tsv, line 1: .*'answers' must be a list"):
            questions(folder, positives="sentence")


def test_questions_without_text_are_counted_and_truncated_lists_named(tmp_path: Path, questions: Any) -> None:
    source = dpr(tmp_path / "nq.json", question="  ")
    assert [counts["no_query"] for counts in questions(source)[1].languages.values()] == [1]
    source.write_bytes(source.read_bytes()[:-200])
    with pytest.raises(DataError, match="nq.json, entry 3: the file is truncated"):
        questions(source)
    with pytest.raises(DataError, match="nq.json, entry 1: .*no entry of at most 1,000 characters"):
        questions(dpr(source, question="x" * 1_000_000), limits=Limits(line_bytes=1000))
    squad(source, paragraphs=[{"qas": [{"question": "Why?"}]}])
    with pytest.raises(DataError, match="nq.json, entry 1: no field 'context'"):
        questions(source)


def test_bad_triplets(tmp_path: Path, questions: Any) -> None:
    source = triplets(tmp_path / "triples.tsv")
    source.write_text(source.read_text() + "two\tcolumns\n")
    with pytest.raises(DataError, match="triples.tsv, line 3: expected 3 columns.*found 2"):
        questions(source)
    assert questions(source, skip_bad_lines=True)[1].bad_line_count == 1
    ids = triplets(tmp_path / "ids.tsv", ids=True)
    ids.write_text(ids.read_text() + "1\t99\t10\n")
    with pytest.raises(DataError, match="ids.tsv, line 3: there is no passage with the id '99'"):
        questions(ids)
    (tmp_path / "collection.tsv").unlink()
    with pytest.raises(DataError, match="contains ids.*collection.tsv"):
        questions(ids)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"negatives": -1}, "negatives must not be negative, got -1"),
        ({"positives": "word"}, "positives must be 'passage' or 'sentence', got 'word'"),
        ({"context": True}, "context .* needs positives='sentence'"),
        ({"language": "english"}, "unknown language code 'english'"),
    ],
)
def test_bad_options(options: dict, message: str, tmp_path: Path, questions: Any) -> None:
    with pytest.raises(ValueError, match=message):
        questions(triplets(tmp_path / "triples.tsv"), **options)
    with pytest.raises(DataError, match="no sources given"):
        questions([])


ENTRIES = [
    {"text": 'quotes " and \\ and \u00fc \U0001f600 ] } ,', "n": [1, -2.5, 1e30, True, None]},
    {"half": "\ud800", "deep": [[[[{}]]]]},
    "a string",
    [],
    None,
]


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [None, 2])
def test_entries_are_those_of_the_standard_library(
    ascii_only: bool, indent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("st_xlret.data.question_formats._CHARACTERS_AT_A_TIME", 3)
    entries = ENTRIES if ascii_only else [entry for entry in ENTRIES if entry != ENTRIES[1]]
    text = json.dumps(entries, ensure_ascii=ascii_only, indent=indent)
    article = f'{{"version": "1", "more": {{"data": 1}}, "data": {text}, "x": 0}}'
    for content in (text, f"\ufeff \n{text}\n", article):
        assert list(stream_list(io.BytesIO(content.encode()), limit=10_000)) == entries


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "expected a JSON list"),
        ("{}", "no list 'data'"),
        ('{"data": 5}', "no list 'data'"),
        ('{"a": [', "Expecting value"),
        ("[", "Expecting value"),
        ('[{"a": 1},', "Expecting value"),
        ('[{"a": }]', "Expecting value"),
        ('[{"a": "b', "Unterminated"),
        ('[{"a": 1} {"b": 2}]', "expected , or ] after an entry"),
        ('[{"a": 1},, {"b": 2}]', "Expecting value"),
        ('[{"a": 1},]', "Expecting value"),
        ('[{"a": 1}]\n[{"b": 2}]', "expected the end after the list"),
    ],
)
def test_what_is_no_list_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        list(stream_list(io.BytesIO(text.encode()), limit=10_000))


class Endless(io.BytesIO):
    """Gives "x" for ever after its beginning."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(size) or b"x" * 1000


@pytest.mark.parametrize("opening", ['["', '{"'])
def test_entries_over_the_limit_are_not_read_to_their_end(opening: str) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match="1,000 characters"):
        list(stream_list(Endless(opening.encode()), limit=1000))
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_questions_to_exclude_that_are_not_utf8_are_named(tmp_path: Path, questions: Any) -> None:
    excluded = write_bytes(tmp_path / "test.txt", b"good\n\xff\n")
    with pytest.raises(DataError, match="test.txt, line 2: not UTF-8") as caught:
        questions(dpr(tmp_path / "nq.json"), exclude=[excluded])
    assert "skip_bad_lines" not in str(caught.value)  # which does not apply to them
