from typing import Any

import pytest

from st_xlret import languages
from st_xlret.field_names import find_fields
from st_xlret.languages import (
    LanguageIdentifier,
    check_language,
    id_to_language,
    language_to_id,
    match_language,
)

TEXTS = {
    "en": "The train leaves at nine in the morning.",
    "fr": "Le train part à neuf heures du matin.",
    "zh": "火车早上九点开。",
    "ru": "Поезд отправляется в девять утра.",
}


def test_ids_are_reversible_and_fit_int64() -> None:
    for code in ("en", "fr", "yue", "pt-br", "zh-hans", "es-419"):
        assert 0 < language_to_id(code) < 2**56 and id_to_language(language_to_id(code)) == code
    for code in ("", "zh-hant-tw", "EN", "é", "a b", "english"):
        with pytest.raises(ValueError, match=repr(code)):
            language_to_id(code)
    for number in (0, -1, 2**56, 0x45, 0xFF, 0x61):
        with pytest.raises(ValueError, match=str(number)):
            id_to_language(number)


def test_normal_forms() -> None:
    forms = {
        "pt_BR": "pt-br",
        "zh-Hans": "zh",
        "arb_Arab": "ar",
        "hi-Latn": "hi-latn",
        "tgl": "tl",
        "zh-TW": "zh-tw",
    }
    forms |= {
        " De ": "de",
        "ell": "el",
        "iw": "he",
        "cmn": "zh",
        "kzj": "kzj",
        "eng_Latn": "en",
        "zh-yue": "zh-yue",
    }
    assert {code: check_language(code) for code in forms} == forms
    assert languages.check_languages(None) is None and languages.check_languages("fra") == {"fr"}


def test_what_is_no_language_is_refused_by_value_and_place() -> None:
    none = (
        "xx1",
        "",
        "english",
        "xx",
        "und",
        "mul",
        "x-foo",
        "e",
        "en-",
        "日本",
        "zh-Hant-TW",
        "eng-fra",
        None,
        False,
    )
    for code in none:
        with pytest.raises(ValueError, match=f"a.jsonl, line 3: unknown language code {code!r}"):
            check_language(code, where="a.jsonl, line 3")
    for codes in (["en", "xx1"], []):
        with pytest.raises(ValueError, match="languages"):
            languages.check_languages(codes)


def test_a_bare_language_takes_its_variants_in_the_same_script() -> None:
    wanted = ("pt", "zh", "sr", "de", "de-at")
    kept_as = {
        "pt-br": "pt",
        "zh-hans": "zh",
        "zh-tw": None,
        "sr-latn": None,
        "fr": None,
        "de-at": "de-at",
    }
    assert {code: match_language(code, wanted) for code in kept_as} == kept_as
    assert match_language("pt", {"pt-br"}) is None and match_language("pt-br", None) == "pt-br"
    pairs = [("en-gb", "en-us"), ("sr", "sr-latn"), ("zh", "yue")]
    assert [languages.is_same_language(*pair) for pair in pairs] == [True, False, False]


def test_a_code_means_a_known_one_in_any_form() -> None:
    known = ["fr", "ru", "zh", "pt-br", "pt-PT"]
    codes = {
        "rus": "ru",
        "fr-CA": "fr",
        "cmn": "zh",
        "zh-Hant": None,
        "pt": "pt-br",
        "pt_pt": "pt-PT",
        "und": None,
    }
    assert {code: languages.find_language(code, known) for code in codes} == codes


def test_languages_are_read_off_a_name() -> None:
    in_name = {
        "data/my-words.en-fr.tsv.gz": ("en", "fr"),
        "tatoeba.ENG-rus.txt": ("en", "ru"),
        "X.en-zh_TW.tsv": ("en", "zh-tw"),
        "words.fr-CA-en.tsv": ("fr-ca", "en"),
        "words.en-zh-Hans.tsv": ("en", "zh"),
        "big-run-2.two-column.sw-en.v2-1.tsv": ("sw", "en"),
    }
    assert {name: languages.languages_in_name(name) for name in in_name} == in_name
    in_name = {
        "en.txt": "en",
        "a/mine.pt_BR.txt.gz": "pt-br",
        "sw.txt.xz": "sw",
        "pt-br.txt": "pt-br",
        "de-DE.txt": "de-de",
        "en-FR.txt": "en-fr",
        "zh-hant.txt": "zh-hant",
    }
    assert {name: languages.language_in_name(name) for name in in_name} == in_name
    ambiguous = ["my-words.tsv", "words.en-pt-br.tsv", "my-to.en-fr.tsv"]
    for name in (*ambiguous, "mined.tsv", "words.en-xx.tsv", "X.en-zh_Hant_TW.tsv"):
        with pytest.raises(ValueError, match=name):
            languages.languages_in_name(name)
    for name in ("words.txt", "en-fr.txt", "questions.de_en.txt", "fr-vi.txt.gz"):
        with pytest.raises(ValueError, match=name):
            languages.language_in_name(name)


