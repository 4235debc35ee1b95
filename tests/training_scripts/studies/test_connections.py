"""Connections are those of section 5.3.2 and Table 5 of lang-contrastive."""

from __future__ import annotations

import itertools

import pytest
from datasets import Dataset

from st_xlret.data.lines import DataError
from training_scripts.studies.connections import SETTINGS, connect_languages, keep_connections, without_parallel

PAPER = ["en", "fi", "ja", "ko"]


@pytest.mark.parametrize(
    "setting, connected",
    [
        ("none", set()),
        ("pivot", {"en-fi", "en-ja", "en-ko"}),  # setting 1
        ("bridge", {"en-ko", "fi-ko", "ja-ko"}),  # setting 2
        ("islands", {"en-ko", "fi-ja"}),  # setting 3
        ("single", {"en-ko"}),  # setting 4
        ("rest", {"fi-ja"}),  # setting 5
    ],
)
def test_the_papers_settings(setting: str, connected: set[str]) -> None:
    for languages in itertools.permutations(PAPER):
        found = connect_languages(languages, setting, bridge="ko")
        assert {"-".join(sorted(pair)) for pair in found} == connected and len(found) == len(connected)
    assert connect_languages(PAPER, setting) == connect_languages(PAPER, setting, bridge="ko")


def test_more_languages_and_another_pivot() -> None:
    languages = ["de", "fr", "it", "es", "pt"]
    assert connect_languages(languages, "pivot", pivot="de") == [("de", c) for c in ("fr", "it", "es", "pt")]
    assert connect_languages(languages, "islands", pivot="de") == [("de", "pt"), ("fr", "it"), ("it", "es")]
    assert connect_languages(["en", "fr"], "bridge") == [("en", "fr")]


def test_pairs_can_be_named() -> None:
    assert connect_languages(["en", "ko", "pt-br"], "en-ko, ko-pt-br en-ko") == [("en", "ko"), ("ko", "pt-br")]


@pytest.mark.parametrize(
    "languages, options, message",
    [
        (PAPER, {"setting": "star"}, f"unknown setting 'star'; use one of {', '.join(SETTINGS)}"),
        (PAPER, {"setting": "en-sw"}, "'en-sw'.*languages en, fi, ja, ko"),
        (PAPER, {"setting": "en-en"}, "'en-en'"),
        (["fi", "ja"], {"setting": "pivot"}, "the pivot 'en' and a further language must be among"),
        (PAPER, {"setting": "bridge", "bridge": "en"}, "the bridge 'en' must be among the languages and not be"),
        (["en", "fi", "ko"], {"setting": "rest"}, r"needs two languages beside pivot and bridge, got \['fi'\]"),
        (["en", "english"], {"setting": "pivot"}, "unknown language code 'english'"),
    ],
)
def test_bad_settings(languages: list[str], options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        connect_languages(languages, **options)


@pytest.fixture
def pairs() -> Dataset:
    rows = [("en", "ko"), ("ko", "en"), ("en", "ja"), ("en", "fi"), ("fi", "en"), ("en", "ja")]
    english = ["one", "two", "one", "one", "three", "three"]
    records = []
    for (source, target), text in zip(rows, english, strict=True):
        texts = {code: text if code == "en" else f"{text} in {code}" for code in (source, target)}
        records.append(
            {"source_language": source, "target_language": target, "source": texts[source], "target": texts[target]}
        )
    return Dataset.from_list(records)


def test_unconnected_pairs_are_left_out_in_both_directions(pairs: Dataset) -> None:
    kept = keep_connections(pairs, [("en", "ko")])
    assert kept.to_list() == pairs.select([0, 1]).to_list()


def test_missing_pairs_are_joined_through_the_pivot(pairs: Dataset) -> None:
    kept = keep_connections(pairs, [("ja", "fi"), ("en", "ko")])
    joined = [row for row in kept.to_list() if row["source_language"] == "ja"]
    assert [(row["source"], row["target"]) for row in joined] == [
        ("one in ja", "one in fi"),
        ("three in ja", "three in fi"),
    ]
    assert kept.features == pairs.features


def test_own_pairs_win_over_joined_ones(pairs: Dataset) -> None:
    kept = keep_connections(pairs, [("ko", "en"), ("ko", "ja")])
    assert len(kept) == 3


def test_a_connection_without_pairs_is_named(pairs: Dataset) -> None:
    with pytest.raises(DataError, match="no parallel sentences of ja-fi;.* en-fi, en-ja"):
        keep_connections(pairs, [("ja", "fi")], pivot=None)
    with pytest.raises(DataError, match="no parallel sentences of en-sw"):
        keep_connections(pairs, [("en", "sw")])


def test_languages_without_parallel_sentences(pairs: Dataset) -> None:
    kept = without_parallel(pairs, ["ja", "ko"])
    assert kept.to_list() == pairs.select([3, 4]).to_list()
    with pytest.raises(DataError, match="no parallel sentences are left without en"):
        without_parallel(pairs, ["en"])
    with pytest.raises(ValueError, match="unknown language code 'xxx"):
        without_parallel(pairs, ["xxxx"])
