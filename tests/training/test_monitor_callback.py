"""LossMonitorCallback stops on a loss that is no number and reports each loss by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState

from st_xlret.data import CrossLingualDataCollator
from st_xlret.losses import SemanticContrastiveLoss
from st_xlret.training import LossMonitorCallback
from st_xlret.training.monitor_callback import describe_languages
from tests import tiny
from tests.training.runs import arguments, interleaved_run


class Poisoned(SemanticContrastiveLoss):
    """Is NaN in its third batch."""

    batches = 0

    def compute_loss_from_embeddings(self, source: Tensor, target: Tensor, tags: dict[str, Tensor]) -> Tensor:
        self.batches += 1
        loss = super().compute_loss_from_embeddings(source, target, tags)
        return loss * float("nan") if self.batches == 3 else loss


class Snapshots(TrainerCallback):
    """The weights after each step."""

    def __init__(self) -> None:
        self.weights: list[Tensor] = []

    def on_step_end(self, *args: Any, model: Any, **kwargs: Any) -> None:
        self.weights.append(model[0].embedding.weight.detach().clone())


def run(folder: Path, dataset: Dataset, **options: Any) -> tuple[SentenceTransformerTrainer, Snapshots]:
    model = tiny.static()
    loss, snapshots = Poisoned(model), Snapshots()
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments(folder, **options),
        train_dataset=dataset,
        loss=loss,
        data_collator=CrossLingualDataCollator(model.preprocess),
        callbacks=[LossMonitorCallback({"parallel": loss}), snapshots],
    )
    return trainer, snapshots


@pytest.mark.parametrize("accumulation, step", [(1, 3), (2, 2), (4, 1)])
def test_not_a_number_stops_the_run_and_harms_no_weight(tmp_path: Path, accumulation: int, step: int) -> None:
    trainer, snapshots = run(tmp_path, tiny.pairs(), gradient_accumulation_steps=accumulation)
    initial = trainer.model[0].embedding.weight.detach().clone()
    message = rf"loss 'parallel' is nan at step {step}, in a batch of (fr|en) \(4 rows\), (fr|en) \(4 rows\)"
    with pytest.raises(FloatingPointError, match=message):
        trainer.train()
    assert len(snapshots.weights) == step - 1
    last_good = [initial, *snapshots.weights][-1]
    assert torch.equal(trainer.model[0].embedding.weight, last_good) and last_good.isfinite().all()


def test_infinity_stops_too(tmp_path: Path) -> None:
    loss = SemanticContrastiveLoss(tiny.static())
    loss.last_value = torch.tensor(float("inf"))
    with pytest.raises(FloatingPointError, match="'0.SemanticContrastiveLoss' is inf.*unknown languages"):
        LossMonitorCallback(loss).on_pre_optimizer_step(arguments(tmp_path), TrainerState(), TrainerControl())


def test_each_loss_has_its_own_line_in_the_log(tmp_path: Path) -> None:
    class Monitor(LossMonitorCallback):
        def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            """Put back what the recorder took."""
            _, name, value = recorder.steps[-1]
            self.losses[name].last_value = torch.tensor(value)
            super().on_pre_optimizer_step(*args, **kwargs)

    trainer, recorder = interleaved_run(
        tmp_path, max_steps=12, logging_strategy="steps", logging_steps=6, callbacks=[Monitor]
    )
    trainer.train()
    lines = [line for line in trainer.state.log_history if "loss" in line]
    assert len(lines) == 2
    for line, steps in zip(lines, (recorder.steps[:6], recorder.steps[6:]), strict=True):
        for name in {name for _, name, _ in steps}:
            values = [value for _, other, value in steps if other == name]
            assert line[f"loss_{name}"] == pytest.approx(sum(values) / len(values), abs=1e-4)
        assert {key for key in line if key.startswith("loss_")} == {f"loss_{name}" for _, name, _ in steps}


def test_evaluation_does_not_enter_the_log(tmp_path: Path) -> None:
    model = tiny.static()
    loss = SemanticContrastiveLoss(model)
    monitor = LossMonitorCallback({"pairs": loss})
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments(tmp_path, max_steps=2, eval_strategy="steps", eval_steps=1),
        train_dataset=tiny.pairs(),
        eval_dataset=tiny.pairs(12),
        loss=loss,
        data_collator=CrossLingualDataCollator(model.preprocess),
        callbacks=[monitor],
    )
    trainer.train()
    assert len([line for line in trainer.state.log_history if "eval_loss" in line]) == 2
    assert monitor.counts == {"pairs": 2}


def test_unknown_languages() -> None:
    assert describe_languages(None) == "unknown languages"
