"""A tiny run of CCP, masked language modelling and parallel sentences in one Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from datasets import DatasetDict
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from transformers import TrainerCallback, TrainerState

from st_xlret.data import CrossLingualBatches, CrossLingualDataCollator, InterleavedBatches
from st_xlret.losses import CCPLoss, MaskedLMLoss, SemanticContrastiveLoss
from st_xlret.losses.base import CrossLingualLoss
from st_xlret.modules import AsymmetricBNHead, LanguageMemoryBank
from st_xlret.training import LossStateCallback
from tests import tiny


class Recorder(TrainerCallback):
    """Which losses each step had, and their values."""

    def __init__(self, losses: dict[str, CrossLingualLoss]) -> None:
        self.losses = losses
        self.steps: list[tuple[int, str, float]] = []

    def on_substep_end(self, args: Any, state: TrainerState, *others: Any, **kwargs: Any) -> None:
        self.record(state.global_step)

    def on_pre_optimizer_step(self, args: Any, state: TrainerState, *others: Any, **kwargs: Any) -> None:
        self.record(state.global_step)

    def record(self, step: int) -> None:
        for name, loss in self.losses.items():
            if loss.last_value is not None:
                self.steps.append((step, name, loss.last_value.item()))
            loss.last_value = None


def arguments(folder: Path, **changed: Any) -> SentenceTransformerTrainingArguments:
    options: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "batch_sampler": CrossLingualBatches(window_size=2),
        "multi_dataset_batch_sampler": InterleavedBatches(),
    }
    return SentenceTransformerTrainingArguments(output_dir=str(folder), **(options | changed))


def interleaved_run(
    folder: Path,
    *,
    seed: int = 0,
    bank_size: int = 22,
    scope: str = "total",
    callbacks: list[type] | None = None,
    **changed: Any,
) -> tuple[SentenceTransformerTrainer, Recorder]:
    """Build model, losses and Trainer anew, as a new process does; ``seed`` is that of the first weights."""
    model = tiny.transformer(dropout=0.1, seed=seed)
    head = AsymmetricBNHead(32, out_features=16)
    bank = LanguageMemoryBank(16, bank_size, scope=scope)  # type: ignore[arg-type]
    losses: dict[str, CrossLingualLoss] = {
        "ccp": CCPLoss(model, head, bank),
        "mlm": MaskedLMLoss(model),
        "pairs": SemanticContrastiveLoss(model),
    }
    recorder = Recorder(losses)
    # What the dice are before the run must not matter to a resumed one.
    torch.manual_seed(seed + 1)
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments(folder, **changed),
        train_dataset=DatasetDict({"ccp": tiny.documents(), "mlm": tiny.texts(), "pairs": tiny.pairs()}),
        loss=losses,
        data_collator=CrossLingualDataCollator(model.preprocess),
        callbacks=[recorder, LossStateCallback(losses), *(make(losses) for make in callbacks or [])],
    )
    return trainer, recorder
