"""The labels that texts come with: which fields hold them, and the languages that they name."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from st_xlret.field_names import unique_fields
from st_xlret.languages.codes import NOT_ONE_LANGUAGE, check_language

LABEL_FIELDS = ("language", "lang")
"""The fields of labels, in any case: `Language` is one of them."""

LABEL_PATHS = (*LABEL_FIELDS, *(f"metadata.{field}" for field in LABEL_FIELDS))
"""Where labels are looked for, in this order."""

WORDS_FOR_MISSING = frozenset({"", "none", "null", "nan"})
"""How Python, JSON and pandas write a missing value, in lower case."""

_logger = logging.getLogger(__name__)
# Of labels, further words count: "NA" as R writes it, while "na" is Nauruan. "nan" is no Min Nan.
_FURTHER_WORDS = {"nat", "<na>", "n/a", "NA", "unknown", "__hive_default_partition__"}
_MISSING = NOT_ONE_LANGUAGE | WORDS_FOR_MISSING | _FURTHER_WORDS
_LONGEST_LABEL = 20  # characters; what is longer is a text
_ENOUGH_ROWS = 50  # to see which fields have labels


def is_missing(value: object) -> bool:
    """Whether a value of a record is none: null, an empty text, or NaN."""
    is_nan = value != value
    return value in (None, "") or bool(is_nan)


def language_of_label(value: object) -> str | None:
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


def languages_of_labels(labels: Iterable[object]) -> list[str]:
    """The language of each label in normal form, "" for a missing one.

    A `ValueError` refuses one that is no code.
    """
    code_of = {}
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
    looks_so = {}
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


def labelled_language(record: Mapping[str, Any], *fields: str) -> str | None:
    """The language that a record names in the first of the fields that has one.

    The fields are by default `language` and `lang`, also in `metadata`, and their case does not
    matter. A `ValueError` refuses what is no code, and names the fields that have a language.
    """
    values = _values_with_metadata(record)
    try:
        for field in unique_fields(values, fields or LABEL_PATHS):
            language = language_of_label(values[field])
            if language:
                return language
    except ValueError as error:
        raise ValueError(f"{error}{_hint_of_fields(values)}") from error
    return None


def required_language(record: Mapping[str, Any], field: str) -> str:
    """The language that a record names in a field; a `ValueError` if it names none."""
    language = labelled_language(record, field)
    if language is None:
        hint = _hint_of_fields(_values_with_metadata(record))
        raise ValueError(f"no language in the field {field!r}{hint}")
    return language


def _hint_of_fields(values: Mapping[str, Any]) -> str:
    """The end of an error: the fields that look like languages, if there are any."""
    fields = ", ".join(language_fields([values]))
    return f"; fields that look like languages: {fields}" if fields else ""


def _values_with_metadata(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record, and those of its metadata after `metadata.`."""
    values = dict(record)
    for name, value in metadata_of(record).items():
        values[f"metadata.{name}"] = value
    return values


def metadata_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields in the metadata of a record, which may be written as a text of JSON."""
    for field in unique_fields(record, ["metadata"]):
        value = record[field]
        if isinstance(value, str):
            with suppress(ValueError):
                value = json.loads(value)
        if isinstance(value, Mapping):
            return value
    return {}


def warn_of_unread_labels(
    records: Iterable[tuple[int, Any]], place: str, instead: str
) -> Iterator[tuple[int, Any]]:
    """The records, with a warning where none names a language and a field looks like labels.

    Args:
        records: Records with their lines; the first ones are looked at.
        place: Their source.
        instead: What happens to their texts, such as "their languages are identified".
    """
    remaining = iter(records)
    first = list(islice(remaining, _ENOUGH_ROWS))
    field = unread_label_field(record for _, record in first if isinstance(record, Mapping))
    if field is not None:
        _logger.warning(
            "%s: no text names its language in the field 'language', and %s; the field %r looks"
            " like languages: name it 'language'",
            place,
            instead,
            field,
        )
    yield from first
    yield from remaining


def unread_label_field(records: Iterable[Mapping[str, Any]]) -> str | None:
    """A field that looks like labels, where no record names a language; None if there is none."""
    rows = [_beginnings_of_strings(record) for record in records]
    if any(map(_has_label, rows)):
        return None
    for field in language_fields(rows):
        codes = languages_of_labels(row.get(field) for row in rows)
        # One with codes of three letters alone, such as `dev`, is hardly one of labels.
        if any(len(code.partition("-")[0]) == 2 for code in codes):
            return field
    return None


def _has_label(row: Mapping[str, Any]) -> bool:
    try:
        return labelled_language(row) is not None
    except ValueError:  # reading it says what is wrong
        return True


def _beginnings_of_strings(record: Mapping[str, Any]) -> dict[str, Any]:
    """The beginnings of the strings of a record; those of labels are whole.

    So texts of any length cost no more than labels where every value is read as one.
    """
    values = {}
    for name, value in _values_with_metadata(record).items():
        if isinstance(value, str | bytes):
            values[name] = value[: _LONGEST_LABEL + 1]
    return values
