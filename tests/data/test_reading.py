"""Lines, records and tables with their numbers; files of folders; kept tables; texts."""

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from st_xlret.data import (
    BadLines,
    Counts,
    DataError,
    kept,
    normalize_text,
    read_dictionary,
    read_jsonl,
    read_lines,
)
from st_xlret.data.beir import read_qrels
from st_xlret.data.cells import has_quoted_cells, read_table
from st_xlret.data.kept import cached_table
from st_xlret.data.sources import find_file
from st_xlret.data.texts import join_sentences, split_sentences
from st_xlret.data.words import fold_text
from st_xlret.folders import PACKED
from tests.data.files import load, pair, questions, read, rows, write_bytes, write_jsonl, write_text


@pytest.mark.parametrize("end", ["", ".gz", ".xz"])
def test_blank_lines_and_a_byte_order_mark_are_no_text(end: str, tmp_path: Path) -> None:
    file = write_bytes(
        tmp_path / f"a.jsonl{end}", b'\xef\xbb\xbf{"a": 1}\n\n  \r\n{"a": "\xc2\x85"}\r\n{}'
    )
    assert list(read_jsonl(file)) == [(1, {"a": 1}), (4, {"a": "\x85"}), (5, {})]
    assert [number for number, _ in read_lines(file)] == [1, 4, 5]
    assert [*read_lines(write_bytes(tmp_path / "b.txt", b"a\rb\nc\r"))] == [(1, "a\rb"), (2, "c")]
    with pytest.raises(DataError, match="c.txt, line 1"):  # line ends of old Macs
        list(read_lines(write_bytes(tmp_path / "c.txt", b"a\rb\r")))


@pytest.mark.parametrize("end", [".gz", ".xz"])
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_what_is_lost_of_a_damaged_file_is_said(end: str, damage: str, tmp_path: Path) -> None:
    file, bad_lines = tmp_path / f"a.txt{end}", BadLines(skip=True)
    data = bytearray(
        write_text(file, "".join(f"{i * i:09d}\n" for i in range(20_000))).read_bytes()
    )
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data if damage == "flipped" else data[:-500])
    with pytest.raises(DataError, match=rf"a\.txt{end}, line \d+"):
        list(read_lines(file))
    assert len(list(read_lines(file, bad_lines))) < 20_000 and len(bad_lines.skipped) == 1


def test_a_quoted_cell_has_several_lines_and_any_length(tmp_path: Path) -> None:
    file = write_text(tmp_path / "a.csv", f'a,b\n"one\n\ntwo",2\n{"x" * 1_000_000},3\n"open\n')
    bad_lines = BadLines(skip=True)
    names, quoted, long = read_table(file, bad_lines)
    assert names == (1, ["a", "b"])
    assert quoted == (4, ["one\n\ntwo", "2"])
    assert len(long[1][0]) == 1_000_000
    assert len(bad_lines.skipped) == 1 and "line 6" in bad_lines.skipped[0]


def test_blank_rows_are_none_and_bad_ones_do_not_take_the_rest_with_them(tmp_path: Path) -> None:
    lines = ["a,b", "", " , ", '"x"y,1', "one\rtwo,2", '"open,3', '"4",5', "last,6"]
    file = write_text(tmp_path / "a.csv", "\r\n".join(lines))
    bad_lines = BadLines(skip=True)
    rows = list(read_table(file, bad_lines))
    assert rows == [(1, ["a", "b"]), (5, ["one two", "2"]), (8, ["last", "6"])]
    assert ["line 4" in line for line in bad_lines.skipped] == [True, False]
    assert "line 7: no row of a table; it begins in line 6" in bad_lines.skipped[1]


