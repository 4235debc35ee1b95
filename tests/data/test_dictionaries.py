"""Dictionaries, words and stop words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from st_xlret.data import DataError
from st_xlret.data.dictionaries import (
    Dictionary,
    load_dictionaries,
    read_dictionary,
    read_stop_words,
    stop_words,
    word_splitter,
)
from tests.data.files import write_text


@pytest.mark.parametrize("name", ["en-de.txt", "words.en-de.tsv.gz"])
def test_both_layouts_are_read_packed_or_not(tmp_path: Path, name: str) -> None:
    file = write_text(tmp_path / name, "dog Hund\n\nguinea  pig\tMeerschweinchen\ndog Hund\r\nDog\tHund \n")
    dictionary = read_dictionary(file)
    assert dictionary.entries == [("dog", "Hund"), ("guinea pig", "Meerschweinchen"), ("Dog", "Hund")]
    assert (dictionary.source_language, dictionary.target_language, len(dictionary)) == ("en", "de", 3)


def test_several_files_are_one_dictionary(tmp_path: Path) -> None:
    files = [write_text(tmp_path / f"{i}.en-fr.tsv", text) for i, text in enumerate(["a\tb\n", "a\tb\nc\td\n"])]
    assert read_dictionary(files).entries == [("a", "b"), ("c", "d")]


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
        read_dictionary(file)
    dictionary = read_dictionary(file, skip_bad_lines=True)
    assert len(dictionary) == 2 and dictionary.bad_lines.bad_line_count == 1
    assert dictionary.bad_lines.bad_lines[0][:2] == (str(file), 2)


@pytest.mark.parametrize("encoding", ["latin1", "utf-16"])
def test_another_encoding_is_named_with_the_way_out(tmp_path: Path, encoding: str) -> None:
    file = write_text(tmp_path / "en-de.txt", "bear Bär\n", encoding)
    with pytest.raises(DataError, match=r"en-de\.txt, line 1: not UTF-8.*iconv -f"):
        read_dictionary(file)
    with pytest.raises(DataError, match=r"contains no entry\nbad lines skipped: \d, the first of them:\n.*not UTF-8"):
        read_dictionary(file, skip_bad_lines=True)


def test_what_is_no_dictionary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"en-de\.tsv contains no entry"):
        read_dictionary(write_text(tmp_path / "en-de.tsv", "\n\n"))
    with pytest.raises(DataError, match="is a directory"):
        read_dictionary(tmp_path)
    with pytest.raises(DataError, match="no such file"):
        read_dictionary(tmp_path / "nothing.tsv")
    with pytest.raises(DataError, match="does not end in"):
        read_dictionary(write_text(tmp_path / "words.csv", "a,b\n"))
    with pytest.raises(ValueError, match="target_language: unknown language code 'german'"):
        Dictionary("en", "german", [])


def test_languages_are_read_off_the_names(tmp_path: Path) -> None:
    files = [write_text(tmp_path / f"{name}.txt", f"dog {name}\n") for name in ("my-words.en-DE", "en-de", "en-fr")]
    dictionary = read_dictionary(files[:2])
    assert (dictionary.source_language, dictionary.target_language, len(dictionary)) == ("en", "de", 2)
    with pytest.raises(DataError, match=r"one language pair.*2.*en-fr\.txt"):
        read_dictionary(files)


def test_dictionaries_of_wanted_languages(tmp_path: Path) -> None:
    files = [write_text(tmp_path / f"{name}.tsv", "dog\tx\n") for name in ("en-de", "en-pt_BR", "my-words.en-fr")]
    assert [d.target_language for d in load_dictionaries(files)] == ["de", "pt-br", "fr"]
    assert [d.target_language for d in load_dictionaries(files, languages=["EN", "por", "fra"])] == ["pt-br", "fr"]
    with pytest.raises(DataError, match=r"between two of en, sw.*en-de\.tsv"):
        load_dictionaries(files, languages=["en", "sw"])
    with pytest.raises(DataError, match="no dictionaries"):
        load_dictionaries([])


ENGLISH = ["sun", "moon", "star", "rain", "wind", "snow", "tree", "leaf", "root", "fish", "bird", "wolf"]
FRENCH = ["soleil", "lune", "astre", "pluie", "vent", "neige", "arbre", "feuille", "racine", "poisson", "ours", "loup"]
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


def words(text: str, language: str) -> list[str]:
    return [text[start:end] for start, end in word_splitter(language)(text)]


@pytest.mark.parametrize(
    "text, language, expected",
    [
        ("It's 3.5 km, well-known!", "en", ["It", "s", "3", "5", "km", "well", "known"]),
        ("l'été déjà vu", "fr", ["l", "été", "déjà", "vu"]),
        ("cafe\u0301 noir", "fr", ["cafe\u0301", "noir"]),
        ("किताब पढ़ना", "hi", ["किताब", "पढ़ना"]),
        ("می\u200cروم", "fa", ["می\u200cروم"]),
        ("snake_case 😀 ok", "en", ["snake", "case", "ok"]),
        ("...", "en", []),
        ("", "en", []),
    ],
)
def test_words_are_runs_of_letters_marks_and_digits(text: str, language: str, expected: list[str]) -> None:
    assert words(text, language) == expected


@pytest.mark.parametrize(
    "text, language, expected",
    [
        ("今天我们去学校。", "zh", ["今天", "我们", "去", "学校"]),
        ("昨日、本を読む。", "ja", ["昨日", "本", "を", "読む"]),
        ("เราอ่านหนังสือ", "th", ["เรา", "อ่าน", "หนังสือ"]),
        ("用 Python 😀 学习", "zh-tw", ["用", "Python", "学习"]),
    ],
)
def test_languages_without_spaces_have_words_too(text: str, language: str, expected: list[str]) -> None:
    pytest.importorskip("icu4py")
    assert words(text, language) == expected


def test_a_missing_segmenter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "icu4py.breakers", None)
    word_splitter.cache_clear()
    with pytest.raises(ImportError, match=r"'th'.*st-xlret\[words\]"):
        word_splitter("th")("เรา")
    assert words("we read", "en") == ["we", "read"]
    word_splitter.cache_clear()


def test_stop_words_are_those_of_the_language() -> None:
    assert "the" in stop_words("en") and "house" not in stop_words("en")
    assert "und" in stop_words("de") and "e" in stop_words("pt-br")
    assert stop_words("nb") == stop_words("no") and stop_words("no")
    assert stop_words("te") == frozenset()


def test_own_stop_words_are_named_after_their_language(tmp_path: Path) -> None:
    file = tmp_path / "short.pt-BR.txt"
    file.write_text("\ufeffUm\n\n  uma \n", encoding="utf-8")
    assert read_stop_words(file) == ("pt-br", {"um", "uma"})
    with pytest.raises(ValueError, match="words"):
        read_stop_words(tmp_path / "stop words.txt")
