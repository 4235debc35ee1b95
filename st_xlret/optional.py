"""Libraries that only some functions need, imported on first use."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def import_optional(name: str, *, extra: str, needed_for: str) -> Any:
    """Import a module, such as `"icu4py.breakers"`; an `ImportError` names the extra of this package that has it."""
    library = name.partition(".")[0]
    if find_spec(library) is None:
        raise ImportError(f'{library} is needed for {needed_for}: pip install "st-xlret[{extra}]"')
    return import_module(name)
