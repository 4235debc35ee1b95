"""Half precision on two ranks: where the gradients of one rank overflow, both skip the step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import TrainerCallback

from tests.distributed.workers import Result, run_on_two_ranks
from tests.training.runs import interleaved_run

pytestmark = pytest.mark.distributed
OVERFLOWS = 2


class Skips(TrainerCallback):
    """Which optimizer steps the host skipped, and the scale of the losses after each."""

    def __init__(self) -> None:
        self.trainer: Any = None
        self.skipped: list[int] = []
        self.scales: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.trainer.accelerator.optimizer_step_was_skipped:
            self.skipped.append(state.global_step)
        self.scales.append(self.trainer.accelerator.scaler.get_scale())


def work(rank: int, ranks: int, folder: Path) -> Result:
    return {optimizer: run(rank, folder / optimizer, optimizer) for optimizer in ("adamw_torch", "adamw_torch_fused")}


def run(rank: int, folder: Path, optimizer: str) -> Result:
    skips = Skips()
    trainer, _ = interleaved_run(
        folder,
        seed=rank,
        max_steps=12,
        optim=optimizer,
        fp16=True,
        ddp_backend="gloo",
        callbacks=[lambda _: skips],  # type: ignore[list-item]
    )
    # The host has a scaler for accelerators only; what it does with one is the same everywhere.
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)  # type: ignore[assignment]
    trainer.accelerator.native_amp = True
    skips.trainer = trainer
    calls = 0

    def overflow(gradient: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        # On the first rank alone, and in a parameter of the loss, which DDP knows nothing about.
        return gradient * float("-inf") if rank == 0 and calls == OVERFLOWS else gradient

    trainer.loss["ccp"].head.linear_out.weight.register_hook(overflow)
    trainer.train()
    owned = {f"{name}/{key}": value for name, loss in trainer.loss.items() for key, value in loss.owned_state().items()}
    return {
        "skipped": skips.skipped,
        "scales": skips.scales,
        "calls": calls,
        "weights": {name: tensor.clone() for name, tensor in {**trainer.model.state_dict(), **owned}.items()},
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """Of each rank."""
    return run_on_two_ranks(work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("optimizer", ["adamw_torch", "adamw_torch_fused"])
def test_all_ranks_skip_a_step_in_which_one_overflows(results: list[Result], optimizer: str) -> None:
    first, second = (result[optimizer] for result in results)
    assert first["calls"] == second["calls"] > OVERFLOWS
    assert first["scales"] == second["scales"] and first["scales"][-1] == 512
    # A fused optimizer skips the step itself and does not tell the host.
    assert first["skipped"] == second["skipped"] and len(first["skipped"]) == (optimizer == "adamw_torch")
    for name, tensor in first["weights"].items():
        assert tensor.isfinite().all(), name
        assert torch.equal(tensor, second["weights"][name]), name
