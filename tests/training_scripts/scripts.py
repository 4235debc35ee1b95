"""The scripts as modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Train = Callable[..., dict[str, Any]]
FOLDERS = {"study": "training_scripts.studies", "write": "training_scripts.studies", "demo": "training_scripts.demo"}


def load_script(repository: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script of ``training_scripts`` as a fresh module, for the time of a test."""
    full_name = f"{FOLDERS.get(name.partition('_')[0], 'training_scripts')}.{name}"
    monkeypatch.syspath_prepend(repository)
    monkeypatch.delitem(sys.modules, full_name, raising=False)
    module = importlib.import_module(full_name)
    monkeypatch.setitem(sys.modules, full_name, module)
    return module


def runner(program: ModuleType, folder: Path, defaults: str, encoder: str) -> Train:
    """A function that runs a script into `folder/output`.

    Args:
        program: The script.
        folder: Folder of the outputs.
        defaults: Options of every run, which those of a call override.
        encoder: Options of the encoder, where a call names none.

    Returns:
        A function of options: strings of several, or paths. Files of options come first.
    """

    def run(*options: str | Path, output: str = "run") -> dict[str, Any]:
        words = [word for option in options for word in (option.split() if isinstance(option, str) else [str(option)])]
        files = [word for word in words if word.endswith(".yaml")]
        given = [*files, *defaults.split(), "--output_dir", str(folder / output)]
        given += [word for word in words if word not in files]
        if not {"--model", "--from_scratch"} & set(given):
            given += encoder.split()
        return program.main(given)  # type: ignore[no-any-return]

    return run
