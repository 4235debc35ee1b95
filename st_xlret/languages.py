"""Language codes: checked, matched, read off file names, as integers; and the language of texts that name none."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from st_xlret.optional import import_optional

MAX_CODE_BYTES = 7
"""Longest code that fits into a signed 64-bit id with room for the sign (`zh-hant` has 7 bytes)."""

UNKNOWN = "und"  # undetermined, in ISO 639: for texts whose language does not matter

_NOT_ONE_LANGUAGE = frozenset({"mis", "mul", UNKNOWN, "zxx"})
# As Python, pandas and R write a missing value; "nan" would be Min Nan, and "NA" Nauruan, which is "na".
_MISSING = _NOT_ONE_LANGUAGE | {"", "none", "null", "nan", "nat", "<na>", "n/a", "NA", "unknown"}
_MISSING |= {"__hive_default_partition__"}
_LABELS = ("language", "lang", "metadata.language", "metadata.lang")
_CLEAR = 0.95  # probability: of 3,600 sentences of TICO-19, none above it is wrong


def language_to_id(code: str) -> int:
    """Turn a language code in normal form into an integer that fits an int64 tensor: its ASCII bytes as one number."""
    return int.from_bytes(_check_code_of_id(code, shown=code).encode("ascii"), "big")


def id_to_language(language_id: int) -> str:
    """Turn an id of `language_to_id` back into its language code; a ValueError for other numbers."""
    number = int(language_id)
    code = (
        number.to_bytes((number.bit_length() + 7) // 8, "big").decode("latin-1")
        if number > 0
        else ""
    )
    return _check_code_of_id(code, shown=language_id)


def check_language(code: str, *, where: str = "") -> str:
    """Check that `code` names a language, and return its normal form.

    The normal form is lower-case with hyphens, and two letters where ISO 639-1 has them: `"eng_Latn"` becomes `"en"`,
    `"cmn"` `"zh"`. A region stays, and a script that is not the usual one. What is no BCP 47 tag of one language, or
    longer than 7 bytes, is refused by a ValueError, which begins with `where`.
    """
    normal = normal_form(code) if isinstance(code, str) else None
    if (
        normal is None or len(normal) > MAX_CODE_BYTES or normal == "nan"
    ):  # pandas's missing value; Min Nan is nan-tw
        prefix = f"{where}: " if where else ""
        way_out = f"use one of at most {MAX_CODE_BYTES} characters, such as 'en' or 'pt-br', of IANA's language subtags"
        raise ValueError(f"{prefix}unknown language code {code!r}; {way_out}")
    return normal


def language_of_label(value: Any) -> str | None:
    """The language of a text by its label, in normal form; None for a missing label. A ValueError if it is no code.

    None, NaN, blanks, "unknown" and the like, and ISO 639's codes for no single language are missing; bytes are text.
    """
    text = (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)).strip()
    return None if {text, text.lower()} & _MISSING else check_language(text)


def languages_of_labels(labels: Iterable[Any]) -> list[str]:
    """The language of each label in normal form, "" for a missing one; a ValueError for one that is no code."""
    values = list(labels)
    code_of = {label: language_of_label(label) or "" for label in {*values}}
    return [code_of[label] for label in values]


def language_fields(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The fields of which all values in some rows, but missing ones, are languages: where the labels may be."""
    looks_so: dict[str, bool] = {}
    for name, value in ((name, value) for row in rows for name, value in row.items()):
        try:
            if language_of_label(value) is not None:
                looks_so.setdefault(name, True)
        except ValueError:
            looks_so[name] = False
    return [name for name, is_language in looks_so.items() if is_language]


def language_of(record: Mapping[str, Any], *fields: str) -> str | None:
    """The language that a record names in the first of the fields that has one; a ValueError if it is no code.

    The fields are by default `language` and `lang`, also in `metadata`. The error names those that have a language.
    """
    metadata, values = record.get("metadata"), dict(record)
    if isinstance(metadata, Mapping):
        values |= {f"metadata.{name}": value for name, value in metadata.items()}
    try:
        return next(
            filter(None, (language_of_label(values.get(field)) for field in fields or _LABELS)),
            None,
        )
    except ValueError as error:
        others = language_fields([values])
        hint = f"; fields that look like languages: {', '.join(others)}" if others else ""
        raise ValueError(f"{error}{hint}") from error


