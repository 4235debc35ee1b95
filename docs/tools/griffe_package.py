"""Griffe extensions for the API reference: examples that run as doctests, and names by star."""

from __future__ import annotations

import re
from typing import Any

import griffe

import st_xlret


class Examples(griffe.Extension):
    """Shows doctests as code."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Read `Example:` as Griffe's section `Examples:`, so that doctests are shown as code."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE
            )


class PublicNames(griffe.Extension):
    """Finds the names that `st_xlret` imports by a star, for type checkers alone."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Name them in the package, as Python does."""
        if pkg.name != "st_xlret":
            return
        for name, module in st_xlret._all_modules().items():
            if name not in pkg.members:
                pkg.set_member(name, griffe.Alias(name, f"{module}.{name}"))
