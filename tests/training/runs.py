"""Tiny runs of every kind: losses in turn, masked sentences, words, and three losses in a step."""

import random
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
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
from tests.losses.examples import EXAMPLES

KINDS = ("ccp", "msm", "ml-ctl", "joint")
ALONE = {f"example {name}": example for name, example in EXAMPLES.items()}
"""A run of each loss alone."""
PARTS = ("semantic", "language", "retrieval")


class Recorder(TrainerCallback):
    """Which losses each step had; the gradients and weights before each optimizer step."""

    def __init__(self, losses: dict[str, CrossLingualLoss]) -> None:
        self.steps: list[tuple[int, str, float]] = []
        self.gradients: list[dict[str, Tensor]] = []
        self.weights: list[dict[str, Tensor]] = []
        self.step = 0
        self.parameters: dict[str, nn.Parameter] = {}
        for name, loss in losses.items():
            for key, parameter in loss.named_parameters():
                self.parameters[f"{name}/{key}"] = parameter
            self._record_values_of(name, loss)

    def _record_values_of(self, name: str, loss: CrossLingualLoss) -> None:
        def record(module: CrossLingualLoss, inputs: Any, value: Any) -> None:
            if module.training and torch.is_grad_enabled():
                total = sum(value.values()) if isinstance(value, dict) else value
                self.steps.append((self.step, name, float(total.detach())))

        loss.register_forward_hook(record)

    def on_step_begin(self, args: Any, state: TrainerState, *others: Any, **kwargs: Any) -> None:
        self.step = state.global_step

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        gradients = {}
        weights = {}
        for name, parameter in self.parameters.items():
            weights[name] = parameter.detach().clone()
            if parameter.grad is not None:
                gradients[name] = parameter.grad.clone()
        self.gradients.append(gradients)
        self.weights.append(weights)


def state_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def changed(before: dict[str, Tensor], module: nn.Module) -> list[str]:
    """The names of the weights that are others than before."""
    names = []
    for name, tensor in module.state_dict().items():
        if not torch.equal(tensor, before[name]):
            names.append(name)
    return names


def arguments(folder: Path, **changes: Any) -> CrossLingualTrainingArguments:
    options: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "precision": "fp32",
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
    }
    options.update(changes)
    return CrossLingualTrainingArguments(output_dir=str(folder), **options)


def trainer_of(
    folder: Path,
    losses: dict[str, Any],
    datasets: dict[str, Dataset],
    **changes: Any,
) -> tuple[CrossLingualTrainer, Recorder]:
    recorder = Recorder(losses)
    model: Any = next(iter(losses.values())).model
    args = arguments(folder, **changes)
    trainer = CrossLingualTrainer(model, args, datasets, loss=losses, callbacks=[recorder])
    return trainer, recorder


def questions(count: int = 20) -> Dataset:
    dice = random.Random(5)
    rows = []
    for _ in range(count):
        row = {
            "query": tiny.sentence(dice, 3),
            "positive": tiny.sentence(dice, 5),
            "negative_1": tiny.sentence(dice, 5),
            "language": "en",
        }
        rows.append(row)
    return Dataset.from_list(rows)


class System(NamedTuple):
    """The losses of a system, and a data set for each."""

    losses: dict[str, Any]
    datasets: dict[str, Dataset]


def ccp_system(model: SentenceTransformer, *, scope: Any = "total") -> System:
    bank = LanguageMemoryBank(16, 22, scope=scope)
    losses = {
        "ccp": CCPLoss(model, {"out_features": 16}, bank, batches={"window_size": 2}),
        "mlm": MaskedLMLoss(model),
        "pairs": SemanticContrastiveLoss(model),
    }
    return System(losses, {"ccp": tiny.documents(), "mlm": tiny.texts(), "pairs": tiny.pairs()})


def msm_system(model: SentenceTransformer) -> System:
    msm = MSMLoss(
        model,
        {"dropout": 0.0},
        num_negatives=5,
        mini_batch_size=5,
        batches={"block_size": 4},
    )
    # Documents of 3 to 8 sentences in blocks of up to 4: the ranks have different numbers of
    # sentences.
    rows = [row for row in tiny.documents(20, 8) if row["position"] < 3 + row["document"] % 6]
    datasets = {"msm": Dataset.from_list(rows), "mlm": tiny.texts(60)}
    return System({"msm": msm, "mlm": MaskedLMLoss(model)}, datasets)


def word_system(plain: SentenceTransformer) -> System:
    model = first_last_encoder(plain)
    words = CZNCELoss(model, ContextualEncoder(32, out_features=8), mlm=MaskedLMLoss(model))
    return System({"words": words}, {"words": Dataset.from_list(tiny.word_rows(16))})


def joint_system(model: SentenceTransformer) -> System:
    losses = {
        "semantic": SemanticContrastiveLoss(model, weight=0.5),
        "language": LangContrastiveLoss(model, weight=0.25, reduction="paper"),
        "retrieval": RetrievalContrastiveLoss(model),
    }
    datasets = {
        "semantic": pairs_and_others(tiny.pairs(18), None),
        "language": pairs_and_others(tiny.pairs(18), tiny.texts(14)),
        "retrieval": questions(),
    }
    return System(losses, datasets)


def system_of(
    kind: str,
    model: SentenceTransformer,
    *,
    scope: str = "total",
    two_encoders: bool = False,
) -> System:
    """A system, or the example of one loss."""
    if kind in ALONE:
        return System({kind: ALONE[kind].build(model)}, {kind: ALONE[kind].dataset})
    if kind == "ccp":
        return ccp_system(model, scope=scope)
    if kind == "msm":
        return msm_system(model)
    if kind == "ml-ctl":
        return word_system(model)
    return joint_system(with_two_encoders(model) if two_encoders else model)


def run_of(
    kind: str,
    folder: Path,
    *,
    seed: int = 0,
    dropout: float = 0.1,
    scope: str = "total",
    two_encoders: bool = False,
    **changes: Any,
) -> tuple[CrossLingualTrainer, Recorder]:
    """Build model, losses and Trainer anew, as a new process does.

    `seed` is that of the first weights.
    """
    model = tiny.transformer(dropout=dropout, seed=seed)
    system = system_of(kind, model, scope=scope, two_encoders=two_encoders)
    # What the dice are before the run must not matter to a resumed one.
    torch.manual_seed(seed + 1)
    options = {"joint": kind == "joint", "lr_drops": [0.5], **changes}
    return trainer_of(folder, system.losses, system.datasets, **options)
