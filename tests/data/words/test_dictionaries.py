from __future__ import annotations

from pathlib import Path

import pytest

from st_xlret.data import DataError
from st_xlret.data.reading.jsonl import Limits
from st_xlret.data.words.dictionaries import Dictionary, load_dictionaries, read_dictionary
from tests.data.files import write_text


@pytest.mark.parametrize("name", ["en-de.txt", "en-de.txt.gz", "words.tsv", "words.tsv.gz"])
def test_both_layouts_are_read_packed_or_not(tmp_path: Path, name: str) -> None:
    file = write_text(tmp_path / name, "dog Hund\n\nguinea  pig\tMeerschweinchen\ndog Hund\r\nDog\tHund \n")
    dictionary = read_dictionary(file, "en", "de")
    assert dictionary.entries == [("dog", "Hund"), ("guinea pig", "Meerschweinchen"), ("Dog", "Hund")]
    assert (dictionary.source_language, dictionary.target_language, len(dictionary)) == ("en", "de", 3)


def test_several_files_are_one_dictionary(tmp_path: Path) -> None:
    files = [write_text(tmp_path / f"{i}.tsv", text) for i, text in enumerate(["a\tb\n", "a\tb\nc\td\n"])]
    assert read_dictionary(files, "en", "fr").entries == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    "line, reason",
    [
        ("dog", "expected 2 columns.*found 1"),
        ("guinea pig Meerschweinchen", "2 columns .*tab .*space.*found 3"),
        ("dog\tHund\tn", "found 3"),
        ("dog\t ", "one of the two columns is empty"),
        ("dog\tH\ufffdnd", "replacement character.*wrong encoding"),
    ],
)
def test_a_malformed_line_is_named_or_counted(tmp_path: Path, line: str, reason: str) -> None:
    file = write_text(tmp_path / "en-de.tsv", f"cat\tKatze\n{line}\nsun\tSonne\n")
    with pytest.raises(DataError, match=rf"en-de\.tsv, line 2: .*{reason}.*skip"):
        read_dictionary(file, "en", "de")
    dictionary = read_dictionary(file, "en", "de", skip_bad_lines=True)
    assert len(dictionary) == 2 and dictionary.bad_line_count == 1
    assert dictionary.bad_lines[0][:2] == (str(file), 2)


@pytest.mark.parametrize("encoding", ["latin1", "utf-16"])
def test_another_encoding_is_named_with_the_way_out(tmp_path: Path, encoding: str) -> None:
    file = write_text(tmp_path / "en-de.txt", "bear Bär\n", encoding)
    with pytest.raises(DataError, match=r"en-de\.txt, line 1: not UTF-8.*iconv -f"):
        read_dictionary(file, "en", "de")
    with pytest.raises(DataError, match=r"contains no entry; \d bad lines were skipped: not UTF-8"):
        read_dictionary(file, "en", "de", skip_bad_lines=True)


def test_what_is_no_dictionary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"empty\.tsv contains no entry"):
        read_dictionary(write_text(tmp_path / "empty.tsv", "\n\n"), "en", "de")
    with pytest.raises(DataError, match="is a directory"):
        read_dictionary(tmp_path, "en", "de")
    with pytest.raises(DataError, match="no such file"):
        read_dictionary(tmp_path / "nothing.tsv", "en", "de")
    with pytest.raises(DataError, match="does not end in"):
        read_dictionary(write_text(tmp_path / "words.csv", "a,b\n"), "en", "de")
    with pytest.raises(ValueError, match="target_language: unknown language code 'german'"):
        Dictionary("en", "german", [])


def test_languages_are_read_off_the_names(tmp_path: Path) -> None:
    files = [write_text(tmp_path / f"{name}.txt", f"dog {name}\n") for name in ("my-words.en-DE", "en-de", "en-fr")]
    dictionary = read_dictionary(files[:2])
    assert (dictionary.source_language, dictionary.target_language, len(dictionary)) == ("en", "de", 2)
    with pytest.raises(DataError, match=r"one language pair.*2.*en-fr\.txt"):
        read_dictionary(files)
    with pytest.raises(ValueError, match="'en' and None"):
        read_dictionary(files[0], "en")


def test_dictionaries_of_wanted_languages(tmp_path: Path) -> None:
    files = [write_text(tmp_path / f"{name}.tsv", "dog\tx\n") for name in ("en-de", "en-pt_BR", "my-words.en-fr")]
    assert [d.target_language for d in load_dictionaries(files)] == ["de", "pt-br", "fr"]
    assert [d.target_language for d in load_dictionaries(files, languages=["EN", "por", "fra"])] == ["pt-br", "fr"]
    with pytest.raises(DataError, match=r"between two of en, sw.*en-de\.tsv"):
        load_dictionaries(files, languages=["en", "sw"])
    with pytest.raises(DataError, match="no dictionaries"):
        load_dictionaries([])


def test_swapping_and_digest() -> None:
    dictionary = Dictionary("en", "de", [("dog", "Hund")])
    back = dictionary.swapped()
    assert (back.source_language, back.target_language, back.entries) == ("de", "en", [("Hund", "dog")])
    assert back.swapped() == dictionary
    assert len({dictionary.digest(), back.digest(), Dictionary("en", "fr", [("dog", "Hund")]).digest()}) == 3


ENGLISH = ["sun", "moon", "star", "rain", "wind", "snow", "tree", "leaf", "root", "fish", "bird", "wolf"]
FRENCH = [
    "soleil",
    "lune",
    "astre",
    "pluie",
    "vent",
    "neige",
    "arbre",
    "feuille",
    "racine",
    "poisson",
    "oiseau",
    "loup",
]
RUSSIAN = ["солнце", "луна", "звезда", "дождь", "ветер", "снег", "дерево", "лист", "корень", "рыба", "птица", "волк"]


@pytest.mark.parametrize("code, foreign", [("fr", FRENCH), ("ru", RUSSIAN)])
def test_the_wrong_direction_is_noticed(code: str, foreign: list[str]) -> None:
    entries = list(zip(ENGLISH, foreign, strict=True))
    sentences = [" ".join(ENGLISH).title()], [", ".join(foreign)]
    Dictionary("en", code, entries).check_direction(*sentences)
    wrong = Dictionary("en", code, [(b, a) for a, b in entries], "words.en.tsv")
    message = rf"words\.en\.tsv.*24 words.*0 in their own; did you mean to swap.*from '{code}' to 'en'"
    with pytest.raises(DataError, match=message):
        wrong.check_direction(*sentences)


def test_few_or_shared_words_do_not_condemn_a_dictionary() -> None:
    shared = [(word, word) for word in ENGLISH]
    Dictionary("en", "fr", shared).check_direction([" ".join(ENGLISH)], [" ".join(FRENCH)])
    Dictionary("en", "fr", [("soleil", "sun")]).check_direction(["sun"], ["soleil"])
    Dictionary("en", "fr", []).check_direction(["sun"], ["soleil"])


def test_a_line_over_the_limit_is_named_or_counted(tmp_path: Path) -> None:
    file = tmp_path / "words.en-de.tsv"
    file.write_text(f"dog\tHund\n{'x' * 300}\tLangwort\n", encoding="utf-8")
    limits = Limits(line_bytes=100)
    with pytest.raises(DataError, match="words.en-de.tsv, line 2"):
        load_dictionaries([file], limits=limits)
    (dictionary,) = load_dictionaries([file], limits=limits, skip_bad_lines=True)
    assert dictionary.entries == [("dog", "Hund")]
