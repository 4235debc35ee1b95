from __future__ import annotations

import sys
from pathlib import Path

import pytest

from st_xlret.data import DataError
from st_xlret.data.words.segmentation import fold, read_stop_words, split_words, stop_words, word_splitter


def words(text: str, language: str) -> list[str]:
    return [text[start:end] for start, end in split_words(text, language)]


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
        split_words("เรา", "th")
    assert words("we read", "en") == ["we", "read"]
    word_splitter.cache_clear()


def test_stop_words_are_those_of_the_language() -> None:
    assert "the" in stop_words("en") and "house" not in stop_words("en")
    assert "und" in stop_words("de") and "e" in stop_words("pt-br")
    assert stop_words("nb") == stop_words("no") and stop_words("no")
    assert stop_words("te") == frozenset()


def test_folding() -> None:
    assert fold("STRASSE") == fold("straße") and fold("Cafe\u0301") == "café"


def test_own_stop_words_are_named_after_their_language(tmp_path: Path) -> None:
    file = tmp_path / "short.pt-BR.txt"
    file.write_text("\ufeffUm\n\n  uma \n", encoding="utf-8")
    assert read_stop_words(file) == ("pt-br", {"um", "uma"})
    with pytest.raises(DataError, match="no such file.*en.txt"):
        read_stop_words(tmp_path / "en.txt")
    with pytest.raises(DataError, match="words.*is not named after a language, as en.txt is"):
        read_stop_words(tmp_path / "stop words.txt")
    latin = tmp_path / "fr.txt"
    latin.write_bytes("le\nété\n".encode("latin1"))
    with pytest.raises(DataError, match=r"fr\.txt, line 2: not UTF-8"):
        read_stop_words(latin)
