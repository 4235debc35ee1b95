"""What the host's Trainer does around the losses does not change what they compute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from torch import Tensor
from transformers import TrainerCallback

from st_xlret.data import BlockBatchSampler, CrossLingualBatches, CrossLingualDataCollator
from st_xlret.losses import CZNCELoss, MaskedLMLoss, MSMLoss
from st_xlret.losses.base import CrossLingualLoss
from st_xlret.modules import ContextualEncoder, first_last_encoder
from st_xlret.training import LossStateCallback
from tests import tiny
from tests.losses.test_cz_nce import word_rows
from tests.training.ir_runs import ir_run
from tests.training.runs import Recorder, arguments, interleaved_run

Run = tuple[SentenceTransformerTrainer, Recorder]


def single_run(folder: Path, loss: CrossLingualLoss, data: Dataset, sampler: Any, blocks: bool, **changed: Any) -> Run:
    recorder = Recorder({"loss": loss})
    model: SentenceTransformer = loss.model  # type: ignore[assignment]
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments(folder, batch_sampler=sampler, **changed),
        train_dataset=data,
        loss=loss,
        data_collator=CrossLingualDataCollator(model.preprocess, blocks=blocks),
        callbacks=[recorder, LossStateCallback(loss)],
    )
    return trainer, recorder


def msm_run(folder: Path, **changed: Any) -> Run:
    model = tiny.transformer(dropout=0.1)
    torch.manual_seed(1)
    loss = MSMLoss(model, mini_batch_size=4, num_negatives=3, mlm=MaskedLMLoss(model))
    return single_run(folder, loss, tiny.documents(12, 4), BlockBatchSampler, True, **changed)


def ml_ctl_run(folder: Path, **changed: Any) -> Run:
    model = first_last_encoder(tiny.transformer(dropout=0.1))
    torch.manual_seed(1)
    loss = CZNCELoss(model, ContextualEncoder(32), mlm=MaskedLMLoss(model), mlm_weight=0.1)
    return single_run(folder, loss, Dataset.from_list(word_rows(16)), CrossLingualBatches(), False, **changed)


RUNS: dict[str, Callable[..., Any]] = {
    "ccp": interleaved_run,
    "msm": msm_run,
    "ml-ctl": ml_ctl_run,
    "joint": ir_run,
}


def values(run: Run) -> list[tuple[str, float]]:
    return [(name, value) for _, name, value in run[1].steps]


class Gradients(TrainerCallback):
    """Gradients of the encoder and of the losses before each optimizer step."""

    def __init__(self, trainer: SentenceTransformerTrainer) -> None:
        losses = trainer.loss if isinstance(trainer.loss, dict) else {"": trainer.loss}
        self.parameters = {f"{name}/{k}": p for name, loss in losses.items() for k, p in loss.named_parameters()}
        self.steps: list[dict[str, Tensor]] = []

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.steps.append({name: p.grad.clone() for name, p in self.parameters.items() if p.grad is not None})


def trained(make: Callable[..., Any], folder: Path, **changed: Any) -> tuple[Run, Gradients]:
    run = make(folder, **changed)
    gradients = Gradients(run[0])
    run[0].add_callback(gradients)
    run[0].train()
    return run, gradients


@pytest.mark.parametrize("name", RUNS)
def test_gradient_accumulation(name: str, tmp_path: Path) -> None:
    # Weights that stay as they are: the batches of a step are then those of two steps of the plain run.
    fixed: dict[str, Any] = {"learning_rate": 0.0, "max_grad_norm": 0.0}
    plain, single = trained(RUNS[name], tmp_path / "plain", max_steps=4, **fixed)
    accumulated, double = trained(
        RUNS[name], tmp_path / "accumulated", max_steps=2, gradient_accumulation_steps=2, **fixed
    )
    assert values(accumulated) == values(plain)
    assert len(values(plain)) == 4 * getattr(plain[0], "parts", 1)
    for step, found in enumerate(double.steps):
        first, second = single.steps[2 * step : 2 * step + 2]
        assert found.keys() == first.keys() | second.keys()
        for key, gradient in found.items():
            zero = torch.zeros_like(gradient)
            mean = (first.get(key, zero) + second.get(key, zero)) / 2
            torch.testing.assert_close(gradient, mean, rtol=1e-5, atol=1e-7, msg=lambda m, k=key: f"{k}: {m}")


@pytest.mark.parametrize("name", RUNS)
def test_gradient_checkpointing(name: str, tmp_path: Path) -> None:
    plain, expected = trained(RUNS[name], tmp_path / "plain", max_steps=6)
    run, found = trained(RUNS[name], tmp_path / "checkpointing", max_steps=6, gradient_checkpointing=True)
    layers: Any = run[0].model[0].auto_model
    assert layers.is_gradient_checkpointing and not plain[0].model[0].auto_model.is_gradient_checkpointing
    for (kind, value), (other_kind, other) in zip(values(run), values(plain), strict=True):
        assert kind == other_kind and value == pytest.approx(other, rel=1e-4, abs=1e-5)
    for step, (gradients, others) in enumerate(zip(found.steps, expected.steps, strict=True)):
        assert gradients.keys() == others.keys()
        for key, gradient in gradients.items():
            torch.testing.assert_close(
                gradient, others[key], rtol=1e-2, atol=1e-4, msg=lambda m, k=key, s=step: f"step {s}, {k}: {m}"
            )


def read_by(trainer: SentenceTransformerTrainer) -> list[tuple[str, list[list[int]]]]:
    """What each loss is given: the ids of the texts of each column; filled while the Trainer runs."""
    batches: list[tuple[str, list[list[int]]]] = []
    losses: Any = trainer.loss if isinstance(trainer.loss, dict) else {"": trainer.loss}
    for name, loss in losses.items():

        def remember(module: Any, inputs: tuple[Any, ...], name: str = name) -> None:
            batches.append((name, [column["text_id"].tolist() for column in inputs[0]]))

        loss.register_forward_pre_hook(remember)
    return batches


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_workers_of_the_data_loader_draw_the_same_windows(name: str, persistent: bool, tmp_path: Path) -> None:
    runs, read = [], []
    for workers, options in ((0, {}), (2, {"dataloader_persistent_workers": persistent})):
        run = RUNS[name](tmp_path / f"{workers}", max_steps=12, dataloader_num_workers=workers, **options)
        runs.append(run)
        read.append(read_by(run[0]))
        run[0].train()
    assert read[0] == read[1] and len(read[0]) == 12 * getattr(runs[0][0], "parts", 1)
    # More than one pass over most data sets: workers that stay meet the next one.
    assert name == "ccp" or runs[0][0].state.epoch > 1
    if not persistent:  # Those draw one random number fewer per epoch, which dropout and masked words then see.
        assert values(runs[0]) == values(runs[1])
