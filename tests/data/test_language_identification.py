from __future__ import annotations

import pytest

from st_xlret.data.language_identification import LanguageIdentifier, check_labels

TEXTS = {
    "en": ["The train leaves at nine in the morning.", "She has read this book twice already."],
    "fr": ["Le train part à neuf heures du matin.", "Elle a déjà lu ce livre deux fois."],
    "zh": ["火车早上九点开。", "她已经读过这本书两遍了。"],
    "ru": ["Поезд отправляется в девять утра.", "Она уже дважды прочитала эту книгу."],
}

pytest.importorskip("py3langid")


def test_texts_are_identified_among_the_languages_given() -> None:
    identifier = LanguageIdentifier(["eng", "fr-CA", "zh-Hans", "ru"])
    for wanted, texts in zip(["eng", "fr-CA", "zh-Hans", "ru"], TEXTS.values(), strict=True):
        assert [identifier.identify(text) for text in texts] == [wanted] * 2


def test_right_labels_are_agreed_with() -> None:
    check = check_labels(TEXTS)
    assert check.share == 0 and check.unknown == []


def test_wrong_labels_are_found_with_the_language_that_is_there() -> None:
    check = check_labels({**TEXTS, "sw": TEXTS["fr"]})
    assert check.disagreement["sw"] == 1
    assert check.found["sw"] == "fr" and check.examples["sw"] in TEXTS["fr"]


def test_languages_that_the_identifier_does_not_know_are_named_and_not_judged() -> None:
    check = check_labels({"en": TEXTS["en"], "nah": ["Niltze, quen tica?"]})
    assert check.unknown == ["nah"] and "nah" not in check.disagreement
    with pytest.raises(ValueError, match="nah"):
        LanguageIdentifier(["nah"])
