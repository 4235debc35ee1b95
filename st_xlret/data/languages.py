"""Language codes: checking and normalising them, reading them off file names, turning them into integers and back."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from st_xlret.data.lines import DataError

MAX_CODE_BYTES = 7
"""Longest code that fits into a signed 64-bit id with room for the sign (`zh-hans` has 7 bytes)."""

UNKNOWN = "und"
"""Undetermined, in ISO 639: for texts whose language does not matter."""

_LOOKS_LIKE_A_PAIR = re.compile(r"[A-Za-z]{2,3}-[A-Za-z]{2,3}")
_NOT_ONE_LANGUAGE = frozenset({"mis", "mul", "und", "zxx"})


def language_to_id(code: str) -> int:
    """Turn a language code into an integer that can travel in an int64 tensor: its ASCII bytes as one number.

    Whether the language exists is not checked, since this runs once per training row.

    Raises:
        ValueError: If `code` is empty, longer than 7 bytes, or not in the normal form of `check_language`.

    Example:
        >>> language_to_id("en"), id_to_language(25966)
        (25966, 'en')
    """
    if not 1 <= len(code) <= MAX_CODE_BYTES:
        raise ValueError(
            f"language code {code!r} has {len(code)} characters; ids exist for 1 to {MAX_CODE_BYTES}: "
            "drop the region or the script, for example 'zh-hant' for 'zh-hant-tw'"
        )
    if not _is_plain(code):
        raise ValueError(
            f"language code {code!r} is not lower-case ASCII letters, digits and hyphens; pass it through "
            "check_language first"
        )
    return int.from_bytes(code.encode("ascii"), "big")


def id_to_language(language_id: int) -> str:
    """Turn an id of `language_to_id` back into its language code.

    Raises:
        ValueError: If `language_id` is not the id of any code.
    """
    number = int(language_id)
    if number > 0 and number.bit_length() <= 8 * MAX_CODE_BYTES:
        code = number.to_bytes((number.bit_length() + 7) // 8, "big").decode("latin-1")
        if _is_plain(code):
            return code
    raise ValueError(f"{language_id!r} is not the id of a language code; ids come from language_to_id")


def check_language(code: str, *, where: str = "") -> str:
    """Check that `code` names a language, and return its normal form.

    The normal form is lower-case with hyphens, and two letters where ISO 639-1 has them (`"eng"` becomes `"en"`); a
    region, a script and the member of a macrolanguage (`"cmn"`) stay. `where` is the place to name in the error.

    Raises:
        ValueError: If `code` is no BCP 47 tag of one language, or longer than 7 bytes.

    Example:
        >>> check_language("zh-TW"), check_language("eng")
        ('zh-tw', 'en')
    """
    prefix = f"{where}: " if where else ""
    if not isinstance(code, str):
        hint = " (YAML reads the code no as False: write it in quotes)" if code is False else ""
        raise ValueError(f"{prefix}a language code must be a string, not {code!r}{hint}")
    normal_form = _normal_form(code)
    if normal_form is None:
        raise ValueError(
            f"{prefix}unknown language code {code!r}; use ISO 639-1 codes where they exist, such as 'en' or "
            "'pt-br' (the IANA language subtag registry lists them all)"
        )
    if len(normal_form) > MAX_CODE_BYTES:
        raise ValueError(
            f"{prefix}language code {code!r} is longer than {MAX_CODE_BYTES} bytes; drop the region or the "
            "script, for example 'zh-hant' for 'zh-hant-tw'"
        )
    return normal_form


def match_language(code: str, wanted: Iterable[str] | None) -> str | None:
    """Return the code under which a text in `code` is kept, or None if `wanted` leaves it out.

    An exact entry wins. Otherwise a bare language in `wanted` takes its variants in its usual script.

    Example:
        >>> match_language("pt-br", {"pt"}), match_language("pt-br", {"pt", "pt-br"}), match_language("zh-tw", {"zh"})
        ('pt', 'pt-br', None)
    """
    if wanted is None or code in wanted:
        return code
    primary = code.partition("-")[0]
    if primary in wanted and _usual_script(code) == _usual_script(primary):
        return primary
    return None


def find_language(code: str, known: Iterable[str]) -> str | None:
    """Find the language that a code means among known ones, whatever the codes look like.

    The region and the length of the code do not matter, and a member of a macrolanguage stands for it (`"cmn"` for
    `"zh"`). Returns one of `known`, as it is written there, or None.

    Example:
        >>> [find_language(code, ["fr", "ru", "zh"]) for code in ("rus", "fr-CA", "zh-Hans", "cmn", "zh-TW", "und")]
        ['ru', 'fr', 'zh', 'zh', None, None]
    """
    normal = _normal_form(code)
    if normal is None:
        return None
    names = {_normal_form(name) or name: name for name in known}
    if normal in names:
        return names[normal]
    alike = [name for name in names if _language_and_script(name) == _language_and_script(normal)]
    # A bare language before one with a region.
    return names[min(alike, key=lambda name: (len(name), name))] if alike else None


def check_languages(languages: Iterable[str] | str | None) -> frozenset[str] | None:
    """Check a language filter: None for all languages, otherwise a set of normal forms; a ValueError for a bad one."""
    if languages is None:
        return None
    codes = [languages] if isinstance(languages, str) else languages
    checked = frozenset(check_language(code, where="languages") for code in codes)
    if not checked:
        raise ValueError("languages is empty; pass None to keep every language")
    return checked


def languages_in_name(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Read the two languages in a file name such as `WORDS.en-fr.tsv.gz`, `en-fr.txt` or `X.en-zh_TW.tmx`.

    They are a part of the name between dots, with a hyphen between them. A region or script takes an underscore.

    Raises:
        DataError: If the name contains no two languages, an unknown code, or more than one possible language pair.

    Example:
        >>> languages_in_name("data/my-words.en-pt_BR.tsv.gz")
        ('en', 'pt-br')
    """
    name = Path(path).name
    parts = [part for part in name.split(".") if "-" in part]
    found: dict[tuple[str, str], None] = {}
    for part in parts:
        for place in (match.start() for match in re.finditer("-", part)):
            codes = _normal_form(part[:place]), _normal_form(part[place + 1 :])
            if codes[0] and codes[1]:
                found[codes[0], codes[1]] = None
    if len(found) == 1:
        source, target = next(iter(found))
        return check_language(source, where=name), check_language(target, where=name)
    if found:
        pairs = " or ".join(f"{source!r} and {target!r}" for source, target in found)
        raise DataError(
            f"{os.fspath(path)!r} does not say which languages it is in: it may be {pairs}; rename it, with an "
            "underscore before a region or script, such as WORDS.en-pt_BR.tsv"
        )
    for part in parts:
        unknown = [code for code in part.split("-") if _normal_form(code) is None]
        if _LOOKS_LIKE_A_PAIR.fullmatch(part) and len(unknown) == 1:
            raise DataError(
                f"{os.fspath(path)!r} names the unknown language {unknown[0]!r}; use ISO 639-1 codes where they exist, "
                "such as WORDS.en-fr.tsv.gz"
            )
    raise NoLanguagesError(f"{os.fspath(path)!r} does not name its two languages, as WORDS.en-fr.tsv.gz does")