QUOTED = {
    "a cell of several lines": 'text\tn\n"one\ntwo"\t1\n',
    "the last cell has several lines": 'n\ttext\n1\t"one\ntwo"\n2\tthree\n',
    "a blank line in a cell": 'n\ttext\n1\t"one\n\ntwo"\n',
    "a tab in a cell": 'text\tn\n"one\ttwo"\t1\n',
    "quotes in a cell": 'text\tn\n"""one"", he said"\t1\n',
    "names in quotes": '"text"\t"n"\n"one"\t1\n',
}
PLAIN = {
    "no quotes": "text\tn\none\t1\n",
    "a quote at the beginning": 'text\tn\n"One", he said.\t1\n',
    "quotes around a text": 'text\tn\n"One."\t1\n',
    "an open quote": 'text\tn\n"One.\t1\nTwo.\t2\n',
    "a quote that another cell closes": 'text\tn\tm\na\t"I went.\tJe suis parti."\n',
    "a quote that another row closes": 'text\tn\n"One.\t1\nTwo.\t2\n\nThree."\t3\n',
    "a column of sentences": 'text\n"One.\nTwo."\n',
    "both": 'text\tn\n"one\ttwo"\t1\n"One", he said.\t2\n',
    "nothing": "",
}


@pytest.mark.parametrize("content", QUOTED.values(), ids=QUOTED)
def test_quotes_around_cells_are_seen(content: str, tmp_path: Path) -> None:
    assert has_quoted_cells(write_text(tmp_path / "a.tsv", content))


@pytest.mark.parametrize("content", PLAIN.values(), ids=PLAIN)
def test_quotes_that_are_text_stay(content: str, tmp_path: Path) -> None:
    assert not has_quoted_cells(write_text(tmp_path / "a.tsv.gz", content))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv"])
def test_text_in_another_encoding_is_refused(name: str, encoding: str, tmp_path: Path) -> None:
    file = write_text(tmp_path / name, '{"text": "A, b."}\n', encoding)
    with pytest.raises(DataError, match=rf"{name}, line 1: .*UTF-16"):
        read(file)


def test_a_kept_table_is_written_once_or_not_at_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, again = Counts(), Counts()
    kept = partial(cached_table, "n", {"n": "int64", "text": "string"}, cache_dir=tmp_path / "new")

    def counted(counts: Counts) -> Iterator[tuple[int, str]]:
        for i in range(100_001):  # of two batches
            counts["en", "rows"] += 1
            yield i, str(i)

    with pytest.raises(ZeroDivisionError):
        kept((1 // i, "") for i in (1, 0))
    assert not list(tmp_path.rglob("*.arrow*/*"))
    table = kept(counted(first), counts=first)
    assert (
        len(table) == 100_001
        and table[100_000] == {"n": 100_000, "text": "100000"}
        and table.cache_files
    )
    assert kept(counted(again), counts=again)["n"][-1] == 100_000
    assert again == first == {("en", "rows"): 100_001} and "100001" in caplog.text


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Dr. Smith went home.", "He slept!", "Did he?", "It costs 3.5 dollars."]),
        ("pt-br", ["O Sr. Silva saiu.", "Voltou tarde."]),
        ("zh-tw", ["你好。", "我們去公園吧！", "你來嗎？"]),
        ("km", ["ខ្ញុំ ទៅផ្ទះ។", "វាដេកលក់។"]),
        ("bo", ["ང་ཁྱིམ་ལ་འགྲོ། །", "ཆར་པ་འབབ།", "གྲང་མོ༎"]),
    ],
)
def test_text_is_split_and_joined(language: str, sentences: list[str]) -> None:
    text = join_sentences(sentences, language)
    assert (" " in sentences[0] or " " not in text) and split_sentences(text, language) == sentences


def test_blank_lines_end_sentences_and_white_space_is_one_space() -> None:
    thai = " ".join(["วันนี้อากาศดีมากจริง", "เราไปสวนสาธารณะกันเถอะ", "คุณจะมาด้วยไหม"] * 5)
    runs = split_sentences(thai, "th")
    assert len(runs) > 1 and " ".join(runs) == thai and all(len(run) >= 60 for run in runs)
    text = "  A line\nthat goes on.\tNext\n \nA title\n\nText. "
    assert split_sentences(text, "en") == ["A line that goes on.", "Next", "A title", "Text."]
    assert split_sentences(" \n\t ", "en") == []


