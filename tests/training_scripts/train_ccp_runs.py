"""What the tests of train_ccp.py share beside their fixtures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import TrainerCallback

Train = Callable[..., dict[str, Any]]
SIZES = "--vocabulary 150 --features 16 --batch-size 4 --bank-size 32 --learning-rate 1e-2 --max-seq-length 16"


LISTS = {
    "en": "sun moon star rain wind snow tree leaf root fish bird wolf",
    "fr": "soleil lune astre pluie vent neige arbre feuille racine poisson oiseau loup",
}
WORDS = {language: words.split() for language, words in LISTS.items()}


def sentence(language: str, meaning: list[int]) -> str:
    return " ".join(WORDS[language][i] for i in meaning)


def write_lines(file: Path, records: list[Any]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return file


def weights(folder: Path) -> dict[str, Tensor]:
    return SentenceTransformer(str(folder), device="cpu").state_dict()


def assert_equal_weights(one: Path, other: Path) -> None:
    expected, got = weights(one), weights(other)
    assert expected.keys() == got.keys()
    for name, tensor in got.items():
        assert torch.equal(tensor, expected[name]), name


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def hidden(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.startswith(".") or "tmp" in path.name]


def add_callback(program: ModuleType, monkeypatch: pytest.MonkeyPatch, callback: TrainerCallback) -> None:
    build = program.build_ccp_trainer
    monkeypatch.setattr(
        program, "build_ccp_trainer", lambda *args, **options: build(*args, **options, callbacks=(callback,))
    )


class Stop(TrainerCallback):
    """Interrupts the run, as Ctrl-C does, once."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            self.step = -1
            raise KeyboardInterrupt
