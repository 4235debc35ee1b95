from __future__ import annotations

import pytest

from st_xlret.data.text import fold, normalise_text, split_sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Dr. Smith went home.", "He slept!", "Did he?", "It costs 3.5 dollars."]),
        ("de", ["Am 3. Mai kam Hr. Meier.", "Das ist z.B. gut.", "Ja?"]),
        ("pt-br", ["O Sr. Silva saiu.", "Voltou tarde."]),
        ("ar", ["ذهبت إلى البيت.", "هل أنت هنا؟", "نعم!"]),
        ("hi", ["मैं घर गया।", "वह सो गया।", "क्या तुम हो?"]),
        ("ko", ["그는 갔다.", "반갑습니다."]),
        ("sw", ["Habari yako.", "Nzuri sana."]),
        ("ig", ["Nke a bụ otu.", "Nke a bụ abụọ."]),
    ],
)
def test_languages_with_spaces_between_sentences(language: str, sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences), language) == sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("zh", ["今天天气很好。", "我们去公园吧！", "你来吗？"]),
        ("zh-tw", ["你好。", "再見。"]),
        ("ja", ["今日は天気がいい。", "公園に行こう！"]),
    ],
)
def test_languages_without_spaces(language: str, sentences: list[str]) -> None:
    assert split_sentences("".join(sentences), language) == sentences


def test_thai_text_becomes_runs_of_whole_phrases() -> None:
    phrases = ["วันนี้อากาศดีมากจริง", "เราไปสวนสาธารณะกันเถอะ", "คุณจะมาด้วยไหม"] * 5
    text = " ".join(phrases)
    runs = split_sentences(text, "th")
    assert len(runs) > 1
    assert " ".join(runs) == text
    assert all(len(run) >= 60 for run in runs)
    assert split_sentences("วันนี้อากาศดี", "th") == ["วันนี้อากาศดี"]


def test_white_space_is_unified_and_blank_lines_end_sentences() -> None:
    assert split_sentences("  A line\nthat goes on.\tNext\n \nA title\n\nText. ", "en") == [
        "A line that goes on.",
        "Next",
        "A title",
        "Text.",
    ]


@pytest.mark.parametrize("text", ["", " \n\t "])
def test_no_text_gives_no_sentences(text: str) -> None:
    assert split_sentences(text, "en") == []


@pytest.mark.parametrize(
    ("one", "other"),
    [("“Hello”, World!", "hello world"), ("ＡＢＣ１", "abc1"), ("zero\u200bwidth", "zerowidth"), ("की, का।", "कीका")],
)
def test_texts_that_are_nearly_equal(one: str, other: str) -> None:
    assert normalise_text(one) == normalise_text(other) != normalise_text(f"{other}é")
    assert fold("STRASSE") == fold("straße") and fold("Cafe\u0301") == "café"
