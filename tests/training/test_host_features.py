"""What the host's Trainer does around the losses does not change what they compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.runs import KINDS, Recorder, run_of


def trained(kind: str, folder: Path, **changed: Any) -> tuple[Any, Recorder]:
    trainer, recorder = run_of(kind, folder, **changed)
    trainer.train()
    return trainer, recorder


def values(recorder: Recorder) -> list[tuple[str, float]]:
    return [(name, value) for _, name, value in recorder.steps]


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_accumulation(kind: str, tmp_path: Path) -> None:
    # Weights that stay as they are: the batches of a step are then those of two steps of the plain run.
    fixed: dict[str, Any] = {"learning_rate": 0.0, "max_grad_norm": 0.0}
    _, plain = trained(kind, tmp_path / "plain", max_steps=4, **fixed)
    _, twice = trained(kind, tmp_path / "accumulated", max_steps=2, gradient_accumulation_steps=2, **fixed)
    assert values(twice) == values(plain) and len(values(plain)) == 4 * (3 if kind == "joint" else 1)
    for step, accumulated in enumerate(twice.gradients):
        first, second = plain.gradients[2 * step : 2 * step + 2]
        assert accumulated.keys() == first.keys() | second.keys()
        for key, gradient in accumulated.items():
            zero = torch.zeros_like(gradient)
            mean = (first.get(key, zero) + second.get(key, zero)) / 2
            torch.testing.assert_close(gradient, mean, rtol=1e-5, atol=1e-7, msg=lambda m, k=key: f"{k}: {m}")


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_checkpointing(kind: str, tmp_path: Path) -> None:
    plain, expected = trained(kind, tmp_path / "plain", max_steps=3)
    checkpointing, recorder = trained(kind, tmp_path / "checkpointing", max_steps=3, gradient_checkpointing=True)
    layers = [trainer.model[0].auto_model for trainer in (checkpointing, plain)]
    assert [each.is_gradient_checkpointing for each in layers] == [True, False]
    for (name, value), (other_name, other) in zip(values(recorder), values(expected), strict=True):
        assert name == other_name and value == pytest.approx(other, rel=1e-4, abs=1e-5)
    for gradients, others in zip(recorder.gradients, expected.gradients, strict=True):
        torch.testing.assert_close(gradients, others, rtol=1e-2, atol=1e-4)


def read_by(trainer: Any) -> list[tuple[str, list[list[int]]]]:
    """What each loss is given: the ids of the texts of each column; filled while the Trainer runs."""
    batches: list[tuple[str, list[list[int]]]] = []
    for name, loss in trainer.loss.items():

        def remember(module: Any, inputs: tuple[Any, ...], name: str = name) -> None:
            batches.append((name, [column["text_id"].tolist() for column in inputs[0]]))

        loss.register_forward_pre_hook(remember)
    return batches


@pytest.mark.parametrize("kind", ["ccp", "ml-ctl"])
def test_workers_of_the_data_loader_draw_the_same_windows(kind: str, tmp_path: Path) -> None:
    read, losses = [], []
    for workers, persistent in ((0, False), (2, False), (2, True)):
        options = {"dataloader_num_workers": workers, "dataloader_persistent_workers": persistent}
        trainer, recorder = run_of(kind, tmp_path, max_steps=6, **options)
        read.append(read_by(trainer))
        trainer.train()
        losses.append(values(recorder))
    # More than one pass over the words: workers that stay meet the next one.
    assert kind == "ccp" or trainer.state.epoch > 1
    assert read[0] == read[1] == read[2] and len(read[0]) == 6
    # Workers that stay draw one random number fewer per epoch, which dropout and masked words then see.
    assert losses[0] == losses[1]
