"""Language codes: their normal form, which are alike, and as integers."""

from collections.abc import Iterable
from functools import lru_cache

MAX_CODE_BYTES = 7
"""Longest code that fits into a signed 64-bit id with room for the sign (`zh-hant` has 7 bytes)."""

UNKNOWN = "und"  # undetermined, in ISO 639: for texts whose language does not matter

NOT_ONE_LANGUAGE = frozenset({"mis", "mul", UNKNOWN, "zxx"})
"""The codes of ISO 639 that name no single language."""


def language_to_id(code: str) -> int:
    """Turn a language code in normal form into an integer that fits an int64 tensor.

    It is the code's ASCII bytes as one number, also in the banks of checkpoints.
    """
    _check_code_of_id(code, shown=code)
    return int.from_bytes(code.encode("ascii"), "big")


def id_to_language(language_id: int) -> str:
    """Turn an id of `language_to_id` back into its language code.

    A `ValueError` refuses other numbers.
    """
    number = int(language_id)
    code = ""
    if number > 0:
        size = (number.bit_length() + 7) // 8
        code = number.to_bytes(size, "big").decode("latin-1")
    _check_code_of_id(code, shown=language_id)
    return code


def _check_code_of_id(code: str, *, shown: object) -> None:
    """Raise a `ValueError` that shows the code, or the id, of a code that no id holds."""
    if code == UNKNOWN:
        return
    is_spelled_so = code == _spelled(code)
    is_code = is_spelled_so and normal_code_or_none(code) is not None
    if not is_code or len(code) > MAX_CODE_BYTES:
        expected = f"language code of {MAX_CODE_BYTES} lower-case characters at most"
        raise ValueError(f"{shown!r} is no {expected}, nor its id")


def _spelled(code: str) -> str:
    """A code as ids hold it: in lower case, with hyphens."""
    return code.strip().lower().replace("_", "-")


@lru_cache(maxsize=4096)
def normal_code_or_none(code: str) -> str | None:
    """The code in normal form; None if it names no single language."""
    import langcodes

    primary, separator, rest = _spelled(code).partition("-")
    if not 2 <= len(primary) <= 3 or primary in NOT_ONE_LANGUAGE:
        return None
    try:
        standard = langcodes.standardize_tag(primary, macro=True)
        is_valid = langcodes.tag_is_valid(primary + separator + rest)
        if not is_valid or _names_two_languages(standard, rest):
            return None
    except langcodes.LanguageTagError:
        return None
    if standard == "fil":
        primary = "tl"
    elif len(standard) == 2:
        primary = standard
    script, _, others = rest.partition("-")
    usual_script = langcodes.Language.get(primary).maximize().script or ""
    if script == usual_script.lower():
        rest = others
    return f"{primary}-{rest}" if rest else primary


def language_form(code: object) -> str:
    """The normal form of a language; what is no language code stays as it is."""
    text = str(code)
    return normal_code_or_none(text) or text


def _names_two_languages(standard: str, rest: str) -> bool:
    """Whether another language follows the first, as in `eng-fra`."""
    import langcodes

    following = rest.partition("-")[0]
    if len(following) != 3 or not following.isalpha():
        return False
    other = langcodes.standardize_tag(following, macro=True)
    return len(other) == 2 and other != standard


def check_language(code: object, *, where: str = "") -> str:
    """Check that `code` names a language, and return its normal form.

    The normal form is lower-case with hyphens, and two letters where ISO 639-1 has them:
    `"eng_Latn"` becomes `"en"`, `"cmn"` `"zh"`. A region stays, and a script that is not the usual
    one. What is no BCP 47 tag of one language, or longer than 7 bytes, is refused by a ValueError,
    which begins with `where`.
    """
    normal = normal_code_or_none(code) if isinstance(code, str) else None
    # "nan" is pandas's missing value; Min Nan is nan-tw.
    if normal is None or len(normal) > MAX_CODE_BYTES or normal == "nan":
        prefix = f"{where}: " if where else ""
        size = f"at most {MAX_CODE_BYTES} characters, such as 'en' or 'pt-br'"
        raise ValueError(
            f"{prefix}unknown language code {code!r}; use one of {size}, of IANA's language subtags"
        )
    return normal


def check_languages(languages: Iterable[str] | str | None) -> frozenset[str] | None:
    """Check a language filter: None for all languages, otherwise a set of normal forms.

    A `ValueError` refuses a bad one.
    """
    if languages is None:
        return None
    codes = [languages] if isinstance(languages, str) else list(languages)
    # None at all are refused as a missing one.
    return frozenset(check_language(code, where="languages") for code in codes or [""])


def match_language(code: str, wanted: Iterable[str] | None) -> str | None:
    """The code of `wanted` under which a text in `code` is kept.

    It is this one, or the bare language in the same script. With `{"pt", "zh"}`, `"pt-br"` is kept
    as `"pt"`, and `"zh-tw"` is not kept (None).
    """
    if wanted is None or code in wanted:
        return code
    primary = primary_code(code)
    if primary in wanted and is_same_language(code, primary):
        return primary
    return None


def primary_code(code: str) -> str:
    """The language of a code in any spelling, in lower case, without region and script."""
    return code.lower().replace("_", "-").partition("-")[0]


def is_same_language(one: str, other: str) -> bool:
    """Whether two codes in normal form differ in the region alone, as `en-gb` and `en-us` do.

    A script counts.
    """
    if primary_code(one) != primary_code(other):
        return False
    return _language_and_script(one) == _language_and_script(other)


def find_language(code: str, known: Iterable[str]) -> str | None:
    """Find the language that a code means among known ones, as it is written there, or None.

    The region and the length of the code do not matter, and a member of a macrolanguage stands for
    it: `"fr-CA"` means `"fr"` and `"cmn"` means `"zh"`, but `"zh-TW"`, in another script, does not.
    """
    normal = normal_code_or_none(code)
    if normal is None:
        return None
    names = {}
    for name in known:
        spelled = normal_code_or_none(name)
        if spelled:
            names[spelled] = name
    if normal in names:
        return names[normal]
    meant = _language_and_script(normal)
    alike = [name for name in names if _language_and_script(name) == meant]
    if not alike:
        return None
    # A bare language before one with a region.
    return names[min(alike, key=lambda name: (len(name), name))]


@lru_cache(maxsize=4096)
def _language_and_script(code: str) -> tuple[str | None, str | None]:
    """The language, or the macrolanguage of it, and the script that it is usually written in."""
    import langcodes

    language = langcodes.Language.get(langcodes.standardize_tag(code, macro=True))
    return language.language, language.maximize().script
