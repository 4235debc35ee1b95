"""What each format of parallel sentences may contain, and what is wrong with a file."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from st_xlret.data import DataError, PairOptions, PairReport, load_pairs
from st_xlret.data.pairs.tmx import read_units
from tests.data.files import write_bytes, write_text
from tests.data.pairs.formats import moses, tmx, unit


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(files: Any, **options: Any) -> tuple[Dataset, PairReport]:
        report = PairReport()
        where = {"cache_dir": tmp_path / "cache", "show_progress": False}
        return load_pairs(files, PairOptions(**options), report=report, **where), report

    return read


@pytest.mark.parametrize(
    "name, line, message",
    [
        ("X.en-fr.tsv", "Yes.", "line 2.*2 columns.*found 1"),
        ("X.en-fr.tsv", "Yes.\tOui.\tSi.", "line 2.*2 columns.*found 3"),
        ("X.en-fr.txt", "Yes.", "line 2.*2 columns.*found 1"),
    ],
)
def test_bad_lines_of_two_columns(name: str, line: str, message: str, tmp_path: Path, read: Any) -> None:
    file = write_text(tmp_path / name, f"No.\tNon.\n{line}\n")
    with pytest.raises(DataError, match=message):
        read(file)
    pairs, report = read(file, skip_bad_lines=True)
    assert len(pairs) == 1 and report.bad_line_count == 1


@pytest.mark.parametrize(
    "line, message", [("1.2\tYes.", "line 2.*score, source and target"), ("high\tYes.\tOui.", "line 2.*'high'")]
)
def test_bad_lines_of_mined_pairs(line: str, message: str, tmp_path: Path, read: Any) -> None:
    file = write_text(tmp_path / "WikiMatrix.en-fr.tsv", f"1.2\tNo.\tNon.\n{line}\n")
    with pytest.raises(DataError, match=message):
        read(file)
    pairs, report = read(file, skip_bad_lines=True)
    assert len(pairs) == 1 and report.bad_line_count == 1


def test_moses_files_are_read_side_by_side(tmp_path: Path, read: Any) -> None:
    file = moses(tmp_path, {"en": "Yes.\n\nNo.\nOK\n", "fr": "Oui.\nVide\nNon.\nOK\n"})
    pairs, report = read(file)
    # The blank line keeps its place.
    assert pairs["target"][:] == ["Oui.", "Non."]
    assert (report.languages["en>fr"].empty, report.languages["en>fr"].identical) == (1, 1)
    # Either of the two, or both, name the pair.
    assert read(tmp_path / "X.en-fr.fr")[0].to_list() == pairs.to_list()
    assert read([file, tmp_path / "X.en-fr.fr"])[0].to_list() == pairs.to_list()
    for side in ("en", "fr"):
        text = (tmp_path / f"X.en-fr.{side}").read_bytes()
        write_bytes(tmp_path / f"Y.en-fr.{side}.gz", text)
    assert read(tmp_path / "Y.en-fr.en.gz")[0].to_list() == pairs.to_list()


@pytest.mark.parametrize("french, counts", [("Oui.\n", "2 lines.*1"), ("Oui.\nNon.\nSi.\n\nx\n", "2 lines.*5")])
def test_moses_files_of_different_length(french: str, counts: str, tmp_path: Path, read: Any) -> None:
    file = moses(tmp_path, {"en": "Yes.\nNo.\n", "fr": french})
    for skip in (False, True):
        with pytest.raises(DataError, match=rf"not aligned: .*X.en-fr.en has {counts}"):
            read(file, skip_bad_lines=skip)


def test_moses_without_its_other_side(tmp_path: Path, read: Any) -> None:
    with pytest.raises(DataError, match=r"X\.en-fr\.en.*X\.en-fr\.fr"):
        read(moses(tmp_path, {"en": "Yes.\n"}))


@pytest.mark.parametrize("name", ["a.tmx", "a.tmx.gz"])
def test_tmx(name: str, tmp_path: Path, read: Any) -> None:
    body = [unit(en="Yes &amp; no.", fr="Oui\n et non."), unit(en="Hi", de="Hallo", fr="Salut"), unit(en="Alone")]
    body.append(unit(en='A <bpt i="1">&lt;b&gt;</bpt><hi>bold</hi><ept i="1">&lt;/b&gt;</ept> word', fr="mot gras"))
    pairs, report = read(tmx(tmp_path / name, "\n".join(body)))
    assert [tuple(row.values()) for row in pairs.to_list()] == [
        ("Yes & no.", "Oui et non.", "en", "fr"),
        ("Hi", "Hallo", "en", "de"),
        ("Hi", "Salut", "en", "fr"),
        ("A bold word", "mot gras", "en", "fr"),
    ]
    filtered, report = read(tmp_path / name, languages=["en", "fr"])
    assert len(filtered) == 3 and report.other_languages == {"en>de": 1}


def test_tmx_variants_and_empty_sides(tmp_path: Path, read: Any) -> None:
    file = tmx(tmp_path / "a.tmx", unit(en_US="Yes.", pt_BR="Sim.") + unit(en="", pt="x") + unit(en="OK", pt="OK"))
    pairs, report = read(file, languages=["en", "pt"])
    assert pairs["target_language"][:] == ["pt"]
    assert (report.languages["en>pt"].empty, report.languages["en>pt"].identical) == (1, 1)


def test_bad_tmx(tmp_path: Path, read: Any) -> None:
    good = unit(en="Yes.", fr="Oui.")
    file = tmx(tmp_path / "a.tmx", good + "\n<tu><tuv><seg>x</seg></tuv></tu>\n" + unit(en="No.", fr="Non."))
    with pytest.raises(DataError, match="a.tmx, entry 2: a <tuv> without xml:lang"):
        read(file)
    pairs, report = read(file, skip_bad_lines=True)
    assert len(pairs) == 2 and report.bad_line_count == 1
    file.write_text(file.read_text()[:-40])
    with pytest.raises(DataError, match="entry 2"):
        read(file)
    broken = tmx(tmp_path / "b.tmx", good + "\n<tu>")
    with pytest.raises(DataError, match="b.tmx, line 6: the file is truncated or is not XML"):
        read(broken)
    assert len(read(broken, skip_bad_lines=True)[0]) == 1


def test_a_large_tmx_is_streamed(tmp_path: Path, read: Any) -> None:
    file = tmx(
        tmp_path / "a.tmx", "\n".join(unit(en=f"number {i} " + "x" * 400, fr=f"nombre {i}") for i in range(4000))
    )
    tracemalloc.start()
    count = sum(1 for _ in read_units(file))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 4000 and peak < file.stat().st_size / 4
