from __future__ import annotations

import pytest

from st_xlret.data.languages import (
    check_language,
    check_languages,
    id_to_language,
    language_to_id,
    languages_in_name,
    match_language,
)


@pytest.mark.parametrize("code", ["en", "fr", "sw", "yue", "pt-br", "zh-tw", "zh-hans", "es-419"])
def test_ids_are_reversible_and_fit_int64(code: str) -> None:
    number = language_to_id(code)
    assert 0 < number < 2**56
    assert id_to_language(number) == code and language_to_id("en") == 0x656E


@pytest.mark.parametrize("code", ["", "zh-hant-tw", "EN", "é", "a b"])
def test_no_id_for_what_is_no_normal_form(code: str) -> None:
    with pytest.raises(ValueError, match="language code"):
        language_to_id(code)


@pytest.mark.parametrize("number", [0, -1, 2**56, 0x45, 0xFF])
def test_no_language_for_other_numbers(number: int) -> None:
    with pytest.raises(ValueError, match="not the id of a language"):
        id_to_language(number)


@pytest.mark.parametrize(
    ("code", "normal_form"),
    [
        ("en", "en"),
        ("pt_BR", "pt-br"),
        ("zh-Hans", "zh-hans"),
        (" De ", "de"),
        ("ell", "el"),
        ("iw", "he"),
        ("cmn", "cmn"),
        ("kzj", "kzj"),
    ],
)
def test_normal_forms(code: str, normal_form: str) -> None:
    assert check_language(code) == normal_form


@pytest.mark.parametrize("code", ["xx1", "", "english", "xx", "und", "mul", "x-foo", "e", "en-", "日本"])
def test_what_is_no_language_is_refused_by_value_and_place(code: str) -> None:
    with pytest.raises(ValueError, match=f"a.jsonl, line 3: unknown language code {code!r}"):
        check_language(code, where="a.jsonl, line 3")


@pytest.mark.parametrize(
    ("code", "wanted", "kept_as"),
    [
        ("pt-br", None, "pt-br"),
        ("pt", {"pt-br"}, None),
        ("zh-hans", {"zh"}, "zh"),
        ("zh-tw", {"zh", "zh-tw"}, "zh-tw"),
        ("sr-latn", {"sr"}, None),
        ("fr", {"pt"}, None),
    ],
)
def test_a_bare_language_takes_its_variants_in_the_same_script(
    code: str, wanted: set[str] | None, kept_as: str | None
) -> None:
    assert match_language(code, wanted) == kept_as


def test_filters() -> None:
    with pytest.raises(ValueError, match="'zh-Hant-TW' is longer than 7 bytes"):
        check_language("zh-Hant-TW")
    with pytest.raises(ValueError, match="must be a string, not None"):
        check_language(None)  # type: ignore[arg-type]
    assert check_languages(None) is None
    assert check_languages("fr") == {"fr"}
    with pytest.raises(ValueError, match="languages: unknown language code 'xx1'"):
        check_languages(["en", "xx1"])
    with pytest.raises(ValueError, match="languages is empty"):
        check_languages([])


@pytest.mark.parametrize(
    ("name", "languages"),
    [
        ("WikiMatrix.en-fr.tsv.gz", ("en", "fr")),
        ("data/my-words.en-fr.tsv", ("en", "fr")),
        ("en-fr.txt", ("en", "fr")),
        ("tatoeba.ENG-rus.txt", ("en", "ru")),
        ("OpenSubtitles.en-zh_TW.tsv", ("en", "zh-tw")),
        ("words.fr-CA-en.tsv", ("fr-ca", "en")),
        ("words.en-zh-Hans.tsv", ("en", "zh-hans")),
        ("big-run-2.two-column.sw-en.v2-1.tsv", ("sw", "en")),
    ],
)
def test_languages_are_read_off_a_name(name: str, languages: tuple[str, str]) -> None:
    assert languages_in_name(name) == languages


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("mined.tsv", "mined.tsv.*does not name"),
        ("my-words.tsv", "my-words.tsv.*does not name"),
        ("words.en-xx.tsv", "unknown language 'xx'"),
        ("words.qq-de.tsv", "unknown language 'qq'"),
        ("words.en-pt-br.tsv", "'en' and 'pt-br' or 'en-pt' and 'br'"),
        ("my-to.en-fr.tsv", "'my' and 'to' or 'en' and 'fr'"),
        ("words.en-zh_Hant_TW.tsv", "'zh-hant-tw'.*7 bytes"),
    ],
)
def test_missing_unknown_and_ambiguous_languages_are_refused(name: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        languages_in_name(name)
