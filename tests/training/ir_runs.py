"""A tiny run of retrieval, translations and other sentences in one Trainer."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_xlret.training.ir_run import IROptions, build_ir_trainer, with_two_encoders
from st_xlret.training.joint_steps import JointTrainer
from tests import tiny
from tests.training.runs import Recorder, arguments


class FirstRecorder(Recorder):
    """Stands before the monitor, and leaves it the values that it forgets itself."""

    def record(self, step: int) -> None:
        for name, loss in self.losses.items():
            if loss.last_value is not None:
                self.steps.append((step, name, loss.last_value.item()))


def questions(count: int = 20, *, negatives: int = 1) -> Dataset:
    dice = random.Random(5)
    columns = ["query", "positive", *(f"negative_{i + 1}" for i in range(negatives))]
    return Dataset.from_list(
        [{c: tiny.sentence(dice, 3 + 2 * (c != "query")) for c in columns} | {"language": "en"} for _ in range(count)]
    )


def ir_run(
    folder: Path,
    *,
    options: IROptions | None = None,
    model: SentenceTransformer | None = None,
    two_encoders: bool = False,
    seed: int = 0,
    others: Dataset | None | str = "some",
    **changed: Any,
) -> tuple[JointTrainer, Recorder]:
    """Build model, losses and Trainer anew, as a new process does."""
    model = model or tiny.transformer(dropout=0.1, seed=seed)
    model = with_two_encoders(model) if two_encoders else model
    torch.manual_seed(seed + 1)
    options = options or IROptions(semantic_weight=0.5, language_weight=0.25, others_batch_size=3)
    given = tiny.texts(14) if isinstance(others, str) else others
    args = arguments(folder, **changed)
    trainer = build_ir_trainer(model, questions(), tiny.pairs(18), given, options, args)
    recorder = FirstRecorder(trainer.loss)
    trainer.callback_handler.callbacks.insert(0, recorder)
    return trainer, recorder