def test_texts_that_are_nearly_equal() -> None:
    texts = {
        "“Hello”, World!": "helloworld",
        "ＡＢＣ１": "abc1",
        "zero\u200bwidth": "zerowidth",
        "की, का।": "कीका",
    }
    assert [normalize_text(text) for text in texts] == list(texts.values())
    assert fold_text("STRASSE") == fold_text("straße") and fold_text("Cafe\u0301") == "café"


class Lines(NamedTuple):
    """A file with good lines, of which one stands before a bad one and one after it."""

    loader: Any
    name: str
    good: list[Any]
    bad: list[Any]


def listing(reader: Any) -> Any:
    """A reader as a loader: its first result is the list of what it gives."""

    def loader(file: Path, skip_bad_lines: bool = False) -> list[Any]:
        return [list(reader(file, BadLines(skip_bad_lines)))]

    return loader


def load_dictionary(file: Path, **options: Any) -> list[Any]:
    return [read_dictionary(file, **options)]


def without(record: dict[str, Any], name: str) -> dict[str, Any]:
    return {field: value for field, value in record.items() if field != name}


PAIR = pair("one", "un")
QUESTION = {"query": "When?", "positive": "At seven."}
BAD_LINES = [
    Lines(
        read,
        "documents.jsonl",
        good=[{"language": "en", "text": "A"}, {"language": "en", "text": "B"}],
        bad=[
            {"language": "en", "sentences": None},
            {"language": "en", "sentences": {"a": 1}},
            {"language": "en", "sentences": ["A.", 3]},
            {"language": "xx1", "sentences": ["A."]},
            r'{"language": "en", "text": "\ud800"}',
            r'{"language": "en", "text": ["\ud800"]}',
        ],
    ),
    Lines(
        load,
        "pairs.jsonl",
        good=[PAIR, {**PAIR, "source": "two"}],
        bad=[
            {**PAIR, "target": None},
            {**PAIR, "target": 7},
            {**PAIR, "source_language": None},
            {**PAIR, "source_language": 7},
            {**PAIR, "source_language": "english"},
            without(PAIR, "target"),
            without(PAIR, "source_language"),
            r'{"source": "a", "target": "\udc00",'
            r' "source_language": "en", "target_language": "fr"}',
        ],
    ),
    Lines(
        listing(read_jsonl),
        "a.jsonl",
        good=['{"a": 1}', "{}"],
        bad=[
            # Half characters here stand for bytes that are no UTF-8.
            "caf\udce9",
            "a\udcc0\udcafb",
            "{",
            "[1]",
            "null",
            "{} {}",
            "[" * 100_000,
            "1" * 10_000,
            '{"a": "\0"}',
        ],
    ),
    Lines(
        load,
        "X.en-fr.tsv",
        good=["one\tun", "two\tdeux"],
        bad=["alone", "two words", "a\tb\tc", "1.2\ta\tb\tc"],
    ),
    Lines(
        load,
        "en-fr.txt",
        good=["one\tun", "two\tdeux"],
        bad=["guinea pig cochon dinde"],
    ),
    Lines(
        questions,
        "questions.jsonl",
        good=[QUESTION, {**QUESTION, "query": "Who?"}],
        bad=[
            {**QUESTION, "query": None},
            {**QUESTION, "positive": 3},
            {**QUESTION, "title": 3},
            {**QUESTION, "negatives": [3]},
            {**QUESTION, "answers": [None]},
            {**QUESTION, "answer_start": "3"},
            {**QUESTION, "title": 0},
            {**QUESTION, "answers": {"text": ["A"], "answer_start": [0]}},
            {**QUESTION, "negatives": {"0": "A"}},
            {**QUESTION, "Query": "Who?"},
            {**QUESTION, "language": "english"},
        ],
    ),
    Lines(
        load_dictionary,
        "en-de.tsv",
        good=["cat\tKatze", "sun\tSonne"],
        bad=["dog", "guinea pig Meerschweinchen", "dog\tHund\tn", "dog\t ", "dog\tH\ufffdnd"],
    ),
    Lines(
        listing(read_qrels),
        "q.tsv",
        good=["q1 0 d1 1", "q2\td1\t1"],
        bad=["q1\td2\tmuch", "q1\td2", "q1\td1\t2", "q 0 d 1 1"],
    ),
]
EACH_BAD_LINE = [(lines, bad) for lines in BAD_LINES for bad in lines.bad]


