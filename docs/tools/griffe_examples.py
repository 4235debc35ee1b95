"""Griffe extension for the API reference: examples that run as doctests."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Shows doctests as code."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Read `Example:` as Griffe's section `Examples:`, so that doctests are shown as code."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE
            )
