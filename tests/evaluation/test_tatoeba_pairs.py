"""Tatoeba between languages other than English."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from st_xlret.data.lines import DataError
from st_xlret.evaluation.tatoeba import TatoebaPairsEvaluator, join_on_english, load_pairs_of_export

SENTENCES = {
    1: ("fra", "voiture"),
    2: ("deu", "wagen"),
    3: ("deu", "gasthof"),
    4: ("fra", "auberge"),
    5: ("eng", "hotel"),
    6: ("nob", "bil"),
    7: ("dan", "vogn"),
    8: ("fra", "pain"),
    9: ("\\N", "?"),
}
# 1 is linked to two German sentences and each link stands in both directions; 8 is linked to English alone.
LINKS = [(1, 2), (2, 1), (1, 3), (3, 1), (4, 3), (3, 4), (4, 5), (5, 4), (6, 7), (7, 6), (8, 5), (4, 999)]


def write_export(folder: Path, *, compress: bool = False) -> Path:
    files = {
        "sentences.csv": [f"{number}\t{code}\t{text}" for number, (code, text) in SENTENCES.items()],
        "links.csv": [f"{first}\t{second}" for first, second in LINKS],
    }
    for name, lines in files.items():
        content = "".join(f"{line}\n" for line in lines).encode()
        if compress:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("compress", [False, True])
def test_links_of_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: bool) -> None:
    found = load_pairs_of_export(write_export(tmp_path, compress=compress), ["fr-de", "da-no"])
    assert found["da-no"] == (["vogn"], ["bil"])
    first, second = found["fr-de"]
    assert len(first) == len(set(first)) == len(set(second)) and set(first) <= {"voiture", "auberge"}
    links = {(SENTENCES[a][1], SENTENCES[b][1]) for a, b in LINKS if b in SENTENCES}
    assert set(zip(first, second, strict=True)) <= links
    assert load_pairs_of_export(tmp_path, ["de-fr"])["de-fr"][0] != first  # the other way round
    assert load_pairs_of_export(tmp_path, ["fr-de"]) == {"fr-de": found["fr-de"]}
    monkeypatch.setattr("st_xlret.evaluation.tatoeba._SENTENCES_PER_PAIR", 1)
    assert len(load_pairs_of_export(tmp_path, ["fr-de"])["fr-de"][0]) == 1


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("sentences.csv", "x\tfra\tun", "sentences.csv, line 10"),
        ("sentences.csv", "10\tfra", "sentences.csv, line 10"),
        ("sentences.csv", "99999999999999\tfra\tun", "sentences.csv, line 10"),
        ("links.csv", "1", "links.csv, line 13"),
        ("links.csv", "1\t-2", "links.csv, line 13"),
    ],
)
def test_bad_lines_of_the_export_are_named(tmp_path: Path, file: str, line: str, message: str) -> None:
    with open(write_export(tmp_path) / file, "a") as out:
        out.write(f"{line}\n")
    with pytest.raises(DataError, match=message):
        load_pairs_of_export(tmp_path, ["fr-de"])


def test_pairs_without_sentences_are_named(tmp_path: Path, tatoeba_folder: Path) -> None:
    with pytest.raises(ValueError, match="de-zh"):
        load_pairs_of_export(write_export(tmp_path), ["fr-de", "de-zh"])
    with pytest.raises(ValueError, match="fr-de"):
        join_on_english({"fr": (["un"], ["one"]), "de": (["zwei"], ["two"])}, ["fr-de"])
    with pytest.raises(ValueError, match="zh"):
        TatoebaPairsEvaluator.from_directory(tatoeba_folder, ["fr-zh"])
    (tmp_path / "links.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"links\.csv"):
        TatoebaPairsEvaluator.from_directory(tmp_path, ["fr-de"])


def test_the_join_takes_each_sentence_once() -> None:
    english = ["one", "one", "two", "three", "four"]
    french = (["un", "une", "deux", "trois", "quatre"], english)
    german = (["eins", "zwei", "zwei", "drei"], ["one", "two", "three", "three"])
    found = join_on_english({"fr": french, "de": german}, ["fr-de", "de-fr"])
    assert found["fr-de"] == (["un", "deux"], ["eins", "zwei"])  # "zwei" is taken by "two"
    assert found["de-fr"] == (["eins", "zwei"], ["un", "deux"])


@pytest.mark.parametrize("pair", ["fr", "fr-", "fr-fr", "fr-de-en"])
def test_what_is_no_pair_is_refused(tatoeba_folder: Path, pair: str) -> None:
    with pytest.raises(ValueError, match=f"'{pair}'"):
        TatoebaPairsEvaluator.from_directory(tatoeba_folder, [pair])


def test_scores_by_hand(static_model, tatoeba_folder: Path) -> None:
    result = TatoebaPairsEvaluator.from_directory(tatoeba_folder, ["fr-de"]).evaluate(static_model)
    # German is aligned in its first three words of six.
    assert result.scores == {"fr-de": {"accuracy": 0.5, "accuracy_forward": 0.5, "accuracy_backward": 0.5}}
    assert result.benchmark == "tatoeba-pairs" and result.average["accuracy"] == 0.5
    assert result.protocol["sentences_per_language"] == "fr-de 6" and "English" in result.protocol["sentences"]
