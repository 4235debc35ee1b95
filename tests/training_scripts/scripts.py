"""The scripts as modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDERS = {"study": "training_scripts.studies", "write": "training_scripts.studies", "demo": "training_scripts.demo"}


def load_script(repository: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script of ``training_scripts`` as a fresh module, for the time of a test."""
    full_name = f"{FOLDERS.get(name.partition('_')[0], 'training_scripts')}.{name}"
    monkeypatch.syspath_prepend(repository)
    monkeypatch.delitem(sys.modules, full_name, raising=False)
    module = importlib.import_module(full_name)
    monkeypatch.setitem(sys.modules, full_name, module)
    return module
