from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import datasets
import pytest

from st_xlret.data import (
    DataError,
    load_pairs,
    load_pairs_with_report,
    normalise_text,
    pairs_from_dictionary,
    pairs_from_parallel_documents,
)

COLUMNS = ["source", "target", "source_language", "target_language"]


def pair(source: str, target: str, source_language: str = "en", target_language: str = "fr") -> dict[str, Any]:
    return dict(zip(COLUMNS, (source, target, source_language, target_language), strict=True))


def many(count: int, target_language: str = "fr") -> list[dict[str, Any]]:
    return [pair(f"{i} apples", f"{i} pommes", "en", target_language) for i in range(count)]


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {"cache_dir": tmp_path / "cache", "show_progress": False}


def test_four_columns_in_order(tmp_path: Path, options: dict[str, Any]) -> None:
    file = tmp_path / "p.jsonl.gz"
    records = [pair(" A\n cat. ", "Un chat."), {**pair("A dog.", "Un chien."), "id": 7}]
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, records)).encode()))
    dataset = load_pairs(file, **options)
    assert dataset.column_names == COLUMNS
    assert dataset[:] == {
        "source": ["A cat.", "A dog."],
        "target": ["Un chat.", "Un chien."],
        "source_language": ["en", "en"],
        "target_language": ["fr", "fr"],
    }
    assert load_pairs_with_report(file, **options)[1].reused


def test_what_is_no_pair_is_counted(options: dict[str, Any]) -> None:
    records = [pair("A", "B"), pair("A", " "), pair("", "B"), pair("C", "C"), pair("A ", "B")]
    dataset, report = load_pairs_with_report(records, **options)
    assert len(dataset) == report.pairs == 1
    counts = report.languages["en>fr"]
    assert (counts.empty, counts.identical, counts.duplicate) == (2, 1, 1)
    assert str(report).splitlines()[1].split() == ["en>fr", "1", "2", "1", "1", "0", "0"]


def test_excluded_texts_are_dropped_on_either_side(options: dict[str, Any]) -> None:
    records = [pair("Hello, world!", "Bonjour."), pair("Bye.", "Au revoir !"), pair("Yes.", "Oui.")]
    exclude = {normalise_text("hello world"), normalise_text("au revoir")}
    dataset, report = load_pairs_with_report(records, exclude=exclude, **options)
    assert dataset["source"][:] == ["Yes."]
    assert report.languages["en>fr"].excluded == 2


def test_a_sample_is_a_prefix_of_a_larger_one(options: dict[str, Any]) -> None:
    records = many(200) + many(30, "de")
    small, large, whole = (load_pairs(records, per_language=limit, **options)["source"][:] for limit in (10, 50, 1000))
    assert (len(small), len(large), len(whole)) == (20, 80, 230)
    assert small[:10] == large[:10]  # de
    assert small[10:] == large[30:40]  # fr
    assert small[10:] != [f"{i} apples" for i in range(10)]


def test_a_sample_depends_on_the_seed_and_not_on_the_order(options: dict[str, Any]) -> None:
    records = many(100)
    first = load_pairs(records, per_language=10, **options)[:]
    assert load_pairs(records[::-1], per_language=10, **options)[:] == first
    assert load_pairs(records, per_language=10, seed=1, **options)[:] != first


def test_a_sample_is_drawn_after_exclusion(options: dict[str, Any]) -> None:
    first = load_pairs(many(20), per_language=5, **options)["source"][:]
    exclude = {normalise_text(first[0])}
    dataset, report = load_pairs_with_report(many(20), per_language=5, exclude=exclude, **options)
    assert dataset["source"][:4] == first[1:]
    counts = report.languages["en>fr"]
    assert (counts.pairs, counts.excluded, counts.over_limit) == (5, 1, 14)


def test_both_sides_must_be_in_the_language_filter(options: dict[str, Any]) -> None:
    records = [pair("A", "B"), pair("A", "C", "en", "pt-BR"), pair("A", "D", "en", "de")]
    dataset, report = load_pairs_with_report(records, languages=["en", "pt", "de"], **options)
    assert dataset["target_language"][:] == ["pt", "de"]
    assert report.other_languages == {"en>fr": 1}
    with pytest.raises(DataError, match=r"must name both sides(.|\n)*en>fr 1"):
        load_pairs(records, languages=["fr"], **options)


