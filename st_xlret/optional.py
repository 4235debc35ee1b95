"""Libraries that only some functions need: imported on first use, with an error that says what to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def import_optional(name: str, *, extra: str, needed_for: str) -> Any:
    """Import a module, such as `"icu4py.breakers"`; an `ImportError` names the extra of this package that has it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        library = name.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != library:
            raise  # it is installed, and lacks a library of its own
        raise ImportError(f'{library} is needed for {needed_for}: pip install "st-xlret[{extra}]"') from error
