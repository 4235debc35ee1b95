"""What is read beside a vector, and the fields that have it."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from st_xlret.field_names import find_fields
from st_xlret.languages import LABEL_PATHS, is_missing

USUAL_FIELDS: dict[str, tuple[str, ...]] = {
    "language": LABEL_PATHS,
    "text": ("text", "page_content"),
    "source": ("source", "url", "metadata.source", "metadata.url"),
    "group": (),
    "document": ("document", "metadata.document"),
}
"""What is read beside a vector, and the fields that usually have it.

The docstring of `open_store` and the help of commands name the first of them.
"""

OF_SAMPLES = ("language", "document")
"""What of `USUAL_FIELDS` is read without texts."""


@dataclass(frozen=True)
class Fields:
    """Where a store has what. None: the usual names, see `open_store`."""

    vector: str | None = None
    language: str | None = None
    text: str | None = None
    group: str | None = None
    languages_file: str | None = None

    def named_for(self, what: str) -> str | None:
        """The field that the user has named for one of `USUAL_FIELDS`, or None."""
        named: str | None = getattr(self, what, None)
        return named

    def paths(self, what: str) -> tuple[str, ...]:
        """The field that the user has named for one of `USUAL_FIELDS`, or the usual ones."""
        named = self.named_for(what)
        return (named,) if named else USUAL_FIELDS[what]

    def columns_of_payloads(self, payloads: Sequence[Any]) -> dict[str, list[str | None]]:
        """The columns beside the vectors, from the payload of each row; None without a value."""
        columns = {}
        for what in USUAL_FIELDS:
            paths = self.paths(what)
            columns[what] = [payload_value(payload, paths) for payload in payloads]
        return columns


def payload_value(payload: Any, paths: Iterable[str]) -> str | None:
    """The first value that a payload has at one of the paths, such as "metadata.lang"; else None.

    The case of names does not matter where none is spelled so.
    """
    for path in paths:
        value = payload
        for part in path.split("."):
            value = _value_in(value, part)
        if is_missing(value):
            continue
        if isinstance(value, float) and value.is_integer():
            return str(int(value))
        return str(value)
    return None


def _value_in(payload: Any, name: str) -> Any:
    """The value that a payload has under a name, in any case; None without one."""
    if not isinstance(payload, dict):
        return None
    if name in payload:
        return payload[name]
    for alike in find_fields(payload, [name]):
        return payload[alike]
    return None


def find_field(
    present: Collection[str], field: str | None, usual: Sequence[str], where: str
) -> str | None:
    """The field that was named, or the first usual one that is there, in any case.

    None where none was named and there is no usual one.
    """
    if field is None:
        field = next((name for name in usual if find_fields(present, [name])), None)
    return None if field is None else named_field(present, field, where)


def named_field(present: Collection[str], field: str, where: str) -> str:
    """The field of this name, in any case; a `ValueError` lists what there is in its place.

    It begins with `where`, which says what has the fields.
    """
    alike = [name for name in present if name == field] or find_fields(present, [field])
    if len(alike) != 1:
        number = f"{len(alike)} fields" if alike else "no field"
        names = ", ".join(repr(name) for name in list(present)[:20])
        raise ValueError(f"{where} has {number} {field!r}; it has {names or 'none'}")
    return alike[0]
