"""A TMX file that is hostile or damaged costs no memory, and is named with its unit."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from st_xlret.data import DataError
from st_xlret.data.lines import BadLines, Limits
from st_xlret.data.pair_formats import read_units
from tests.data.files import write_bytes, write_text
from tests.data.pair_formats import tmx, unit

GOOD = unit(en="Yes.", fr="Oui.")


def with_entities(file: Path, entities: str, body: str) -> Path:
    return write_text(file, f'<?xml version="1.0"?><!DOCTYPE tmx [{entities}]><tmx><body>{body}</body></tmx>')


def test_entities_that_expand_to_gigabytes_are_cut(tmp_path: Path) -> None:
    # 100,000 characters, 80 times: below the factor that expat refuses.
    entity = f'<!ENTITY a "{"x" * 100_000}">'
    file = with_entities(tmp_path / "a.tmx", entity, unit(en="&a;" * 80, fr="Oui.") + GOOD)
    bad_lines = BadLines(skip=True)
    tracemalloc.start()
    first, second = read_units(file, bad_lines)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000
    assert len(first[0][1]) == bad_lines.limits.sentence_characters and second[1] == ("fr", "Oui.")
    assert bad_lines.cut_sentences == [(str(file), 1, 8_000_000)]


def test_a_billion_laughs_are_refused(tmp_path: Path) -> None:
    names = "abcdefghij"
    entities = '<!ENTITY a "lol">' + "".join(
        f'<!ENTITY {names[i]} "{f"&{names[i - 1]};" * 10}">' for i in range(1, len(names))
    )
    with pytest.raises(DataError, match=r"a\.tmx, entry 1: .*amplification"):
        list(read_units(with_entities(tmp_path / "a.tmx", entities, unit(en="&j;", fr="x"))))


@pytest.mark.parametrize("kind", ["SYSTEM", "PUBLIC 'p'"])
def test_other_files_are_not_read(kind: str, tmp_path: Path) -> None:
    secret = write_text(tmp_path / "secret.txt", "secret")
    file = with_entities(tmp_path / "a.tmx", f'<!ENTITY a {kind} "{secret}">', unit(en="&a;", fr="x") + GOOD)
    with pytest.raises(DataError, match=r"a\.tmx, entry 1: .*undefined entity &a;"):
        list(read_units(file))


def test_the_units_before_the_damage_are_kept(tmp_path: Path) -> None:
    file = tmx(tmp_path / "a.tmx.gz", "\n".join(unit(en=f"{i * i:09d}", fr="x") for i in range(20_000)))
    file.write_bytes(file.read_bytes()[:-2000])
    bad_lines = BadLines(skip=True)
    kept = list(read_units(file, bad_lines))
    assert 1000 < len(kept) < 20_000 and bad_lines.bad_line_count == 1 and bad_lines.bad_lines[0][1] > 1000


@pytest.mark.parametrize("text", ["&#xD800;", "\x01", "<seg>", "</tuv>"])
def test_what_is_no_xml_is_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.tmx, entry 2: .*not XML.*line 4"):
        list(read_units(tmx(tmp_path / "a.tmx", GOOD + unit(en=text, fr="x"))))


def test_a_sentence_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    depth = 60_000
    deep = unit(en="<hi>" * depth + "deep" + "</hi>" * depth, fr="profond")
    codes = unit(en="a" + "<ph>" * depth + "code" + "</ph>" * depth + "b", fr="x")
    bad_lines = BadLines(skip=True)
    assert list(read_units(tmx(tmp_path / "a.tmx", deep + codes), bad_lines)) == [[("en", "ab"), ("fr", "x")]]
    assert bad_lines.bad_lines[0][1] == 1 and "recursion" in bad_lines.bad_lines[0][2]


def test_a_tag_without_end_is_refused(tmp_path: Path) -> None:
    file = write_text(tmp_path / "a.tmx", "<tmx><body>" + GOOD + '<tu x="' + "y" * 2_000_000)
    with pytest.raises(DataError, match="entry 2: .*longer than 100,000 bytes"):
        list(read_units(file, BadLines(limits=Limits(line_bytes=100_000))))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
def test_the_encoding_is_that_of_the_declaration(encoding: str, tmp_path: Path) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?><tmx><body>{unit(en="Yes", fr="Garçon")}</body></tmx>'
    file = write_bytes(tmp_path / "a.tmx", text.encode(encoding))
    assert list(read_units(file)) == [[("en", "Yes"), ("fr", "Garçon")]]


def test_a_large_tmx_is_streamed(tmp_path: Path) -> None:
    file = tmx(
        tmp_path / "a.tmx", "\n".join(unit(en=f"number {i} " + "x" * 400, fr=f"nombre {i}") for i in range(4000))
    )
    tracemalloc.start()
    count = sum(1 for _ in read_units(file))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 4000 and peak < file.stat().st_size / 4