class NoLanguagesError(DataError):
    """A file name has no part that looks like two languages."""


def language_in_name(path: str | os.PathLike[str]) -> str:
    """Read the language in a file name such as `en.txt` or `mine.pt-BR.txt`; a DataError if it names none."""
    stem = Path(path).name.removesuffix(".gz").rpartition(".")[0]
    try:
        return check_language(stem.rpartition(".")[2])
    except ValueError as error:
        raise DataError(f"{os.fspath(path)!r} is not named after a language, as en.txt is ({error})") from error


def _is_plain(code: str) -> bool:
    return code.isascii() and code == code.lower() and code.replace("-", "").isalnum()


@lru_cache(maxsize=4096)
def _normal_form(code: str) -> str | None:
    import langcodes

    tag = code.strip().lower().replace("_", "-")
    primary, separator, rest = tag.partition("-")
    if not 2 <= len(primary) <= 3 or primary in _NOT_ONE_LANGUAGE:
        return None
    try:
        if not langcodes.tag_is_valid(tag):
            return None
        standard = langcodes.standardize_tag(primary)
    except langcodes.LanguageTagError:
        return None
    if len(standard) == 2:
        primary = standard
    return primary + separator + rest


@lru_cache(maxsize=4096)
def _usual_script(code: str) -> str | None:
    import langcodes

    return langcodes.Language.get(code).maximize().script


@lru_cache(maxsize=4096)
def _language_and_script(code: str) -> tuple[str | None, str | None]:
    import langcodes

    language = langcodes.Language.get(langcodes.standardize_tag(code, macro=True))
    return language.language, language.maximize().script