@pytest.mark.parametrize(("lines", "bad"), EACH_BAD_LINE)
def test_a_bad_line_is_named_or_skipped(lines: Lines, bad: Any, tmp_path: Path) -> None:
    first, second = lines.good
    file = write_jsonl(tmp_path / "in" / lines.name, [first, bad, second])
    with pytest.raises(DataError, match=f"{lines.name}, line 2"):
        lines.loader(file)
    assert len(lines.loader(file, skip_bad_lines=True)[0]) == 2


def test_excluded_texts_are_left_out(tmp_path: Path) -> None:
    tests = [
        write_text(tmp_path / "a.eng", "HELLO world\n\n"),
        write_text(tmp_path / "b.txt.gz", "au revoir\nHi\n"),
    ]
    texts = ["Hello, world!", "Au revoir !", "Yes."]
    alone, _ = read([{"language": "en", "sentences": texts}], exclude=tests[0])
    assert alone["sentence"][:] == texts[1:]
    documents = [{"language": "en", "sentences": part} for part in (texts[:2], [*texts, "No."])]
    table, counts = read(documents, exclude=tests)
    assert (
        rows(table) == [("Yes.", "en", 0, 0), ("No.", "en", 0, 1)] and counts["en", "excluded"] == 4
    )
    for side in ("source", "target"):
        table, counts = load([{**PAIR, side: text} for text in texts], exclude=tests)
        assert table[side][:] == ["Yes."] and counts["en>fr", "excluded"] == 2
    for side in QUESTION:
        file = write_jsonl(tmp_path / f"{side}.jsonl", [{**QUESTION, side: text} for text in texts])
        table, counts = questions(file, exclude=tests)
        assert table[side][:] == ["Yes."] and counts[str(file), "excluded"] == 2


@pytest.mark.parametrize("name", ["a.jsonl", "a.json.gz", "a.tsv", "a.csv"])
def test_files_with_fields_leave_out_no_texts(name: str, tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / name, [PAIR])
    with pytest.raises(DataError, match=f"{name}: .*one a line"):
        load([PAIR], exclude=[file])


@pytest.mark.parametrize("end", ["", *PACKED])
def test_a_file_of_a_folder_is_found_whatever_compresses_it(end: str, tmp_path: Path) -> None:
    file = write_text(tmp_path / f"a.tsv{end}", "x")
    assert find_file(tmp_path, "b.tsv", "a.tsv") == file
    assert [*read_lines(find_file(tmp_path, "a.tsv"))] == [(1, "x")]
    with pytest.raises(FileNotFoundError, match="c.tsv, plain or compressed"):
        find_file(tmp_path, "c.tsv")


@pytest.mark.parametrize("loader", [read, load, questions])
def test_sources_that_are_missing_or_empty_are_named(loader: Any, tmp_path: Path) -> None:
    missing, other = tmp_path / "gone.jsonl", write_text(tmp_path / "empty" / "notes", "x").parent
    empty = write_jsonl(tmp_path / "a.jsonl", [])
    for source, named in (
        (missing, "gone.jsonl"),
        (other, "empty"),
        (empty, "left"),
        ([], "left"),
        (" ", "no name"),
    ):
        with pytest.raises(DataError, match=named):
            loader(source)


def test_a_changed_reader_reads_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept.cache_key(["a"])
    assert kept.cache_key(["a"]) == before
    monkeypatch.setattr(kept, "_readers", lambda: "of another state")
    assert kept.cache_key(["a"]) != before
