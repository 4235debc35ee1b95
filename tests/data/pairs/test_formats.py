"""Recognising the format of a file of parallel sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from st_xlret.data import DataError, load_pairs
from st_xlret.data.pairs.formats import recognise
from tests.data.files import write_text
from tests.data.pairs.formats import every_format, moses


def test_every_format_is_recognised(tmp_path: Path) -> None:
    folder = every_format(tmp_path)
    formats = {
        "a.jsonl.gz": "records",
        "deep/verses.jsonl": "verses",
        "a.tmx": "tmx",
        "WikiMatrix.en-fr.tsv.gz": "scored",
        "my-words.en-fr.tsv": "columns",
        "en-fr.txt": "words",
        "X.en-fr.fr": "moses",
    }
    for name, expected in formats.items():
        found = recognise(folder / name)
        assert found is not None and found.format == expected, name
        assert found.languages == (("en", "fr") if expected in ("scored", "columns", "words", "moses") else None)
    assert recognise(folder / "documents.jsonl") is None and recognise(folder / "README.md") is None


def test_first_lines_that_are_bad_do_not_decide(tmp_path: Path) -> None:
    file = write_text(tmp_path / "X.en-fr.tsv.gz", "nonsense\n\nmore\tand\tmore\n1.2\tYes.\tOui.\n")
    found = recognise(file)
    assert found is not None and found.format == "scored"
    broken = write_text(tmp_path / "a.jsonl", "{\n")
    assert recognise(broken) is not None


@pytest.mark.parametrize("given", ["X.en-zh_TW.en", "X.en-zh_TW.zh_TW.gz"])
def test_the_sides_of_moses_files_may_be_compressed_or_not(given: str, tmp_path: Path) -> None:
    moses(tmp_path, {"en": "a", "zh_TW.gz": "b"}, "X.en-zh_TW")
    found = recognise(tmp_path / given)
    assert found is not None and found.other_side is not None
    assert [Path(side).name for side in (found.path, found.other_side)] == ["X.en-zh_TW.en", "X.en-zh_TW.zh_TW.gz"]
    assert found.languages == ("en", "zh-tw")


@pytest.mark.parametrize(
    "name, text",
    [
        ("words.txt", "dog chien\n"),
        ("words.tsv", "dog\tchien\n"),
        ("X.en-fr.tsv", "one column\n"),
        ("X.en-fr.csv", "dog,chien\n"),
        ("a.json", "[]"),
        ("passages.jsonl", '{"_id": 1}'),
    ],
)
def test_a_file_of_no_format_lists_them(name: str, text: str, tmp_path: Path) -> None:
    file = write_text(tmp_path / "in" / name, text)
    for source in (file, file.parent):
        with pytest.raises(DataError) as caught:
            load_pairs(source, cache_dir=tmp_path, show_progress=False)
        assert all(mark in str(caught.value) for mark in (".jsonl", ".tmx", ".tsv", "X.en-fr.en", "verses"))
        assert source.name in str(caught.value)


@pytest.mark.parametrize("name, named", [("my-words.en-xx.tsv", "'xx'"), ("X.en-pt-br.tsv", "'en' and 'pt-br'")])
def test_unknown_and_ambiguous_languages_are_refused_in_folders_too(name: str, named: str, tmp_path: Path) -> None:
    file = write_text(tmp_path / "in" / name, "dog\tcachorro\n")
    for source in (file, file.parent):
        with pytest.raises(DataError, match=named):
            load_pairs(source, cache_dir=tmp_path, show_progress=False)


def test_missing_sources_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gone.tsv"):
        load_pairs(tmp_path / "gone.tsv")
    with pytest.raises(DataError, match="no sources"):
        load_pairs([])
