"""One loader for parallel sentences of every format, and what is wrong with a file."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from st_xlret.data import DataError, PairOptions, load_pairs
from st_xlret.data.lines import BadLines, Limits
from st_xlret.data.pairs import read_units, recognise
from tests.data.files import every_format, moses, tmx, unit, write_bytes, write_text

COLUMNS = ["source", "target", "source_language", "target_language"]


def pair(source: str, target: str, source_language: str = "en", target_language: str = "fr") -> dict[str, Any]:
    return dict(zip(COLUMNS, (source, target, source_language, target_language), strict=True))


def many(count: int, target_language: str = "fr") -> list[dict[str, Any]]:
    return [pair(f"{i} apples", f"{i} pommes", "en", target_language) for i in range(count)]


def test_what_is_no_pair_is_counted(load: Any) -> None:
    records = [pair("A", "B"), pair("A", " "), pair("", "B"), pair("C", "C"), pair("A ", "B")]
    dataset, report = load(records)
    assert len(dataset) == report.total("pairs") == 1
    counts = report.languages["en>fr"]
    assert (counts["empty"], counts["identical"], counts["duplicate"]) == (2, 1, 1)
    assert str(report).splitlines()[1].split() == ["en>fr", "1", "2", "1", "1"]


def test_excluded_texts_are_dropped_on_either_side(tmp_path: Path, load: Any) -> None:
    records = [pair("Hello, world!", "Bonjour."), pair("Bye.", "Au revoir !"), pair("Yes.", "Oui.")]
    tests = [write_text(tmp_path / "a.eng", "HELLO world\n\n"), write_text(tmp_path / "b.txt.gz", "au revoir\nHi\n")]
    dataset, report = load(records, exclude=tests)
    assert dataset["source"][:] == ["Yes."]
    assert report.languages["en>fr"]["excluded"] == 2
    with pytest.raises(DataError, match="gone.txt"):
        load(records, exclude=[tmp_path / "gone.txt"])


def test_a_sample_is_a_prefix_of_a_larger_one(load: Any) -> None:
    records = many(200) + many(30, "de")
    small, large, whole = (load(records, per_language=limit)[0]["source"][:] for limit in (10, 50, 1000))
    assert (len(small), len(large), len(whole)) == (20, 80, 230)
    assert small[:10] == large[:10]  # de
    assert small[10:] == large[30:40]  # fr
    assert load(records[::-1], per_language=10)[0]["source"][:] == small
    with pytest.raises(ValueError, match="per_language.*0"):
        PairOptions(per_language=0)


def test_both_sides_must_be_in_the_language_filter(load: Any) -> None:
    records = [pair("A", "B"), pair("A", "C", "en", "pt-BR"), pair("A", "D", "en", "de")]
    dataset, report = load(records, languages=["EN", "por", "de"])
    assert dataset["target_language"][:] == ["pt", "de"]
    assert report.other_languages == {"en>fr": 1}
    with pytest.raises(DataError, match=r"both sides(.|\n)*en>fr 1"):
        load(records, languages=["fr"])


TARGETS = {"records": "jsonl", "verses": "verses", "tmx": "tmx", "scored": "mined", "columns": "tsv", "words": "muse"}
TARGETS["moses"] = "moses"


def test_a_folder_mixes_all_formats(tmp_path: Path, load: Any) -> None:
    folder = every_format(tmp_path / "mixed")
    dataset, report = load(folder)
    assert sorted(dataset["target"][:]) == sorted(f"{name}{i}" for name in TARGETS.values() for i in (1, 2))
    assert set(dataset["source_language"]) == {"en"} and set(dataset["target_language"]) == {"fr"}
    assert [Path(file).name for file in report.skipped_files] == ["NOTICE.txt", "documents.jsonl"]
    assert report.languages["en>fr"]["low_score"] == 1
    # Named one by one, in any order, both sides of Moses' format or one of them: the same rows.
    files = [file for file in sorted(folder.rglob("*"), reverse=True) if file.name in NAMED]
    assert load(files)[0].to_list() == dataset.to_list()
    assert load(files + files)[0].to_list() == dataset.to_list()


NAMED = {"a.jsonl.gz", "verses.jsonl", "a.tmx", "X.en-fr.fr", "WikiMatrix.en-fr.tsv.gz", "my-words.en-fr.tsv"}
NAMED.add("en-fr.txt")


@pytest.mark.parametrize("name", sorted(NAMED))
def test_options_work_for_every_format(name: str, tmp_path: Path, load: Any) -> None:
    file = next(every_format(tmp_path / "mixed").rglob(name))
    whole = load(file)[0]
    assert len(whole) == 2
    assert len(load(file, per_language=1)[0]) == 1
    exclude = [write_text(tmp_path / "test.txt", whole[0]["target"].upper())]
    dataset, report = load(file, exclude=exclude)
    assert dataset.to_list() == whole.to_list()[1:] and report.languages["en>fr"]["excluded"] == 1
    assert load(file, languages=["eng", "FR"])[0].to_list() == whole.to_list()
    with pytest.raises(DataError, match=r"no pairs left"):
        load(file, languages=["en", "de"])


def test_scores_below_the_limit_are_left_out(tmp_path: Path, load: Any) -> None:
    lines = ["1.2\tYes.\tOui.", "1.05\tNo.\tNon.", "1.03\tCat.\tChien.", "1.1\tOK\tOK", "1.1\t\tx"]
    file = write_text(tmp_path / "WikiMatrix.en-fr.tsv.gz", "\n".join(lines))
    pairs, report = load(file)
    assert pairs["target"][:] == ["Oui.", "Non."]
    counts = report.languages["en>fr"]
    assert (counts["pairs"], counts["identical"], counts["empty"], counts["low_score"]) == (2, 1, 1, 1)
    assert len(load(file, min_score=1.1)[0]) == 1 and len(load(file, min_score=0.0)[0]) == 3


@pytest.mark.real_data
def test_real_data_of_several_formats(real_data: Path, load: Any) -> None:
    sources = [real_data / name for name in ("tico19", "dictionaries", "ebible", "mozilla_www", "indian_parallel")]
    _, report = load(sources, languages=["en", "sw", "te"], per_language=20)
    assert {name: counts["pairs"] for name, counts in report.languages.items()} == {"en>sw": 20, "en>te": 20}
    assert report.languages["en>sw"]["over_limit"] > 10_000 and not report.bad_line_count


@pytest.mark.parametrize(
    "line, message", [("1.2\tYes.", "line 2.*score, source and target"), ("high\tYes.\tOui.", "line 2.*'high'")]
)
def test_bad_lines_of_mined_pairs(line: str, message: str, tmp_path: Path, load: Any) -> None:
    file = write_text(tmp_path / "WikiMatrix.en-fr.tsv", f"1.2\tNo.\tNon.\n{line}\n")
    with pytest.raises(DataError, match=message):
        load(file)
    pairs, report = load(file, skip_bad_lines=True)
    assert len(pairs) == 1 and report.bad_line_count == 1


def test_moses_files_are_read_side_by_side(tmp_path: Path, load: Any) -> None:
    file = moses(tmp_path, {"en": "Yes.\n\nNo.\nOK\n", "fr": "Oui.\nVide\nNon.\nOK\n"})
    pairs, report = load(file)
    # The blank line keeps its place.
    assert pairs["target"][:] == ["Oui.", "Non."]
    assert (report.languages["en>fr"]["empty"], report.languages["en>fr"]["identical"]) == (1, 1)
    # Either of the two, or both, name the pair.
    assert load(tmp_path / "X.en-fr.fr")[0].to_list() == pairs.to_list()
    assert load([file, tmp_path / "X.en-fr.fr"])[0].to_list() == pairs.to_list()


@pytest.mark.parametrize("french, counts", [("Oui.\n", "2 lines.*1"), ("Oui.\nNon.\nSi.\n\nx\n", "2 lines.*5")])
def test_moses_files_of_different_length(french: str, counts: str, tmp_path: Path, load: Any) -> None:
    file = moses(tmp_path, {"en": "Yes.\nNo.\n", "fr": french})
    for skip in (False, True):
        with pytest.raises(DataError, match=rf"not aligned: .*X.en-fr.en has {counts}"):
            load(file, skip_bad_lines=skip)


def test_moses_without_its_other_side(tmp_path: Path, load: Any) -> None:
    with pytest.raises(DataError, match=r"X\.en-fr\.en.*X\.en-fr\.fr"):
        load(moses(tmp_path, {"en": "Yes.\n"}))


@pytest.mark.parametrize("name", ["a.tmx", "a.tmx.gz"])
def test_tmx(name: str, tmp_path: Path, load: Any) -> None:
    body = [unit(en="Yes &amp; no.", fr="Oui\n et non."), unit(en="Hi", de="Hallo", fr="Salut"), unit(en="Alone")]
    body.append(unit(en='A <bpt i="1">&lt;b&gt;</bpt><hi>bold</hi><ept i="1">&lt;/b&gt;</ept> word', fr="mot gras"))
    pairs, report = load(tmx(tmp_path / name, "\n".join(body)))
    assert [tuple(row.values()) for row in pairs.to_list()] == [
        ("Yes & no.", "Oui et non.", "en", "fr"),
        ("Hi", "Hallo", "en", "de"),
        ("Hi", "Salut", "en", "fr"),
        ("A bold word", "mot gras", "en", "fr"),
    ]
    filtered, report = load(tmp_path / name, languages=["en", "fr"])
    assert len(filtered) == 3 and report.other_languages == {"en>de": 1}


def test_bad_tmx(tmp_path: Path, load: Any) -> None:
    good = unit(en="Yes.", fr="Oui.")
    file = tmx(tmp_path / "a.tmx", good + "\n<tu><tuv><seg>x</seg></tuv></tu>\n" + unit(en="No.", fr="Non."))
    with pytest.raises(DataError, match="a.tmx, entry 2: a <tuv> without xml:lang"):
        load(file)
    pairs, report = load(file, skip_bad_lines=True)
    assert len(pairs) == 2 and report.bad_line_count == 1
    file.write_text(file.read_text()[:-40])
    with pytest.raises(DataError, match="entry 2"):
        load(file)
    broken = tmx(tmp_path / "b.tmx", good + "\n<tu>")
    with pytest.raises(DataError, match="b.tmx, entry 2: the file is truncated or is not XML.*line 6"):
        load(broken)
    assert len(load(broken, skip_bad_lines=True)[0]) == 1


def test_files_of_other_languages_are_reported(tmp_path: Path, load: Any) -> None:
    write_text(tmp_path / "WikiMatrix.en-fr.tsv", "1.2\tYes.\tOui.\n")
    write_text(tmp_path / "X.ja-fi.tsv", "Hai\tKyllä\n")
    pairs, report = load(tmp_path, languages=["en", "fr"])
    assert len(pairs) == 1 and report.other_languages == {"ja>fi": 1}


def test_first_lines_that_are_bad_do_not_decide(tmp_path: Path) -> None:
    file = write_text(tmp_path / "X.en-fr.tsv.gz", "nonsense\n\nmore\tand\tmore\n1.2\tYes.\tOui.\n")
    found = recognise(file)
    assert found is not None and found.format == "scored"
    broken = write_text(tmp_path / "a.jsonl", "{\n")
    assert recognise(broken) is not None


@pytest.mark.parametrize("given", ["X.en-zh_TW.en", "X.en-zh_TW.zh_TW.gz"])
def test_the_sides_of_moses_files_may_be_compressed_or_not(given: str, tmp_path: Path, load: Any) -> None:
    moses(tmp_path, {"en": "a", "zh_TW.gz": "b"}, "X.en-zh_TW")
    assert rows(load, tmp_path / given) == [("a", "b", "en", "zh-tw")]


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
            load_pairs(source, cache_dir=tmp_path, show_progress_bar=False)
        assert all(mark in str(caught.value) for mark in (".jsonl", ".tmx", ".tsv", "X.en-fr.en", "verses"))
        assert source.name in str(caught.value)


def verse_documents() -> list[dict[str, Any]]:
    english, german = {"1": "E1", "2": "E2", "3": ""}, {"2": "D2", "1": "", "3": "D3", "4": "D4"}
    verses = {"en": english, "de": german, "fr": {"1": "F1"}}
    return [{"language": code, "sentences": [*own.values()], "verses": [*own]} for code, own in verses.items()]


def rows(load: Any, *given: Any, **options: Any) -> list[tuple[str, ...]]:
    return [tuple(row.values()) for row in load(*given, **options)[0]]


def test_equal_verses_are_pairs(load: Any) -> None:
    expected = [("E2", "D2", "en", "de"), ("E1", "F1", "en", "fr")]
    assert rows(load, verse_documents()) == expected
    assert rows(load, Dataset.from_list(verse_documents())) == expected
    found, report = load((d for d in verse_documents()), languages=["en", "fr"])
    assert [tuple(row.values()) for row in found] == expected[1:]
    assert report.other_languages == {"de": 1}


def test_without_english_the_largest_language_is_the_source(load: Any) -> None:
    documents = verse_documents()
    documents[0]["language"] = "sw"
    assert rows(load, documents) == [("D2", "E2", "de", "sw")]
    assert rows(load, documents, languages=["fr", "sw"]) == [("E1", "F1", "sw", "fr")]
    with pytest.raises(DataError, match="no pairs left"):
        rows(load, documents, languages=["es"])


def test_verses_must_match_the_sentences(load: Any) -> None:
    records = [*verse_documents(), {"language": "fr", "sentences": ["F2", "F3"], "verses": ["2"]}]
    with pytest.raises(DataError, match="line 4: .*2 sentences, found 1"):
        rows(load, records)
    found, report = load(records, skip_bad_lines=True)
    assert len(found) == 2 and report.bad_line_count == 1


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
