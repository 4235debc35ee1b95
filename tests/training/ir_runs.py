"""A tiny run of retrieval, translations and other sentences in one Trainer."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer

from st_xlret.data.batches.joint import JointBatches, MixedRowsDataCollator, pairs_and_others
from st_xlret.losses import LangContrastiveLoss, RetrievalContrastiveLoss, SemanticContrastiveLoss
from st_xlret.modules import freeze_unused, router_mapping, with_two_encoders
from st_xlret.training import JointTrainer, LossMonitorCallback, LossStateCallback
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
    model: SentenceTransformer | None = None,
    two_encoders: bool = False,
    seed: int = 0,
    others: bool = True,
    parts: tuple[str, ...] = ("semantic", "language", "retrieval"),
    **changed: Any,
) -> tuple[JointTrainer, Recorder]:
    """Build model, losses and Trainer anew, as a new process does."""
    model = model or tiny.transformer(dropout=0.1, seed=seed)
    torch.manual_seed(seed + 1)
    if two_encoders:
        model = with_two_encoders(model)
        freeze_unused(model)
        changed["ddp_find_unused_parameters"] = False
    datasets = {
        "semantic": pairs_and_others(tiny.pairs(18), None),
        "language": pairs_and_others(tiny.pairs(18), tiny.texts(14) if others else None),
        "retrieval": questions(),
    }
    losses: dict[str, Any] = {
        "semantic": SemanticContrastiveLoss(model, weight=0.5),
        "language": LangContrastiveLoss(model, weight=0.25, reduction="paper"),
        "retrieval": RetrievalContrastiveLoss(model),
    }
    datasets, losses = {name: datasets[name] for name in parts}, {name: losses[name] for name in parts}
    recorder = FirstRecorder(losses)
    trainer = JointTrainer(
        model=model,
        args=arguments(folder, **{"batch_sampler": JointBatches(others_batch_size=3), **changed}),
        train_dataset=DatasetDict(datasets),
        loss=losses,
        data_collator=MixedRowsDataCollator(model.preprocess, router_mapping=router_mapping(model, datasets)),
        callbacks=[recorder, LossStateCallback(losses), LossMonitorCallback(losses)],
    )
    return trainer, recorder
