"""What is imported on first use: libraries that few functions need, and most public names."""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

# With a release on PyPI, it is 'pip install "st-xlret[{extra}]"'.
_INSTALL = 'pip install ".[{extra}]" in a clone of st-xlret'


def import_optional(name: str, *, extra: str, needed_for: str) -> Any:
    """Import a module, such as `"icu4py.breakers"`.

    An `ImportError` names the extra of this package that has it.
    """
    library = name.partition(".")[0]
    if find_spec(library) is None:
        raise ImportError(f"{library} is needed for {needed_for}: {how_to_install(extra)}")
    return import_module(name)


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package, whose public names are in these modules: name -> module.

    Another name is an `AttributeError`, as `hasattr` and pickle need it.
    """

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return load


def how_to_install(extra: str) -> str:
    """The command that installs an extra of this package."""
    return _INSTALL.format(extra=extra)
