"""Hostile lines are named or skipped; too long lines are bad, too long sentences are cut, counted and named."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from st_xlret.data import DataError, LoadReport, PairOptions, PairReport, load_documents, load_pairs
from st_xlret.data.beir import read_texts
from st_xlret.data.lines import BadLines, Limits, read_jsonl, read_lines
from tests.data.files import tmx, unit, write_bytes, write_jsonl, write_text

BYTES = {
    "latin-1": "café".encode("latin-1"),
    "an overlong slash": b"a\xc0\xafb",
    "an encoded surrogate": b"a\xed\xa0\x80b",
}
JSON = {
    "a list": '["a"]',
    "null": "null",
    "two objects": "{} {}",
    "deep lists": '{"language": ' + "[" * 100_000,
    "an endless number": '{"language": ' + "1" * 10_000 + "}",
}
PAIR = {"source_language": "en", "target_language": "fr", "source": "a", "target": "b"}
PAIRS: dict[str, dict[str, Any]] = {
    **{f"null as {name}": PAIR | {name: None} for name in PAIR},
    **{f"a number as {name}": PAIR | {name: 7} for name in PAIR},
    "half a surrogate pair": PAIR | {"target": "\udc00"},
}
COLUMNS = {"one column": "alone", "three columns": "a\tb\tc", "an empty column between two": "a\t\tb"}
TEXTS: dict[str, dict[str, Any]] = {
    "no id": {"text": "a"},
    "null as id": {"_id": None, "text": "a"},
    "a list as id": {"_id": [1], "text": "a"},
    "no text": {"_id": "x"},
    "null as text": {"_id": "x", "text": None},
    "a number as title": {"_id": "x", "text": "a", "title": 5},
}


def as_json(cases: dict[str, dict[str, Any]]) -> dict[str, bytes]:
    return {name: json.dumps(record).encode() for name, record in cases.items()}


def encoded(cases: dict[str, str]) -> dict[str, bytes]:
    return {name: line.encode() for name, line in cases.items()}


Read = Callable[[Path, bool, Path], tuple[int, int, list[tuple[str, int]]]]


def documents(file: Path, skip: bool, cache: Path) -> tuple[int, int, list[tuple[str, int]]]:
    report = LoadReport()
    rows = load_documents(file, skip_bad_lines=skip, report=report, cache_dir=cache, show_progress_bar=False)
    return len(rows), report.bad_line_count, [line[:2] for line in report.bad_lines]


def pairs(file: Path, skip: bool, cache: Path) -> tuple[int, int, list[tuple[str, int]]]:
    report = PairReport()
    rows = load_pairs(file, PairOptions(skip_bad_lines=skip), report=report, cache_dir=cache, show_progress_bar=False)
    return len(rows), report.bad_line_count, [line[:2] for line in report.bad_lines]


def with_bad_lines(read: Callable[[Path, BadLines], int]) -> Read:
    def run(file: Path, skip: bool, cache: Path) -> tuple[int, int, list[tuple[str, int]]]:
        bad_lines = BadLines(skip=skip)
        return read(file, bad_lines), bad_lines.bad_line_count, [line[:2] for line in bad_lines.bad_lines]

    return run


# Name of the file, how it is read, two good lines, and the faults.
READERS: dict[str, tuple[str, Read, list[bytes], dict[str, bytes]]] = {
    "documents": (
        "d.jsonl",
        documents,
        [json.dumps({"language": "en", "sentences": [text]}).encode() for text in ("one", "two")],
        BYTES | encoded(JSON),
    ),
    "pairs": (
        "p.jsonl",
        pairs,
        [json.dumps(PAIR | {"source": text}).encode() for text in ("one", "two")],
        BYTES | encoded(JSON) | as_json(PAIRS),
    ),
    "two columns": ("x.en-fr.tsv", pairs, [b"one\tun", b"two\tdeux"], BYTES | encoded(COLUMNS)),
    "corpus": (
        "corpus.jsonl",
        with_bad_lines(lambda file, bad: len(list(read_texts(file, bad)))),
        [json.dumps({"_id": text, "text": text}).encode() for text in ("one", "two")],
        BYTES | encoded(JSON) | as_json(TEXTS),
    ),
}


@pytest.mark.parametrize(("reader", "fault"), [(reader, fault) for reader in READERS for fault in READERS[reader][3]])
def test_a_hostile_line_is_named_or_skipped(reader: str, fault: str, tmp_path: Path) -> None:
    name, read, good, faults = READERS[reader]
    file = write_bytes(tmp_path / "in" / name, b"\n".join([good[0], faults[fault], good[1], b""]))
    with pytest.raises(DataError, match=rf"{name}, line 2: "):
        read(file, False, tmp_path / "cache")
    rows, bad, named = read(file, True, tmp_path / "cache")
    assert (rows, bad, named) == (2, 1, [(str(file), 2)])


LIMITS = Limits(sentence_characters=20)
LONG = "word " * 10


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_line_over_the_limit_is_a_bad_line(name: str, end: str, tmp_path: Path) -> None:
    file = write_text(tmp_path / name, f"1234567890\n{'x' * 1000}\nthird\n{'y' * 12}{end}")
    bad_lines = BadLines(skip=True, limits=Limits(line_bytes=11))
    assert list(read_lines(file, bad_lines)) == [(1, "1234567890"), (3, "third")]
    assert [line for _, line, _ in bad_lines.bad_lines] == [2, 4]
    with pytest.raises(DataError, match=r"line 2: the line is longer than 11 bytes$"):
        list(read_lines(file, BadLines(limits=Limits(line_bytes=11))))


def test_long_sentences_of_documents_are_cut(tmp_path: Path, read: Any) -> None:
    records = [{"language": "en", "sentences": ["short", LONG]}, {"language": "en", "text": LONG}]
    file = write_jsonl(tmp_path / "d.jsonl", records)
    for reused in (False, True):
        found, report = read(file, limits=LIMITS)
        assert found["sentence"][:] == ["short", "word word word word", "word word word word"]
        assert report.cut_sentences == [(str(file), 1, 49), (str(file), 2, 49)] and report.reused is reused
        assert report.cut_sentence_count == 2 and f"{file}, line 1: 49 characters" in str(report)
    assert read(file)[0]["sentence"][1] == LONG.strip()


@pytest.mark.parametrize("name", ["lines", "verses", "tmx"])
def test_long_sentences_of_pairs_are_cut(name: str, tmp_path: Path, load: Any) -> None:
    verses = [
        {"language": code, "sentences": texts, "verses": [1, 2]}
        for code, texts in (("en", ["a", "c"]), ("fr", ["b", LONG]))
    ]
    files = {
        "lines": write_text(tmp_path / "X.en-fr.tsv", f"a\tb\nc\t{LONG}\n"),
        "verses": write_jsonl(tmp_path / "v.jsonl", verses),
        "tmx": tmx(tmp_path / "a.tmx", unit(en="a", fr="b") + unit(en="c", fr=LONG.strip())),
    }
    pairs, report = load(files[name], limits=LIMITS)
    assert pairs["target"][:] == ["b", "word word word word"]
    assert report.cut_sentences == [(str(files[name]), 2, 49)]


@pytest.mark.parametrize("word", ["line_bytes", "bytes=5", "line_bytes=-1", "line_bytes=0", "line_bytes=1e6", "=5", ""])
def test_words_that_are_no_limits_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match=f"limits: '{word}' is not|line_bytes must be at least 1, got 0"):
        Limits.parse([word])


@pytest.mark.parametrize("load", [load_documents, load_pairs])
def test_files_without_content_are_named(load: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.jsonl' is empty"):
        load(write_text(tmp_path / "a.jsonl", ""), cache_dir=tmp_path, show_progress_bar=False)
    record = {"language": "en", "sentences": []} | {"source": "", "target": "", "source_language": "en"}
    file = write_jsonl(tmp_path / "b.jsonl", [{**record, "target_language": "fr"}])
    with pytest.raises(DataError, match=rf"left.* in {file}"):
        load(file, cache_dir=tmp_path, show_progress_bar=False)


def test_blank_lines_and_byte_order_mark_do_not_count_as_records(tmp_path: Path) -> None:
    file = write_bytes(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"text": "one"}\n\n  \r\n{"text": "two"}\n{}\n')
    assert [number for number, _ in read_jsonl(file)] == [1, 4, 5]


def test_a_line_over_the_limit_is_not_held_in_memory(tmp_path: Path) -> None:
    file = write_text(tmp_path / "a.txt", "x" * 20_000_000 + "\nlast\n")
    tracemalloc.start()
    assert list(read_lines(file, BadLines(skip=True, limits=Limits(line_bytes=1 << 20)))) == [(2, "last")]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000
