"""What the host's Trainer does around the losses does not change what they compute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from st_xlret.training import CrossLingualTrainer
from tests.training.runs import RUNS, Recorder

Run = tuple[CrossLingualTrainer, Recorder]


def values(run: Run) -> list[tuple[str, float]]:
    return [(name, value) for _, name, value in run[1].steps]


def trained(make: Callable[..., Any], folder: Path, **changed: Any) -> tuple[Run, list[dict[str, Tensor]]]:
    run = make(folder, **changed)
    run[0].train()
    return run, run[1].gradients


def parts(run: Run) -> int:
    return len(run[0].train_dataset) if run[0].args.joint else 1


@pytest.mark.parametrize("name", RUNS)
def test_gradient_accumulation(name: str, tmp_path: Path) -> None:
    # Weights that stay as they are: the batches of a step are then those of two steps of the plain run.
    fixed: dict[str, Any] = {"learning_rate": 0.0, "max_grad_norm": 0.0}
    plain, single = trained(RUNS[name], tmp_path / "plain", max_steps=4, **fixed)
    accumulated, double = trained(
        RUNS[name], tmp_path / "accumulated", max_steps=2, gradient_accumulation_steps=2, **fixed
    )
    assert values(accumulated) == values(plain)
    assert len(values(plain)) == 4 * parts(plain)
    for step, found in enumerate(double):
        first, second = single[2 * step : 2 * step + 2]
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
    for step, (gradients, others) in enumerate(zip(found, expected, strict=True)):
        assert gradients.keys() == others.keys()
        for key, gradient in gradients.items():
            torch.testing.assert_close(
                gradient, others[key], rtol=1e-2, atol=1e-4, msg=lambda m, k=key, s=step: f"step {s}, {k}: {m}"
            )


def read_by(trainer: CrossLingualTrainer) -> list[tuple[str, list[list[int]]]]:
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
    assert read[0] == read[1] and len(read[0]) == 12 * parts(runs[0])
    # More than one pass over most data sets: workers that stay meet the next one.
    assert name == "ccp" or runs[0][0].state.epoch > 1
    if not persistent:  # Those draw one random number fewer per epoch, which dropout and masked words then see.
        assert values(runs[0]) == values(runs[1])
