"""The scripts as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def load_script(repository: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script ``training_scripts/NAME.py`` as a module, for the time of a test."""
    specification = importlib.util.spec_from_file_location(name, repository / "training_scripts" / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, name, module)
    specification.loader.exec_module(module)
    return module
