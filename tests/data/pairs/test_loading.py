"""One loader for parallel sentences of every format."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from st_xlret.data import DataError, PairOptions, PairReport, load_pairs, normalise_text
from tests.data.files import write_jsonl, write_text
from tests.data.pairs.formats import every_format

COLUMNS = ["source", "target", "source_language", "target_language"]


def pair(source: str, target: str, source_language: str = "en", target_language: str = "fr") -> dict[str, Any]:
    return dict(zip(COLUMNS, (source, target, source_language, target_language), strict=True))


def many(count: int, target_language: str = "fr") -> list[dict[str, Any]]:
    return [pair(f"{i} apples", f"{i} pommes", "en", target_language) for i in range(count)]


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def load(sources: Any, **options: Any) -> tuple[Dataset, PairReport]:
        report = PairReport()
        where = {"cache_dir": tmp_path / "cache", "show_progress": False}
        return load_pairs(sources, PairOptions(**options), report=report, **where), report

    return load


def test_four_columns_in_order(tmp_path: Path, load: Any) -> None:
    records = [pair(" A\n cat. ", "Un chat."), {**pair("A dog.", "Un chien."), "id": 7}]
    file = write_jsonl(tmp_path / "p.jsonl.gz", records)
    dataset, report = load(file)
    assert dataset.column_names == COLUMNS
    assert dataset[:] == {
        "source": ["A cat.", "A dog."],
        "target": ["Un chat.", "Un chien."],
        "source_language": ["en", "en"],
        "target_language": ["fr", "fr"],
    }
    assert not report.reused and load(file)[1].reused


def test_what_is_no_pair_is_counted(load: Any) -> None:
    records = [pair("A", "B"), pair("A", " "), pair("", "B"), pair("C", "C"), pair("A ", "B")]
    dataset, report = load(records)
    assert len(dataset) == report.pairs == 1
    counts = report.languages["en>fr"]
    assert (counts.empty, counts.identical, counts.duplicate) == (2, 1, 1)
    assert str(report).splitlines()[1].split() == ["en>fr", "1", "2", "1", "1", "0", "0", "0"]


def test_the_report_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="st_xlret"):
        load_pairs([pair("A", "B")], cache_dir=tmp_path, show_progress=False)
    assert "en>fr" in caplog.text


def test_excluded_texts_are_dropped_on_either_side(tmp_path: Path, load: Any) -> None:
    records = [pair("Hello, world!", "Bonjour."), pair("Bye.", "Au revoir !"), pair("Yes.", "Oui.")]
    tests = [write_text(tmp_path / "a.eng", "HELLO world\n\n"), write_text(tmp_path / "b.txt.gz", "au revoir\nHi\n")]
    dataset, report = load(records, exclude=tests)
    assert dataset["source"][:] == ["Yes."]
    assert report.languages["en>fr"].excluded == 2
    with pytest.raises(DataError, match="gone.txt"):
        load(records, exclude=[tmp_path / "gone.txt"])


def test_a_sample_is_a_prefix_of_a_larger_one(load: Any) -> None:
    records = many(200) + many(30, "de")
    small, large, whole = (load(records, per_language=limit)[0]["source"][:] for limit in (10, 50, 1000))
    assert (len(small), len(large), len(whole)) == (20, 80, 230)
    assert small[:10] == large[:10]  # de
    assert small[10:] == large[30:40]  # fr
    assert small[10:] != [f"{i} apples" for i in range(10)]


def test_a_sample_does_not_depend_on_the_order(load: Any) -> None:
    assert load(many(100), per_language=10)[0][:] == load(many(100)[::-1], per_language=10)[0][:]


def test_a_sample_is_drawn_after_exclusion(tmp_path: Path, load: Any) -> None:
    first = load(many(20), per_language=5)[0]["source"][:]
    exclude = [write_text(tmp_path / "test.txt", first[0])]
    dataset, report = load(many(20), per_language=5, exclude=exclude)
    assert dataset["source"][:4] == first[1:]
    counts = report.languages["en>fr"]
    assert (counts.pairs, counts.excluded, counts.over_limit) == (5, 1, 14)


def test_both_sides_must_be_in_the_language_filter(load: Any) -> None:
    records = [pair("A", "B"), pair("A", "C", "en", "pt-BR"), pair("A", "D", "en", "de")]
    dataset, report = load(records, languages=["EN", "por", "de"])
    assert dataset["target_language"][:] == ["pt", "de"]
    assert report.other_languages == {"en>fr": 1}
    with pytest.raises(DataError, match=r"both sides(.|\n)*en>fr 1"):
        load(records, languages=["fr"])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"source": "A", "target": "B", "source_language": "en"}, "no field 'target_language'"),
        (pair("A", "B", "en", "english"), "unknown language code 'english'"),
        ({**pair("A", "B"), "target": 3}, "field 'target' must be a str, found int"),
        (["A", "B"], "expected a dict, found list"),
    ],
)
def test_bad_lines_are_named_or_counted(load: Any, bad: Any, reason: str) -> None:
    def records() -> Any:
        yield from [pair("A", "B"), bad]

    with pytest.raises(DataError, match=f"<source 1>, line 2: {reason}"):
        load(records())
    dataset, report = load(records(), skip_bad_lines=True)
    assert (len(dataset), report.bad_line_count) == (1, 1)


@pytest.mark.parametrize(
    "options, named",
    [
        ({"per_language": 0}, "per_language.*0"),
        ({"languages": ["en", "xx1"]}, "'xx1'"),
        ({"languages": []}, "languages"),
    ],
)
def test_options_that_will_not_do(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        PairOptions(**options)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("“Hello”, World!", "hello world"),
        ("ＡＢＣ１", "abc1"),
        ("zero\u200bwidth", "zerowidth"),
        ("C'est", "cest"),
    ],
)
def test_normalise_text_unifies(one: str, other: str) -> None:
    assert normalise_text(one) == normalise_text(other)


def test_normalise_text_keeps_vowel_signs_and_accents() -> None:
    assert normalise_text("की, का।") == "कीका"
    assert normalise_text("Été") != normalise_text("Ete")


TARGETS = {"records": "jsonl", "verses": "verses", "tmx": "tmx", "scored": "mined", "columns": "tsv", "words": "muse"}
TARGETS["moses"] = "moses"


def test_a_folder_mixes_all_formats(tmp_path: Path, load: Any) -> None:
    folder = every_format(tmp_path / "mixed")
    dataset, report = load(folder)
    assert sorted(dataset["target"][:]) == sorted(f"{name}{i}" for name in TARGETS.values() for i in (1, 2))
    assert set(dataset["source_language"]) == {"en"} and set(dataset["target_language"]) == {"fr"}
    assert [Path(file).name for file in report.skipped_files] == ["NOTICE.txt", "documents.jsonl"]
    assert report.languages["en>fr"].low_score == 1
    # Named one by one, in any order, both sides of Moses' format or one of them: the same rows.
    files = [file for file in sorted(folder.rglob("*"), reverse=True) if file.name in NAMED]
    assert load(files)[0].to_list() == dataset.to_list()
    assert load(files + files)[0].to_list() == dataset.to_list()


NAMED = {
    "a.jsonl.gz",
    "verses.jsonl",
    "a.tmx",
    "X.en-fr.fr",
    "WikiMatrix.en-fr.tsv.gz",
    "my-words.en-fr.tsv",
    "en-fr.txt",
}


@pytest.mark.parametrize("name", sorted(NAMED))
def test_options_work_for_every_format(name: str, tmp_path: Path, load: Any) -> None:
    file = next(every_format(tmp_path / "mixed").rglob(name))
    whole = load(file)[0]
    assert len(whole) == 2
    assert len(load(file, per_language=1)[0]) == 1
    exclude = [write_text(tmp_path / "test.txt", whole[0]["target"].upper())]
    dataset, report = load(file, exclude=exclude)
    assert dataset.to_list() == whole.to_list()[1:] and report.languages["en>fr"].excluded == 1
    assert load(file, languages=["eng", "FR"])[0].to_list() == whole.to_list()
    with pytest.raises(DataError, match=r"no pairs left"):
        load(file, languages=["en", "de"])


def test_scores_below_the_limit_are_left_out(tmp_path: Path, load: Any) -> None:
    lines = ["1.2\tYes.\tOui.", "1.05\tNo.\tNon.", "1.03\tCat.\tChien.", "1.1\tOK\tOK", "1.1\t\tx"]
    file = write_text(tmp_path / "WikiMatrix.en-fr.tsv.gz", "\n".join(lines))
    pairs, report = load(file)
    assert pairs["target"][:] == ["Oui.", "Non."]
    counts = report.languages["en>fr"]
    assert (counts.pairs, counts.identical, counts.empty, counts.low_score) == (2, 1, 1, 1)
    assert len(load(file, min_score=1.1)[0]) == 1 and len(load(file, min_score=0.0)[0]) == 3


def test_files_of_other_languages_are_reported(tmp_path: Path, load: Any) -> None:
    write_text(tmp_path / "WikiMatrix.en-fr.tsv", "1.2\tYes.\tOui.\n")
    write_text(tmp_path / "X.ja-fi.tsv", "Hai\tKyllä\n")
    pairs, report = load(tmp_path, languages=["en", "fr"])
    assert len(pairs) == 1 and report.other_languages == {"ja>fi": 1}


def test_a_dash_elsewhere_in_a_name_is_no_language(tmp_path: Path, load: Any) -> None:
    # "my" is Burmese: the name was once read as the languages "my" and "words", and dropped without a word.
    file = write_text(tmp_path / "my-words.en-fr.tsv", "dog\tchien\n")
    pairs, _ = load(file, languages=["en", "fr"])
    assert pairs.to_list() == [pair("dog", "chien")]


def test_changed_files_are_read_again(tmp_path: Path, load: Any) -> None:
    sides = [write_text(tmp_path / f"X.en-fr.{code}", text) for code, text in (("en", "Yes."), ("fr", "Oui."))]
    assert not load(sides[0])[1].reused and load(sides[1])[1].reused
    write_text(sides[1], "Mais oui.")
    pairs, report = load(sides[0])
    assert not report.reused and pairs["target"][:] == ["Mais oui."]


@pytest.mark.real_data
def test_real_pairs(real_data: Path, load: Any) -> None:
    dataset, report = load(real_data / "tico19" / "pairs", languages=["en", "fr", "zh"], per_language=50)
    assert dataset["target_language"][:] == ["fr"] * 50 + ["zh"] * 50
    assert report.bad_line_count == 0


@pytest.mark.real_data
def test_real_data_of_several_formats(real_data: Path, load: Any) -> None:
    sources = [real_data / name for name in ("tico19", "dictionaries", "ebible", "mozilla_www", "indian_parallel")]
    _, report = load(sources, languages=["en", "sw", "te"], per_language=20)
    assert {name: counts.pairs for name, counts in report.languages.items()} == {"en>sw": 20, "en>te": 20}
    assert report.languages["en>sw"].over_limit > 10_000 and not report.bad_line_count
