"""The labels that texts come with: which fields hold them, and the languages that they name."""

from collections.abc import Iterable, Mapping
from typing import Any

from st_xlret.languages.codes import NOT_ONE_LANGUAGE, check_language

# As Python, pandas and R write a missing value; "nan" would be Min Nan, and "NA" Nauruan, which is
# "na".
_MISSING_VALUES = {"", "none", "null", "nan", "nat", "<na>", "n/a", "NA", "unknown"}
_MISSING = NOT_ONE_LANGUAGE | _MISSING_VALUES | {"__hive_default_partition__"}
_LABELS = ("language", "lang", "metadata.language", "metadata.lang")


def language_of_label(value: Any) -> str | None:
    """The language of a text by its label, in normal form; None for a missing label.

    None, NaN, blanks, "unknown" and the like, and ISO 639's codes for no single language are
    missing; bytes are text. A `ValueError` refuses what is no code.
    """
    if isinstance(value, bytes):
        text = value.decode("utf-8", "replace").strip()
    else:
        text = str(value).strip()
    if text in _MISSING or text.lower() in _MISSING:
        return None
    return check_language(text)


def languages_of_labels(labels: Iterable[Any]) -> list[str]:
    """The language of each label in normal form, "" for a missing one.

    A `ValueError` refuses one that is no code.
    """
    code_of: dict[Any, str] = {}
    codes = []
    for label in labels:
        if label not in code_of:
            code_of[label] = language_of_label(label) or ""
        codes.append(code_of[label])
    return codes


def language_fields(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The fields of which all values in some rows, but missing ones, are languages.

    There the labels may be.
    """
    looks_so: dict[str, bool] = {}
    for row in rows:
        for name, value in row.items():
            try:
                language = language_of_label(value)
            except ValueError:
                looks_so[name] = False
            else:
                if language is not None:
                    looks_so.setdefault(name, True)
    return [name for name, is_language in looks_so.items() if is_language]


def language_of(record: Mapping[str, Any], *fields: str) -> str | None:
    """The language that a record names in the first of the fields that has one.

    The fields are by default `language` and `lang`, also in `metadata`. A `ValueError` refuses what
    is no code, and names the fields that have a language.
    """
    values = dict(record)
    metadata = record.get("metadata")
    if isinstance(metadata, Mapping):
        for name, value in metadata.items():
            values[f"metadata.{name}"] = value
    try:
        for field in fields or _LABELS:
            language = language_of_label(values.get(field))
            if language:
                return language
    except ValueError as error:
        others = language_fields([values])
        hint = f"; fields that look like languages: {', '.join(others)}" if others else ""
        raise ValueError(f"{error}{hint}") from error
    return None
