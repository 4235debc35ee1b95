"""Connections are those of section 5.3.2 and Table 5 of lang-contrastive."""

from __future__ import annotations

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
    for languages in (PAPER, ["ja", "fi", "en", "ko"]):
        found = connect_languages(languages, setting)
        assert {"-".join(sorted(pair)) for pair in found} == connected and len(found) == len(connected)


def test_more_and_fewer_languages_and_pairs_by_name() -> None:
    languages = ["fr", "en", "it", "es", "pt"]
    assert connect_languages(languages, "islands") == [("en", "pt"), ("fr", "it"), ("it", "es")]
    assert connect_languages(["en", "fr"], "bridge") == [("en", "fr")]
    assert connect_languages(["en", "ko", "pt-br"], "en-ko, ko-pt-br en-ko") == [("en", "ko"), ("ko", "pt-br")]


@pytest.mark.parametrize(
    "languages, setting, message",
    [
        (PAPER, "star", f"unknown setting 'star'; use one of {', '.join(SETTINGS)}"),
        (PAPER, "en-sw", "'en-sw'.*languages en, fi, ja, ko"),
        (PAPER, "en-en", "'en-en'"),
        (["fi", "ja"], "pivot", "the pivot 'en' and a further language must be among"),
        (["en", "fi", "ko"], "rest", r"needs two languages beside pivot and bridge, got \['fi'\]"),
        (["en", "english"], "pivot", "unknown language code 'english'"),
    ],
)
def test_bad_settings(languages: list[str], setting: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        connect_languages(languages, setting)


@pytest.fixture
def pairs() -> Dataset:
    rows = [("en", "ko"), ("ko", "en"), ("en", "ja"), ("en", "fi"), ("fi", "en"), ("en", "ja")]
    records = []
    for (source, target), text in zip(rows, ["one", "two", "one", "one", "three", "three"], strict=True):
        sides = {"source": source, "target": target}
        texts = {side: text if code == "en" else f"{text} in {code}" for side, code in sides.items()}
        records.append({f"{side}_language": code for side, code in sides.items()} | texts)
    return Dataset.from_list(records)


def test_unconnected_pairs_are_left_out_and_missing_ones_joined_through_english(pairs: Dataset) -> None:
    kept = keep_connections(pairs, [("en", "ko")])
    assert kept.to_list() == pairs.select([0, 1]).to_list()
    kept = keep_connections(pairs, [("ja", "fi"), ("en", "ko")])
    joined = [(row["source"], row["target"]) for row in kept if row["source_language"] == "ja"]
    assert joined == [("one in ja", "one in fi"), ("three in ja", "three in fi")]
    assert kept.features == pairs.features
    assert len(keep_connections(pairs, [("ko", "en"), ("ko", "ja")])) == 3  # own pairs are not joined


def test_a_connection_without_pairs_is_named(pairs: Dataset) -> None:
    with pytest.raises(DataError, match="no parallel sentences of en-sw;.* en-fi, en-ja"):
        keep_connections(pairs, [("en", "sw")])


def test_languages_without_parallel_sentences(pairs: Dataset) -> None:
    kept = without_parallel(pairs, ["ja", "ko"])
    assert kept.to_list() == pairs.select([3, 4]).to_list()
    with pytest.raises(DataError, match="no parallel sentences are left without en"):
        without_parallel(pairs, ["en"])
    with pytest.raises(ValueError, match="unknown language code 'xxx"):
        without_parallel(pairs, ["xxxx"])