def check_languages(languages: Iterable[str] | str | None) -> frozenset[str] | None:
    """Check a language filter: None for all languages, otherwise a set of normal forms; a ValueError for a bad one."""
    if languages is None:
        return None
    codes = [languages] if isinstance(languages, str) else list(languages)
    return frozenset(check_language(code, where="languages") for code in codes or [""])


def match_language(code: str, wanted: Iterable[str] | None) -> str | None:
    """The code of `wanted` under which a text in `code` is kept: this one, or the bare language in the same script.

    With `{"pt", "zh"}`, `"pt-br"` is kept as `"pt"`, and `"zh-tw"` is not kept (None).
    """
    if wanted is None or code in wanted:
        return code
    primary = code.partition("-")[0]
    return primary if primary in wanted and is_same_language(code, primary) else None


def is_same_language(one: str, other: str) -> bool:
    """Whether two codes in normal form differ in the region alone, as `en-gb` and `en-us` do; a script counts."""
    return one.partition("-")[0] == other.partition("-")[0] and _language_and_script(
        one
    ) == _language_and_script(other)


def find_language(code: str, known: Iterable[str]) -> str | None:
    """Find the language that a code means among known ones, as it is written there, or None.

    The region and the length of the code do not matter, and a member of a macrolanguage stands for it: `"fr-CA"` means
    `"fr"` and `"cmn"` means `"zh"`, but `"zh-TW"`, in another script, does not.
    """
    normal = normal_form(code)
    if normal is None:
        return None
    names = {spelt: name for name in known if (spelt := normal_form(name))}
    if normal in names:
        return names[normal]
    alike = [name for name in names if _language_and_script(name) == _language_and_script(normal)]
    # A bare language before one with a region.
    return names[min(alike, key=lambda name: (len(name), name))] if alike else None