def test_texts_are_identified_and_wrong_labels_found() -> None:
    pytest.importorskip("py3langid")
    codes = ["eng", "fr-CA", "zh-Hans", "ru"]
    assert [*map(LanguageIdentifier(codes).identify, TEXTS.values())] == codes
    with pytest.raises(ValueError, match="nah"):
        LanguageIdentifier(["nah"])
    labelled = {**TEXTS, "sw": TEXTS["fr"], "nah": "Niltze, quen tica?"}
    checked = languages.label_disagreements({code: [text] for code, text in labelled.items()})
    assert {code: share for code, (share, _, _) in checked.items()} == {
        "en": 0,
        "fr": 0,
        "zh": 0,
        "ru": 0,
        "sw": 1,
    }
    assert checked["sw"] == (1, "fr", TEXTS["fr"])


def test_a_language_has_one_spelling_and_missing_labels_are_none() -> None:
    for label in ("fr", "FR ", "fra", "fra_Latn", "fr-Latn", b"fr"):
        assert languages.language_of_label(label) == "fr"
        for record in ({"metadata": {"lang": label}, "language": " "}, {"lang": label}):
            assert languages.labelled_language(record) == "fr"
    for label in (
        None,
        float("nan"),
        "",
        "  ",
        "und",
        "None",
        "mul",
        b"unknown",
        "NaN",
        "NA",
        "n/a",
        "<NA>",
    ):
        assert (
            languages.language_of_label(label) is None
            and languages.labelled_language({"language": label}) is None
        )
    row = {
        "language": "health/tico19-PubMed_8",
        "code": "fra_Latn",
        "text": "Il pleut.",
        "n": 3,
        "und": "und",
    }
    with pytest.raises(ValueError, match="tico19.*look like languages: code$"):
        languages.labelled_language(row)


@pytest.mark.parametrize(
    "field", ["Language", "LANGUAGE", "Lang", "metadata.Language", "Metadata.LANG"]
)
def test_labels_are_found_whatever_the_case_of_their_field(field: str) -> None:
    outer, _, inner = field.partition(".")
    record = {outer: {inner: "fra_Latn"} if inner else "fra_Latn", "text": "Il pleut."}
    assert languages.labelled_language(record) == "fr"
    with pytest.raises(ValueError, match="'language' and 'Language' are names of one field"):
        languages.labelled_language({"Language": "fr", "language": "de"})
    assert languages.labelled_language({"Language": "fr", "language": None}) == "fr"
    assert languages.labelled_language({"Source_Language": "fr"}, "source_language") == "fr"
    assert languages.labelled_language({" language ": "fr"}) == "fr"


def test_fields_are_found_by_what_is_meant() -> None:
    names = ["n", "Données", "LANG", "lang"]
    assert find_fields(names, ["lang", "donne\u0301es"]) == ["lang", "LANG", "Données"]
    record = {"src": "en", "tgt": "fr", "source": "One."}
    with pytest.raises(ValueError, match="no language in the field 'x'; fields .*: src, tgt$"):
        languages.required_language(record, "x")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"Sprache": "de"}, {"Sprache": "fra_Latn"}], "Sprache"),
        ([{"meta": 3, "iso": None}, {"iso": "fr"}], "iso"),
        ([{"iso": "fr"}] * 200, "iso"),
        ([{"iso": "fr", "lang": "fr"}], None),
        ([{"iso": "fr", "lang": "no code"}], None),
        ([{"split": "dev"}, {"split": "dev"}], None),
        ([{"note": "Il pleut."}, {"note": "fr"}], None),
        ([3, None], None),
    ],
)
def test_a_field_that_looks_like_labels_is_named_where_none_is_read(
    rows: list[Any], said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    entries = list(enumerate(rows))
    passed = list(languages.warn_of_unread_labels(entries, "a.csv", "they are identified"))
    assert passed == entries
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == (said is not None)
    if said is not None:
        assert "a.csv: no text names its language" in warnings[0]
        assert f"they are identified; the field {said!r} looks like languages" in warnings[0]
