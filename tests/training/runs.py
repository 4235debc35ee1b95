"""Tiny runs of every kind: losses in turn, masked sentences, words, and the sum of three losses in every step."""

import random
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import TrainerCallback, TrainerState

from st_xlret.data import pairs_and_others
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
from st_xlret.modules import (
    ContextualEncoder,
    LanguageMemoryBank,
    first_last_encoder,
    with_two_encoders,
)
from st_xlret.training import CrossLingualTrainer, CrossLingualTrainingArguments
from tests import tiny

KINDS = ("ccp", "msm", "ml-ctl", "joint")
PARTS = ("semantic", "language", "retrieval")


class Recorder(TrainerCallback):
    """Which losses each step had, and their values; the gradients and weights before each optimizer step."""

    def __init__(self, losses: dict[str, CrossLingualLoss]) -> None:
        self.steps: list[tuple[int, str, float]] = []
        self.gradients: list[dict[str, Tensor]] = []
        self.weights: list[dict[str, Tensor]] = []
        self.step = 0
        self.parameters = {
            f"{name}/{k}": p for name, loss in losses.items() for k, p in loss.named_parameters()
        }
        for name, loss in losses.items():
            loss.register_forward_hook(
                lambda module, inputs, value, name=name: self.record(module, name, value)
            )

    def record(self, module: CrossLingualLoss, name: str, value: Any) -> None:
        if module.training and torch.is_grad_enabled():
            total = sum(value.values()) if isinstance(value, dict) else value
            self.steps.append((self.step, name, float(total.detach())))

    def on_step_begin(self, args: Any, state: TrainerState, *others: Any, **kwargs: Any) -> None:
        self.step = state.global_step

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.gradients.append(
            {name: p.grad.clone() for name, p in self.parameters.items() if p.grad is not None}
        )
        self.weights.append({name: p.detach().clone() for name, p in self.parameters.items()})


def state_of(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def changed(before: dict[str, Tensor], module: torch.nn.Module) -> list[str]:
    """The names of the weights that are others than before."""
    return [
        name
        for name, tensor in module.state_dict().items()
        if not torch.equal(tensor, before[name])
    ]


def arguments(folder: Path, **changed: Any) -> CrossLingualTrainingArguments:
    options = {
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "precision": "fp32",
        "use_cpu": True,
    }
    options |= {
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
    }
    return CrossLingualTrainingArguments(output_dir=str(folder), **(options | changed))  # type: ignore[arg-type]


def trainer_of(
    folder: Path, losses: dict[str, Any], datasets: dict[str, Dataset], **changed: Any
) -> tuple[CrossLingualTrainer, Recorder]:
    recorder = Recorder(losses)
    model: Any = next(iter(losses.values())).model
    args = arguments(folder, **changed)
    return CrossLingualTrainer(model, args, datasets, loss=losses, callbacks=[recorder]), recorder


def questions(count: int = 20) -> Dataset:
    dice = random.Random(5)
    columns = {"query": 3, "positive": 5, "negative_1": 5}
    rows = [
        {column: tiny.sentence(dice, words) for column, words in columns.items()}
        for _ in range(count)
    ]
    return Dataset.from_list([{**row, "language": "en"} for row in rows])


def parts(
    kind: str, model: SentenceTransformer, *, scope: Any = "total", two_encoders: bool = False
) -> tuple[dict[str, Any], dict[str, Dataset]]:
    """Losses and data sets of a system."""
    if kind == "ccp":
        bank = LanguageMemoryBank(16, 22, scope=scope)
        losses: dict[str, Any] = {
            "ccp": CCPLoss(model, {"out_features": 16}, bank, batches={"window_size": 2})
        }
        losses |= {"mlm": MaskedLMLoss(model), "pairs": SemanticContrastiveLoss(model)}
        return losses, {"ccp": tiny.documents(), "mlm": tiny.texts(), "pairs": tiny.pairs()}
    if kind == "msm":
        options: dict[str, Any] = {
            "num_negatives": 5,
            "mini_batch_size": 5,
            "batches": {"block_size": 4},
        }
        losses = {"msm": MSMLoss(model, {"dropout": 0.0}, **options), "mlm": MaskedLMLoss(model)}
        # Documents of 3 to 8 sentences in blocks of up to 4: the ranks have different numbers of sentences.
        rows = [row for row in tiny.documents(20, 8) if row["position"] < 3 + row["document"] % 6]
        return losses, {"msm": Dataset.from_list(rows), "mlm": tiny.texts(60)}
    if kind == "ml-ctl":
        model = first_last_encoder(model)
        words = CZNCELoss(model, ContextualEncoder(32, out_features=8), mlm=MaskedLMLoss(model))
        return {"words": words}, {"words": Dataset.from_list(tiny.word_rows(16))}
    model = with_two_encoders(model) if two_encoders else model
    losses = {"semantic": SemanticContrastiveLoss(model, weight=0.5)}
    losses["language"] = LangContrastiveLoss(model, weight=0.25, reduction="paper")
    losses["retrieval"] = RetrievalContrastiveLoss(model)
    pairs = pairs_and_others(tiny.pairs(18), None), pairs_and_others(tiny.pairs(18), tiny.texts(14))
    return losses, dict(zip(PARTS, [*pairs, questions()], strict=True))


def run_of(
    kind: str,
    folder: Path,
    *,
    seed: int = 0,
    dropout: float = 0.1,
    scope: str = "total",
    **changed: Any,
) -> tuple[CrossLingualTrainer, Recorder]:
    """Build model, losses and Trainer anew, as a new process does; `seed` is that of the first weights."""
    model = tiny.transformer(dropout=dropout, seed=seed)
    losses, datasets = parts(
        kind, model, scope=scope, two_encoders=changed.pop("two_encoders", False)
    )
    # What the dice are before the run must not matter to a resumed one.
    torch.manual_seed(seed + 1)
    return trainer_of(
        folder, losses, datasets, joint=kind == "joint", **{"lr_drops": [0.5], **changed}
    )
