"""Griffe extension for the API reference: public names that load on first use, and examples that run as doctests."""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe


class PublicNames(griffe.Extension):
    """Knows what a static reading of the sources does not show."""

    def on_module(self, *, mod: griffe.Module, **kwargs: Any) -> None:
        """Add the names of a table `_NAMES` as aliases of the module: the package's own, and that of calibration."""
        if "_NAMES" not in mod.members:
            return
        homes = ast.literal_eval(str(mod.members["_NAMES"].value))
        for name, home in ((name, home) for home, names in homes.items() for name in names.split()):
            if name not in mod.members:
                mod.set_member(name, griffe.Alias(name, f"{mod.path}.{home}.{name}", parent=mod))

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Read `Example:` as Griffe's section `Examples:`, so that doctests are shown as code."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
