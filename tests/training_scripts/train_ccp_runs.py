"""What the tests of train_ccp.py share beside their fixtures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from torch import Tensor
from transformers import TrainerCallback

from st_xlret.training.lock import LOCK_FILE

SIZES = (
    "--vocabulary 150 --features 16 --per_device_train_batch_size 4 --bank_size 32 --learning_rate 1e-2 "
    "--max_seq_length 16"
)


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
    return sorted(name for name in os.listdir(folder) if name != LOCK_FILE)


def hidden(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.name != LOCK_FILE)
    return [path for path in files if path.name.startswith(".") or "tmp" in path.name]


def add_callback(program: ModuleType, monkeypatch: pytest.MonkeyPatch, callback: TrainerCallback) -> None:
    """Give the script's Trainer one callback more."""

    class Trainer(SentenceTransformerTrainer):
        def __init__(self, *args: Any, callbacks: list[Any], **options: Any) -> None:
            super().__init__(*args, callbacks=[*callbacks, callback], **options)

    monkeypatch.setattr(program, "SentenceTransformerTrainer", Trainer)


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoint-*"))


class Stop(TrainerCallback):
    """Interrupts the run, as Ctrl-C does, once."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            self.step = -1
            raise KeyboardInterrupt