def languages_in_name(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Read the two languages in a file name such as `WORDS.en-fr.tsv.gz`, `en-fr.txt` or `X.en-zh_TW.tsv`.

    They are a part of the name between dots, with a hyphen between them. A region or script takes an underscore. A
    ValueError refuses a name with no such pair, or several.
    """
    splits = (
        (part, hyphen) for part in Path(path).name.split(".") for hyphen in re.finditer("-", part)
    )
    both = (
        (normal_form(part[: hyphen.start()]), normal_form(part[hyphen.end() :]))
        for part, hyphen in splits
    )
    pairs = list(dict.fromkeys((source, target) for source, target in both if source and target))
    if len(pairs) != 1:
        doubt = f": it may be {' or '.join(map(str, pairs))}" if pairs else ""
        raise ValueError(
            f"{os.fspath(path)!r} does not name its two languages, as WORDS.en-pt_BR.tsv does{doubt}"
        )
    source, target = pairs[0]
    return check_language(source, where=str(path)), check_language(target, where=str(path))


def language_in_name(path: str | os.PathLike[str]) -> str:
    """Read the language in a file name such as `en.txt` or `mine.pt-BR.txt`; a ValueError if it names none."""
    return check_language(
        Path(path).name.removesuffix(".gz").rpartition(".")[0].rpartition(".")[2], where=str(path)
    )


class LanguageIdentifier:
    """Tells the language of a text by py3langid, whose model of 140 languages is a part of that package.

    Args:
        languages: Languages to choose from. A text gets one of these codes. By default all that it knows; a text that
            is not clear then gets one of the languages of the clear texts before it. `unknown` has those that py3langid
            does not know, and never finds; a ValueError if it is all of them.
    """

    def __init__(self, languages: Iterable[str] | None = None) -> None:
        langid = import_optional(
            "py3langid.langid", extra="langid", needed_for="identifying languages"
        )
        self._model = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
        labels = list(self._model.labels)
        codes = labels if languages is None else list(languages)
        label_of = {code: find_language(code, labels) for code in codes}
        self._code_of = {label: code for code, label in label_of.items() if label is not None}
        self.unknown = [code for code, label in label_of.items() if label is None]
        if not self._code_of:
            raise ValueError(f"the identifier knows none of the languages {', '.join(codes)}")
        self._model.set_languages(list(self._code_of))
        self._clear: set[str] | None = set() if languages is None else None

    def identify(self, text: str, wanted: Iterable[str] = ()) -> str:
        """The language of a text, as it is written in `wanted` if it is one of these."""
        label, probability = self._model.classify(text)
        if self._clear is not None:
            if probability >= _CLEAR:
                self._clear.add(label)
            elif self._clear:
                label = next(other for other, _ in self._model.rank(text) if other in self._clear)
        return find_language(self._code_of[label], wanted) or self._code_of[label]


def language_identifier_or_none(languages: Iterable[str]) -> LanguageIdentifier | None:
    """An identifier of these languages, or of all; None without the extra `langid`, or where it lacks one of them."""
    with suppress(ImportError, ValueError):
        identifier = LanguageIdentifier(sorted(languages) or None)
        return None if languages and identifier.unknown else identifier
    return None


def label_disagreements(texts: Mapping[str, Sequence[str]]) -> dict[str, tuple[float, str, str]]:
    """Compare the language labels of texts (language -> texts) with what an identifier finds.

    Gives language -> the share of its texts that the identifier takes for another language (a few percent are usual),
    the one that it takes them for most often, and one of these texts. Languages that it does not know are left out.
    """
    two_letters = [label for label in LanguageIdentifier()._code_of if len(label) == 2]
    labelled = {find_language(code, two_letters) for code in texts}
    identifier = LanguageIdentifier(
        [*texts, *(label for label in two_letters if label not in labelled)]
    )
    checked = {}
    for code in [code for code in texts if texts[code] and code not in identifier.unknown]:
        guesses = [identifier.identify(text) for text in texts[code]]
        wrong = Counter(guess for guess in guesses if guess != code)
        other = wrong.most_common(1)[0][0] if wrong else code
        checked[code] = wrong.total() / len(guesses), other, texts[code][guesses.index(other)]
    return checked


def _check_code_of_id(code: str, *, shown: object) -> str:
    """The code, if an id holds it; else a `ValueError` that shows the code or the id."""
    is_code = code == UNKNOWN or (
        normal_form(code) and code == code.strip().lower().replace("_", "-")
    )
    if not is_code or len(code) > MAX_CODE_BYTES:
        raise ValueError(
            f"{shown!r} is no language code of {MAX_CODE_BYTES} lower-case characters at most, nor its id"
        )
    return code


@lru_cache(maxsize=4096)
def normal_form(code: str) -> str | None:
    """The code in normal form; None if it names no single language."""
    import langcodes

    primary, separator, rest = code.strip().lower().replace("_", "-").partition("-")
    if not 2 <= len(primary) <= 3 or primary in _NOT_ONE_LANGUAGE:
        return None
    try:
        standard = langcodes.standardize_tag(primary, macro=True)
        if not langcodes.tag_is_valid(primary + separator + rest):
            return None
        script, _, others = rest.partition("-")
        other = (
            langcodes.standardize_tag(script, macro=True)
            if len(script) == 3 and script.isalpha()
            else standard
        )
        if len(other) == 2 and other != standard:
            return None  # two languages, as in "eng-fra"
    except langcodes.LanguageTagError:
        return None
    primary = "tl" if standard == "fil" else standard if len(standard) == 2 else primary
    is_usual = script == (langcodes.Language.get(primary).maximize().script or "").lower()
    return "-".join(filter(None, (primary, others if is_usual else rest)))


@lru_cache(maxsize=4096)
def _language_and_script(code: str) -> tuple[str | None, str | None]:
    """The language, or the macrolanguage that it is a member of, and the script that it is usually written in."""
    import langcodes

    language = langcodes.Language.get(langcodes.standardize_tag(code, macro=True))
    return language.language, language.maximize().script
