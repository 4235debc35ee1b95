"""Languages: their codes, the labels of texts, the names of files, and identification."""

from st_xlret.languages.codes import (
    MAX_CODE_BYTES,
    UNKNOWN,
    check_language,
    check_languages,
    find_language,
    id_to_language,
    is_same_language,
    language_to_id,
    match_language,
    normal_form,
)
from st_xlret.languages.identifier import (
    LanguageIdentifier,
    label_disagreements,
    language_identifier_or_none,
)
from st_xlret.languages.labels import (
    LABEL_FIELDS,
    find_fields,
    labelled_language,
    language_fields,
    language_of_label,
    languages_of_labels,
    required_language,
    unread_label_field,
    warn_of_unread_labels,
)
from st_xlret.languages.names import language_in_name, languages_in_name

__all__ = [
    "LABEL_FIELDS",
    "MAX_CODE_BYTES",
    "UNKNOWN",
    "LanguageIdentifier",
    "check_language",
    "check_languages",
    "find_fields",
    "find_language",
    "id_to_language",
    "is_same_language",
    "label_disagreements",
    "language_fields",
    "language_identifier_or_none",
    "language_in_name",
    "labelled_language",
    "language_of_label",
    "language_to_id",
    "languages_in_name",
    "languages_of_labels",
    "match_language",
    "normal_form",
    "required_language",
    "unread_label_field",
    "warn_of_unread_labels",
]
