"""Texts from lines, tables and JSON lines."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from st_xlret.commands.texts import read_texts
from st_xlret.data import DataError


@pytest.mark.parametrize(
    "name, content, column",
    [
        ("a.txt", "one\n\n two \none\n", None),
        ("a.tsv", "1\tone\n2\ttwo\n3\tone\n", "2"),
        ("a.tsv", "score\ttext\n1\tone\n2\ttwo\n", "text"),
        ("a.csv", 'text,score\n"one",1\ntwo,2\n', "text"),
        ("a.jsonl", '{"text": "one"}\n{"text": "two"}\n', None),
        ("a.jsonl", '{"said": "one"}\n{"said": "two"}\n', "said"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_formats(tmp_path: Path, name: str, content: str, column: str | None, packed: bool) -> None:
    file = tmp_path / (name + ".gz" * packed)
    file.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    assert read_texts(str(file), column) == ["one", "two"]


def test_quotes_of_tab_separated_texts_stay(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_text('"Yes", he said.\t1\nno\t2\n')
    assert read_texts(str(file)) == ['"Yes", he said.', "no"]


@pytest.mark.parametrize(
    "name, content, column, named",
    [
        ("a.txt", "\n", None, "no text"),
        ("a.txt", "one\n", "2", "column"),
        ("a.tsv", "one\n", "2", "line 1.*column 2"),
        ("a.csv", "text,score\n", "title", "'title'.*text, score"),
        ("a.jsonl", '{"text": 3}\n', None, "line 1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, content: str, column: str | None, named: str) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(DataError, match=rf"{name}(.|\n)*{named}|{named}(.|\n)*{name}"):
        read_texts(str(file), column)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(DataError, match="missing.txt"):
        read_texts("missing.txt")
