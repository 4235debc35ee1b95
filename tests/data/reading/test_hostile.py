"""Readers name a hostile line by file and number, and skip it, and nothing else, where they are told to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from st_xlret.data import DataError, LoadReport, PairOptions, PairReport, load_documents, load_pairs
from st_xlret.data.reading.jsonl import BadLines
from st_xlret.data.retrieval.beir import read_qrels, read_texts
from tests.data.files import write_bytes

BYTES = {
    "latin-1": "café".encode("latin-1"),
    "utf-16": "café".encode("utf-16"),
    "a lone continuation byte": b"a\x80b",
    "an overlong slash": b"a\xc0\xafb",
    "an encoded surrogate": b"a\xed\xa0\x80b",
    "half a character": "一".encode()[:2],
    "beyond unicode": b"\xf5\x80\x80\x80",
}
JSON = {
    "empty object": "{}",
    "a list": '["a"]',
    "a number": "5",
    "a string": '"a"',
    "null": "null",
    "cut off": '{"language": "en", ',
    "two objects": "{} {}",
    "a trailing comma": '{"language": "en",}',
    "single quotes": "{'language': 'en'}",
    "a comment": '{"language": "en"} // why',
    "deep lists": '{"language": ' + "[" * 100_000,
    "deep objects": '{"a":' * 100_000,
    "an endless number": '{"language": ' + "1" * 10_000 + "}",
    "a raw tab in a string": '{"language": "e\tn"}',
}
DOCUMENTS = {
    "no language": {"sentences": ["a"]},
    "null as language": {"language": None, "sentences": ["a"]},
    "a number as language": {"language": 5, "sentences": ["a"]},
    "a list as language": {"language": ["en"], "sentences": ["a"]},
    "an unknown language": {"language": "xx1", "sentences": ["a"]},
    "a path as language": {"language": "../../en", "sentences": ["a"]},
    "a string as sentences": {"language": "en", "sentences": "a"},
    "an object as sentences": {"language": "en", "sentences": {"a": 1}},
    "null among sentences": {"language": "en", "sentences": ["a", None]},
    "a number among sentences": {"language": "en", "sentences": ["a", 5]},
    "a list among sentences": {"language": "en", "sentences": [["a"]]},
    "neither text nor sentences": {"language": "en"},
    "a number as text": {"language": "en", "text": 5},
    "half a surrogate pair": {"language": "en", "sentences": ["a\ud800b"]},
    "half a surrogate pair in a text": {"language": "en", "text": "a\udfffb"},
}
PAIR = {"source_language": "en", "target_language": "fr", "source": "a", "target": "b"}
PAIRS: dict[str, dict[str, Any]] = {
    **{f"no {name}": {k: v for k, v in PAIR.items() if k != name} for name in PAIR},
    **{f"null as {name}": PAIR | {name: None} for name in PAIR},
    **{f"a number as {name}": PAIR | {name: 7} for name in PAIR},
    "an unknown language": PAIR | {"target_language": "xx1"},
    "half a surrogate pair": PAIR | {"target": "\udc00"},
}
COLUMNS = {"one column": "alone", "three columns": "a\tb\tc", "an empty column between two": "a\t\tb"}
QRELS = {
    "one column": "q1",
    "five columns": "q1\t0\td1\t1\tx",
    "a word as judgement": "q1\td1\tyes",
    "a fraction as judgement": "q1\td1\t0.5",
    "an endless judgement": "q1\td1\t" + "1" * 10_000,
}
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
    rows = load_documents(file, skip_bad_lines=skip, report=report, cache_dir=cache, show_progress=False)
    return len(rows), report.bad_line_count, [line[:2] for line in report.bad_lines]


def pairs(file: Path, skip: bool, cache: Path) -> tuple[int, int, list[tuple[str, int]]]:
    report = PairReport()
    rows = load_pairs(file, PairOptions(skip_bad_lines=skip), report=report, cache_dir=cache, show_progress=False)
    return len(rows), report.bad_line_count, [line[:2] for line in report.bad_lines]


def with_bad_lines(read: Callable[[Path, BadLines], int]) -> Read:
    def run(file: Path, skip: bool, cache: Path) -> tuple[int, int, list[tuple[str, int]]]:
        bad_lines = BadLines(skip=skip)
        return read(file, bad_lines), bad_lines.count, [line[:2] for line in bad_lines.examples]

    return run


# Name of the file, how it is read, two good lines, and the faults.
READERS: dict[str, tuple[str, Read, list[bytes], dict[str, bytes]]] = {
    "documents": (
        "d.jsonl",
        documents,
        [json.dumps({"language": "en", "sentences": [text]}).encode() for text in ("one", "two")],
        BYTES | encoded(JSON) | as_json(DOCUMENTS),
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
        with_bad_lines(lambda file, bad: len(list(read_texts(file, on_bad_line=bad)))),
        [json.dumps({"_id": text, "text": text}).encode() for text in ("one", "two")],
        BYTES | encoded(JSON) | as_json(TEXTS),
    ),
    "judgements": (
        "train.tsv",
        with_bad_lines(lambda file, bad: len(read_qrels(file, on_bad_line=bad))),
        [b"qa\td1\t1", b"qb\td2\t1"],
        BYTES | encoded(QRELS),
    ),
}


def cases() -> list[Any]:
    return [
        pytest.param(reader, fault, id=f"{reader}: {fault}")
        for reader, (*_, faults) in READERS.items()
        for fault in faults
    ]


@pytest.mark.parametrize(("reader", "fault"), cases())
def test_a_hostile_line_is_named_or_skipped(reader: str, fault: str, tmp_path: Path) -> None:
    name, read, good, faults = READERS[reader]
    file = write_bytes(tmp_path / "in" / name, b"\n".join([good[0], faults[fault], good[1], b""]))
    with pytest.raises(DataError, match=rf"{name}, line 2: "):
        read(file, False, tmp_path / "cache")
    rows, bad, named = read(file, True, tmp_path / "cache")
    assert (rows, bad, named) == (2, 1, [(str(file), 2)])
    # Nothing half-written stays in the cache.
    assert not list((tmp_path / "cache").rglob(".*.tmp*"))
