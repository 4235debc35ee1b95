"""Trainer runs on two ranks: no rank waits for another, and both end with the same, whatever they started from."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.workers import Result, run_on_two_ranks
from tests.training.runs import interleaved_run, joint_run

pytestmark = pytest.mark.distributed
# The checkpoint of the first lies in its second epoch. The encoder of queries is not used by two parts of three.
RUNS: dict[str, tuple[Any, int, int]] = {
    "three data sets": (interleaved_run, 24, 20),
    "joint, two encoders": (partial(joint_run, two_encoders=True), 6, 4),
}


def work(rank: int, ranks: int, folder: Path) -> Result:
    """Each run, and once more from its checkpoint."""
    results = {}
    for name, (make, steps, saved) in RUNS.items():
        options = {"max_steps": steps, "save_strategy": "steps", "save_steps": saved, "ddp_backend": "gloo"}
        trainer, recorder = make(folder / name, seed=rank, **options)
        resumed, repeated = make(folder / name, seed=5 + rank, **options)
        trainer.train()
        resumed.train(resume_from_checkpoint=str(folder / name / f"checkpoint-{saved}"))
        owned = {f"{n}/{key}": tensor for n, loss in trainer.loss.items() for key, tensor in loss.owned_state().items()}
        results[name] = {
            "epoch": trainer.state.epoch,
            "tokens": trainer.state.num_input_tokens_seen,
            "steps": recorder.steps,
            "repeated": repeated.steps,
            "state": {key: tensor.clone() for key, tensor in (trainer.model.state_dict() | owned).items()},
        }
    return results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """Of each rank."""
    return run_on_two_ranks(work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_and_its_resume(results: list[Result], name: str) -> None:
    first, second = (result[name] for result in results)
    taken, others = ([(step, part) for step, part, _ in run["steps"]] for run in (first, second))
    parts = ("semantic", "language", "retrieval") if "joint" in name else ("ccp", "mlm", "pairs")
    assert taken == others and {part for _, part in taken} == {*parts}
    _, steps, saved = RUNS[name]
    assert [step for step, _ in taken] == [step for step in range(steps) for _ in range(len(taken) // steps)]
    assert "joint" in name or first["epoch"] * saved / steps > 1
    assert all(run["repeated"] == [of for of in run["steps"] if of[0] >= saved] for run in (first, second))
    assert [key for key in first["state"] if not torch.equal(first["state"][key], second["state"][key])] == []
    assert first["tokens"] == second["tokens"] > 0
