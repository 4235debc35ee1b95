"""Tiny runs: CCP, masked words and translations in turn; retrieval and translations in one step."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import TrainerCallback, TrainerState

from st_xlret.batches import pairs_and_others
from st_xlret.losses import (
    CCPLoss,
    CZNCELoss,
    LangContrastiveLoss,
    MaskedLMLoss,
    MSMLoss,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
)
from st_xlret.losses.base import CrossLingualLoss
from st_xlret.modules import ContextualEncoder, LanguageMemoryBank, first_last_encoder, with_two_encoders
from st_xlret.training import CrossLingualTrainer, CrossLingualTrainingArguments
from tests import tiny

PARTS = ("semantic", "language", "retrieval")


class Recorder(TrainerCallback):
    """Which losses each step had, and their values; the gradients and weights before each optimizer step."""

    def __init__(self, losses: dict[str, CrossLingualLoss]) -> None:
        self.steps: list[tuple[int, str, float]] = []
        self.gradients: list[dict[str, Tensor]] = []
        self.weights: list[dict[str, Tensor]] = []
        self.step = 0
        self.parameters = {f"{name}/{k}": p for name, loss in losses.items() for k, p in loss.named_parameters()}
        for name, loss in losses.items():
            loss.register_forward_hook(lambda module, given, value, name=name: self.record(module, name, value))

    def record(self, module: CrossLingualLoss, name: str, value: Any) -> None:
        if module.training and torch.is_grad_enabled():
            total = sum(value.values()) if isinstance(value, dict) else value
            self.steps.append((self.step, name, float(total.detach())))

    def on_step_begin(self, args: Any, state: TrainerState, *others: Any, **kwargs: Any) -> None:
        self.step = state.global_step

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.gradients.append({name: p.grad.clone() for name, p in self.parameters.items() if p.grad is not None})
        self.weights.append({name: p.detach().clone() for name, p in self.parameters.items()})


def arguments(folder: Path, **changed: Any) -> CrossLingualTrainingArguments:
    options: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "precision": "fp32",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "save_strategy": "no",
        "logging_strategy": "no",
    }
    return CrossLingualTrainingArguments(output_dir=str(folder), **(options | changed))


def trainer_of(
    folder: Path, losses: dict[str, Any], datasets: dict[str, Dataset], callbacks: Any = (), **changed: Any
) -> tuple[CrossLingualTrainer, Recorder]:
    recorder = Recorder(losses)
    model: Any = next(iter(losses.values())).model
    trainer = CrossLingualTrainer(
        model, arguments(folder, **changed), datasets, loss=losses, callbacks=[recorder, *callbacks]
    )
    return trainer, recorder


def interleaved_run(
    folder: Path, *, seed: int = 0, scope: str = "total", **changed: Any
) -> tuple[CrossLingualTrainer, Recorder]:
    """Build model, losses and Trainer anew, as a new process does; ``seed`` is that of the first weights."""
    model = tiny.transformer(dropout=0.1, seed=seed)
    bank = LanguageMemoryBank(16, 22, scope=scope)  # type: ignore[arg-type]
    losses: dict[str, CrossLingualLoss] = {
        "ccp": CCPLoss(model, {"out_features": 16}, bank, batches={"window_size": 2}),
        "mlm": MaskedLMLoss(model),
        "pairs": SemanticContrastiveLoss(model),
    }
    # What the dice are before the run must not matter to a resumed one.
    torch.manual_seed(seed + 1)
    datasets = {"ccp": tiny.documents(), "mlm": tiny.texts(), "pairs": tiny.pairs()}
    return trainer_of(folder, losses, datasets, **changed)


def questions(count: int = 20, *, negatives: int = 1) -> Dataset:
    dice = random.Random(5)
    columns = ["query", "positive", *(f"negative_{i + 1}" for i in range(negatives))]
    return Dataset.from_list(
        [{c: tiny.sentence(dice, 3 + 2 * (c != "query")) for c in columns} | {"language": "en"} for _ in range(count)]
    )


def joint_run(
    folder: Path,
    *,
    model: SentenceTransformer | None = None,
    two_encoders: bool = False,
    seed: int = 0,
    others: bool = True,
    parts: tuple[str, ...] = PARTS,
    **changed: Any,
) -> tuple[CrossLingualTrainer, Recorder]:
    """Retrieval, translations and other sentences, whose losses are summed in every step."""
    model = model or tiny.transformer(dropout=0.1, seed=seed)
    torch.manual_seed(seed + 1)
    model = with_two_encoders(model) if two_encoders else model
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
    chosen = {name: losses[name] for name in parts}
    return trainer_of(folder, chosen, {name: datasets[name] for name in parts}, joint=True, **changed)


def msm_run(folder: Path, *, seed: int = 0, **changed: Any) -> tuple[CrossLingualTrainer, Recorder]:
    model = tiny.transformer(dropout=0.1, seed=seed)
    torch.manual_seed(seed + 1)
    loss = MSMLoss(model, mini_batch_size=4, num_negatives=3, mlm=MaskedLMLoss(model))
    return trainer_of(folder, {"loss": loss}, {"loss": tiny.documents(12, 4)}, **changed)


def ml_ctl_run(folder: Path, *, seed: int = 0, **changed: Any) -> tuple[CrossLingualTrainer, Recorder]:
    model = first_last_encoder(tiny.transformer(dropout=0.1, seed=seed))
    torch.manual_seed(seed + 1)
    loss = CZNCELoss(model, ContextualEncoder(32), mlm=MaskedLMLoss(model), mlm_weight=0.1)
    return trainer_of(
        folder, {"loss": loss}, {"loss": Dataset.from_list(tiny.word_rows(16))}, **{"lr_drops": [0.5], **changed}
    )


RUNS: dict[str, Callable[..., Any]] = {
    "ccp": interleaved_run,
    "msm": msm_run,
    "ml-ctl": ml_ctl_run,
    "joint": joint_run,
}