def test_alternative_sources_on_request(options: dict[str, Any]) -> None:
    record = {**pair("A cat", "Un chat"), "alternative_sources": ["One cat", "A cat"]}
    assert load_pairs([record], **options)["source"][:] == ["A cat"]
    assert load_pairs([record], alternatives=True, **options)["source"][:] == ["A cat", "One cat"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"source": "A", "target": "B", "source_language": "en"}, "no field 'target_language'"),
        (pair("A", "B", "en", "english"), "unknown language code 'english'"),
        ({**pair("A", "B"), "target": 3}, "field 'target' must be a str, found int"),
        (["A", "B"], "expected a dict, found list"),
    ],
)
def test_bad_lines_are_named_or_counted(options: dict[str, Any], bad: Any, reason: str) -> None:
    def records() -> Any:
        yield from [pair("A", "B"), bad]

    with pytest.raises(DataError, match=f"<source 1>, line 2: {reason}"):
        load_pairs(records(), **options)
    dataset, report = load_pairs_with_report(records(), skip_bad_lines=True, **options)
    assert (len(dataset), report.bad_line_count) == (1, 1)


def test_per_language_below_one_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="per_language must be at least 1"):
        load_pairs(many(2), per_language=0, **options)


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


def verse_documents() -> list[dict[str, Any]]:
    return [
        {"language": "en", "sentences": ["E1", "E2", ""], "verses": ["X 1:1", "X 1:2", "X 1:3"]},
        {
            "language": "de",
            "sentences": ["D2", "", "D3", "D4"],
            "verses": ["X 1:2", "X 1:1", "X 1:3", "X 1:4"],
        },
        {"language": "fr", "sentences": ["F1"], "verses": ["X 1:1"]},
    ]


def test_equal_verses_are_pairs(options: dict[str, Any]) -> None:
    dataset = pairs_from_parallel_documents(verse_documents(), **options)
    assert list(zip(*dataset[:].values(), strict=True)) == [
        ("E2", "D2", "en", "de"),
        ("E1", "F1", "en", "fr"),
    ]
    generated = pairs_from_parallel_documents((d for d in verse_documents()), languages=["fr"], **options)
    assert generated["target"][:] == ["F1"]
    pivoted = pairs_from_parallel_documents(verse_documents(), pivot="de", **options)
    assert list(zip(pivoted["source"], pivoted["target"], strict=True)) == [("D2", "E2")]


def test_verses_must_match_the_sentences(options: dict[str, Any]) -> None:
    records = [*verse_documents(), {"language": "fr", "sentences": ["F2", "F3"], "verses": ["X 1:2"]}]
    with pytest.raises(DataError, match="line 4: expected a reference for each of the 2 sentences, found 1"):
        pairs_from_parallel_documents(records, **options)
    assert len(pairs_from_parallel_documents(records, skip_bad_lines=True, **options)) == 2


def test_a_pivot_without_documents_is_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="no documents in the pivot language 'es'"):
        pairs_from_parallel_documents(verse_documents(), pivot="es", **options)


def test_word_lists(tmp_path: Path, options: dict[str, Any]) -> None:
    file = tmp_path / "en-de.tsv.gz"
    file.write_bytes(gzip.compress(b"dog\tHund\ndog\tHund\ncat\t\nhand\thand\ncat\tKatze\n"))
    dataset = pairs_from_dictionary(file, "en", "DE", **options)
    assert dataset["target"][:] == ["Hund", "Katze"]
    assert dataset["target_language"][:] == ["de", "de"]
    file.write_bytes(gzip.compress(b"dog\tHund\ncat\n"))
    with pytest.raises(DataError, match="en-de.tsv.gz, line 2: expected 2 columns .* found 1"):
        pairs_from_dictionary(file, "en", "de", **options)
    with pytest.raises(DataError, match="is a directory"):
        pairs_from_dictionary(tmp_path, "en", "de", **options)


def test_all_readers_give_the_same_features(tmp_path: Path, options: dict[str, Any]) -> None:
    file = tmp_path / "en-de.tsv"
    file.write_text("dog\tHund\n", encoding="utf-8")
    parts = [
        load_pairs(many(3), **options),
        pairs_from_parallel_documents(verse_documents(), **options),
        pairs_from_dictionary(file, "en", "de", **options),
    ]
    assert len(datasets.concatenate_datasets(parts)) == 6


@pytest.mark.real_data
def test_real_pairs(options: dict[str, Any]) -> None:
    data = Path(os.environ.get("XLRET_DATA", Path(__file__).parents[3] / "shared" / "data"))
    folder = data / "tico19" / "pairs"
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set XLRET_DATA to its folder")
    dataset, report = load_pairs_with_report(folder, languages=["en", "fr", "zh"], per_language=50, **options)
    assert dataset["target_language"][:] == ["fr"] * 50 + ["zh"] * 50
    assert report.bad_line_count == 0
