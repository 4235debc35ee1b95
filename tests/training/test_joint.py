"""One step on the sum of all losses, and the means of the losses in the log."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from st_xlret.training import CrossLingualTrainer
from tests.training.runs import PARTS, run_of


def gradients_of_sum(
    trainer: CrossLingualTrainer,
    weights: dict[str, Tensor],
    batches: list[dict[str, Any]],
) -> dict[str, Tensor]:
    """Of the sum of all losses on these batches, in one backward pass."""
    for name, parameter in trainer.model.named_parameters():
        parameter.data = weights[f"semantic/model.{name}"]
    trainer.model.zero_grad()
    losses = []
    for batch in batches:
        inputs = dict(batch)
        loss = trainer.loss[inputs.pop("dataset_name")]
        features, labels = trainer.collect_features(inputs)
        losses.append(loss(features, labels))
    torch.stack(losses).sum().backward()
    gradients = {}
    for name, parameter in trainer.model.named_parameters():
        if parameter.grad is not None:
            gradients[name] = parameter.grad
    return gradients


@pytest.mark.parametrize(("rounds", "two_encoders"), [(1, True), (2, False)])
def test_joint_gradients_are_those_of_the_summed_loss(
    rounds: int,
    two_encoders: bool,
    tmp_path: Path,
) -> None:
    trainer, recorded = run_of(
        "joint",
        tmp_path,
        two_encoders=two_encoders,
        max_steps=2,
        max_grad_norm=0.0,
        gradient_accumulation_steps=rounds,
        dropout=0.0,
    )
    assert trainer.args.gradient_accumulation_steps == 3 * rounds
    trainer.train()
    batches = list(trainer.get_train_dataloader())
    size = 3 * rounds
    for step, gradients in enumerate(recorded.gradients):
        of_step = batches[size * step : size * (step + 1)]
        assert [batch["dataset_name"] for batch in of_step] == [*PARTS] * rounds
        expected = gradients_of_sum(trainer, recorded.weights[step], of_step)
        for name, total in expected.items():
            gradient = gradients[f"semantic/model.{name}"]
            torch.testing.assert_close(gradient, total / rounds, rtol=1e-4, atol=1e-7, msg=name)


@pytest.mark.parametrize("kind", ["ccp", "joint"])
def test_the_mean_of_each_loss_is_logged_and_the_joint_loss_is_their_sum(
    kind: str,
    tmp_path: Path,
) -> None:
    trainer, recorder = run_of(
        kind, tmp_path, max_steps=9, logging_strategy="steps", logging_steps=4
    )
    trainer.train()
    recorder.steps.clear()
    trainer.train()  # the last step of before is in no line
    lines = [line for line in trainer.state.log_history if "loss" in line]
    for line, first in zip(lines, (0, 4), strict=True):
        values: dict[str, list[float]] = {}
        for step, name, value in recorder.steps:
            if first <= step < first + 4:
                values.setdefault(f"loss_{name}", []).append(value)
        assert {name for name in line if name.startswith("loss_")} == set(values)
        for name, of_steps in values.items():
            assert line[name] == pytest.approx(sum(of_steps) / len(of_steps), abs=1e-4)
        if kind == "joint":
            total = sum(line[f"loss_{part}"] for part in PARTS)
            assert line["loss"] == pytest.approx(total, abs=2e-4)
