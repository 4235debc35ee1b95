"""Texts from lines, tables and JSON lines."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from st_xlret.commands.index import Arguments, main, read_entries
from st_xlret.commands.texts import stream_texts
from st_xlret.data import DataError
from st_xlret.data.lines import BadLines


def read_texts(file: str, column: str | None = None) -> list[str]:
    return list(dict.fromkeys(stream_texts(file, column)))


def entries(folder: Path, skip: bool = False) -> list[tuple[str, str]]:
    return list(read_entries(Arguments([str(folder)], "model", "index"), BadLines(skip)))


@pytest.mark.parametrize(
    "name, content, column",
    [
        ("a.txt", "one\n\n two \none\n", None),
        ("a.tsv", "1\tone\n2\ttwo\n3\tone\n", "2"),
        ("a.tsv", "score\ttext\n1\tone\n2\ttwo\n", "text"),
        ("a.csv", 'text,score\n"one",1\ntwo,2\n', "text"),
        ("a.jsonl", '{"text": "one"}\n{"text": "two"}\n', None),
        ("a.jsonl", '{"said": "one"}\n{"said": "two"}\n', "said"),
        ("a.jsonl", '{"sentences": ["one", "two"]}\n{"sentences": ["one"]}\n', None),
        ("a.jsonl", '{"language": "en", "text": "one", "lines": ["no"]}\n{"text": "two"}\n', None),
        ("a.jsonl", '{"sentences": ["one"], "text": ""}\n{"sentences": ["two"], "text": null}\n', None),
        ("a.jsonl", '{"lines": ["one"], "text": "no"}\n{"lines": "two"}\n', "lines"),
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
        ("a.csv", "one\ntw\ro\n", None, "line 2: no row of a table.*new-line"),
        ("a.csv", 'one\n"two\nthree\n', None, "line 2: no row of a table.*unexpected end"),
        ("a.jsonl", '{"text": 3}\n', None, "line 1"),
        ("a.jsonl", '{"sentences": ["one", 3]}\n', None, "line 1.*3"),
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


@pytest.mark.parametrize("name, content", [("a.md", b"good\n\xff\n"), ("a.txt", b"good\n\xff\n")])
def test_documents_to_index_that_are_not_utf8_are_named(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}, line 2: not UTF-8"):
        entries(tmp_path)


def test_paragraphs_of_markdown_are_separated_by_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Head\n\none\ntwo\n \n\nthree\n", encoding="utf-8")
    assert [text for _, text in entries(tmp_path)] == ["# Head", "one\ntwo", "three"]


def test_bad_lines_to_index_are_skipped_where_the_error_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('no JSON\n{"language": "en", "sentences": ["One."]}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"a.jsonl, line 1: .*skip_bad_lines"):
        entries(tmp_path)
    assert entries(tmp_path, skip=True) == [("en", "One.")]


def test_a_folder_without_documents_says_which_formats_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").touch()
    with pytest.raises(DataError, match=rf"{tmp_path}.*\.jsonl, \.txt, \.md"):
        main([str(tmp_path), "--model", "model", "--output", str(tmp_path / "index")])
    assert [path.name for path in tmp_path.iterdir()] == ["a.pdf"]
