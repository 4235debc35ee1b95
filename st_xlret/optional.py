"""What is imported on first use: public names, and libraries that only some functions need."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def import_optional(name: str, *, extra: str, needed_for: str) -> Any:
    """Import a module, such as `"icu4py.breakers"`; an `ImportError` names the extra of this package that has it."""
    library = name.partition(".")[0]
    if find_spec(library) is None:
        raise ImportError(f'{library} is needed for {needed_for}: pip install "st-xlret[{extra}]"')
    return import_module(name)


def load_public_name(package: str, homes: dict[str, str], name: str) -> Any:
    """Import the module that has a public name of a package, and give what bears the name."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(import_module(homes[name]), name)
