"""Parallel sentences as they are published: WikiMatrix, Moses, TMX."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from st_xlret.data import DataError
from st_xlret.data.pairs.opus import languages_in_name, pairs_from_moses, pairs_from_wikimatrix
from st_xlret.data.pairs.tmx import pairs_from_tmx, read_units


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def run(reader: Any, files: Any, **options: Any) -> Any:
        return reader(files, cache_dir=tmp_path / "cache", show_progress=False, **options)

    return run


def wikimatrix(folder: Path, lines: list[str], name: str = "WikiMatrix.en-fr.tsv.gz") -> Path:
    text = "".join(line + "\n" for line in lines).encode()
    (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder / name


def test_wikimatrix_keeps_what_is_above_the_threshold(tmp_path: Path, read: Any) -> None:
    file = wikimatrix(tmp_path, ["1.2\tYes.\tOui.", "1.05\tNo.\tNon.", "1.03\tCat.\tChien.", "1.1\tOK\tOK", "1.1\t\tx"])
    pairs, report = read(pairs_from_wikimatrix, file)
    assert pairs["target"][:] == ["Oui.", "Non."] and set(pairs["target_language"]) == {"fr"}
    assert report.other_languages == {"en>fr below the threshold": 1}
    counts = report.languages["en>fr"]
    assert (counts.pairs, counts.identical, counts.empty) == (2, 1, 1)
    assert len(read(pairs_from_wikimatrix, file, threshold=1.1)[0]) == 1
    assert len(read(pairs_from_wikimatrix, file, per_language=1)[0]) == 1
    assert len(read(pairs_from_wikimatrix, file, exclude={"yes"})[0]) == 1


def test_wikimatrix_of_several_languages(tmp_path: Path, read: Any) -> None:
    files = [wikimatrix(tmp_path, ["1.2\tYes.\tOui."]), wikimatrix(tmp_path, ["1.2\tHai\tKyllä"], "X.ja-fi.tsv")]
    pairs, _ = read(pairs_from_wikimatrix, files)
    assert sorted(zip(pairs["source_language"], pairs["target_language"], strict=True)) == [("en", "fr"), ("ja", "fi")]
    pairs, report = read(pairs_from_wikimatrix, files, languages=["en", "fr"])
    assert len(pairs) == 1 and report.other_languages == {"ja>fi": 1}


@pytest.mark.parametrize(
    "line, message",
    [
        ("1.2\tYes.", "line 2: expected score, source and target"),
        ("high\tYes.\tOui.", "line 2: expected a score in the first column, found 'high'"),
    ],
)
def test_bad_lines_of_wikimatrix(line: str, message: str, tmp_path: Path, read: Any) -> None:
    file = wikimatrix(tmp_path, ["1.2\tYes.\tOui.", line])
    with pytest.raises(DataError, match=message):
        read(pairs_from_wikimatrix, file)
    pairs, report = read(pairs_from_wikimatrix, file, skip_bad_lines=True)
    assert len(pairs) == 1 and report.bad_line_count == 1


def test_names_without_languages(tmp_path: Path, read: Any) -> None:
    with pytest.raises(DataError, match="does not name its languages"):
        read(pairs_from_wikimatrix, wikimatrix(tmp_path, ["1.2\ta\tb"], "mined.tsv"))
    assert languages_in_name("OpenSubtitles.en-zh_TW.tsv") == ("en", "zh-tw")
    with pytest.raises(DataError, match="as WikiMatrix.en-fr.tsv.gz does"):
        languages_in_name("xx-yyyy.tsv")


def moses(folder: Path, sides: dict[str, str], name: str = "X.en-fr") -> Path:
    for language, text in sides.items():
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    return folder / f"{name}.{next(iter(sides))}"


def test_moses_files_are_read_side_by_side(tmp_path: Path, read: Any) -> None:
    file = moses(tmp_path, {"en": "Yes.\n\nNo.\nOK\n", "fr": "Oui.\nVide\nNon.\nOK\n"})
    pairs, report = read(pairs_from_moses, file)
    # The blank line keeps its place.
    assert pairs["target"][:] == ["Oui.", "Non."]
    assert (report.languages["en>fr"].empty, report.languages["en>fr"].identical) == (1, 1)
    # Either of the two, or both, name the pair.
    assert read(pairs_from_moses, tmp_path / "X.en-fr.fr")[0].to_list() == pairs.to_list()
    assert read(pairs_from_moses, [file, tmp_path / "X.en-fr.fr"])[0].to_list() == pairs.to_list()
    for side in ("en", "fr"):
        text = (tmp_path / f"X.en-fr.{side}").read_bytes()
        (tmp_path / f"Y.en-fr.{side}.gz").write_bytes(gzip.compress(text))
    assert read(pairs_from_moses, tmp_path / "Y.en-fr.en.gz")[0].to_list() == pairs.to_list()


@pytest.mark.parametrize("french, counts", [("Oui.\n", "2 lines.*1"), ("Oui.\nNon.\nSi.\n\nx\n", "2 lines.*5")])
def test_moses_files_of_different_length(french: str, counts: str, tmp_path: Path, read: Any) -> None:
    file = moses(tmp_path, {"en": "Yes.\nNo.\n", "fr": french})
    for skip in (False, True):
        with pytest.raises(DataError, match=rf"not aligned: .*X.en-fr.en has {counts}"):
            read(pairs_from_moses, file, skip_bad_lines=skip)


def test_moses_without_its_other_side(tmp_path: Path, read: Any) -> None:
    with pytest.raises(DataError, match=r"X.en-fr.fr' does not exist: Moses format has a file for each side"):
        read(pairs_from_moses, moses(tmp_path, {"en": "Yes.\n"}))


def tmx(folder: Path, body: str, name: str = "a.tmx") -> Path:
    text = f'<?xml version="1.0"?>\n<tmx version="1.4"><header srclang="en"/>\n<body>\n{body}\n</body></tmx>'
    (folder / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return folder / name


def unit(**sides: str) -> str:
    variants = "".join(f'<tuv xml:lang="{k.replace("_", "-")}"><seg>{v}</seg></tuv>' for k, v in sides.items())
    return f"<tu>{variants}</tu>"


@pytest.mark.parametrize("name", ["a.tmx", "a.tmx.gz"])
def test_tmx(name: str, tmp_path: Path, read: Any) -> None:
    body = [unit(en="Yes &amp; no.", fr="Oui\n et non."), unit(en="Hi", de="Hallo", fr="Salut"), unit(en="Alone")]
    body.append(unit(en='A <bpt i="1">&lt;b&gt;</bpt><hi>bold</hi><ept i="1">&lt;/b&gt;</ept> word', fr="mot gras"))
    pairs, report = read(pairs_from_tmx, tmx(tmp_path, "\n".join(body), name))
    assert [tuple(row.values()) for row in pairs.to_list()] == [
        ("Yes & no.", "Oui et non.", "en", "fr"),
        ("Hi", "Hallo", "en", "de"),
        ("Hi", "Salut", "en", "fr"),
        ("A bold word", "mot gras", "en", "fr"),
    ]
    filtered, report = read(pairs_from_tmx, tmp_path / name, languages=["en", "fr"])
    assert len(filtered) == 3 and report.other_languages == {"en>de": 1}


def test_tmx_variants_and_empty_sides(tmp_path: Path, read: Any) -> None:
    file = tmx(tmp_path, unit(en_US="Yes.", pt_BR="Sim.") + unit(en="", pt="x") + unit(en="OK", pt="OK"))
    pairs, report = read(pairs_from_tmx, file, languages=["en", "pt"])
    assert pairs["target_language"][:] == ["pt"]
    assert (report.languages["en>pt"].empty, report.languages["en>pt"].identical) == (1, 1)


def test_bad_tmx(tmp_path: Path, read: Any) -> None:
    good = unit(en="Yes.", fr="Oui.")
    file = tmx(tmp_path, good + "\n<tu><tuv><seg>x</seg></tuv></tu>\n" + unit(en="No.", fr="Non."))
    with pytest.raises(DataError, match="a.tmx, entry 2: a <tuv> without xml:lang"):
        read(pairs_from_tmx, file)
    pairs, report = read(pairs_from_tmx, file, skip_bad_lines=True)
    assert len(pairs) == 2 and report.bad_line_count == 1
    file.write_text(file.read_text()[:-40])
    with pytest.raises(DataError, match="entry 2"):
        read(pairs_from_tmx, file)
    broken = tmx(tmp_path, good + "\n<tu>", "b.tmx")
    with pytest.raises(DataError, match="b.tmx, line 6: the file is truncated or no XML from here on"):
        read(pairs_from_tmx, broken)
    assert len(read(pairs_from_tmx, broken, skip_bad_lines=True)[0]) == 1


def test_a_large_tmx_is_streamed(tmp_path: Path, read: Any) -> None:
    file = tmx(tmp_path, "\n".join(unit(en=f"number {i} " + "x" * 400, fr=f"nombre {i}") for i in range(4000)))
    tracemalloc.start()
    count = sum(1 for _ in read_units(file))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 4000 and peak < file.stat().st_size / 4
