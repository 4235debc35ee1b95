"""JSON in which no value is lost: a name stands once in an object, and numbers are finite."""

import json
import math
from typing import Any


def object_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of names and values; a `ValueError` for a name that stands twice."""
    record = dict(pairs)
    if len(record) < len(pairs):
        names = ", ".join(name for name, _ in pairs)
        raise ValueError(f"a name stands twice among {names}")
    return record


def finite_number(text: str) -> float:
    """The number that a text is; a `ValueError` for one that is not finite, as `1e400`."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number


def check_json(text: str) -> None:
    """Refuse what a reader of JSON would lose or change; what is no JSON is let pass."""
    try:
        json.loads(
            text,
            object_pairs_hook=object_of_pairs,
            parse_float=finite_number,
            parse_constant=finite_number,
        )
    except json.JSONDecodeError:
        return
