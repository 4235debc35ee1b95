"""Trainer runs on two ranks: no rank waits for another, and both end with the same, whatever they started from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.workers import Result, run_on_two_ranks
from tests.training.runs import run_of

pytestmark = pytest.mark.distributed
# The checkpoint of the first lies in its second epoch. The encoder of queries is not used by two parts of three.
RUNS: dict[str, tuple[dict[str, Any], int, int]] = {"ccp": ({}, 24, 20), "joint": ({"two_encoders": True}, 4, 2)}


def work(rank: int, ranks: int, folder: Path) -> Result:
    """Each run, and once more from its checkpoint."""
    results = {}
    for kind, (options, steps, saved) in RUNS.items():
        options |= {"max_steps": steps, "save_strategy": "steps", "save_steps": saved, "ddp_backend": "gloo"}
        trainer, recorder = run_of(kind, folder / kind, seed=rank, **options)
        resumed, repeated = run_of(kind, folder / kind, seed=5 + rank, **options)
        trainer.train()
        resumed.train(resume_from_checkpoint=str(folder / kind / f"checkpoint-{saved}"))
        owned = {f"{n}/{key}": tensor for n, loss in trainer.loss.items() for key, tensor in loss.owned_state().items()}
        results[kind] = {
            "epoch": trainer.state.epoch,
            "tokens": trainer.state.num_input_tokens_seen,
            "steps": recorder.steps,
            "repeated": repeated.steps,
            "state": {key: tensor.clone() for key, tensor in (trainer.model.state_dict() | owned).items()},
        }
    return results


def test_a_run_and_its_resume(tmp_path: Path) -> None:
    results = run_on_two_ranks(work, tmp_path)
    for kind, (_, steps, saved) in RUNS.items():
        first, second = (result[kind] for result in results)
        taken, others = ([(step, part) for step, part, _ in run["steps"]] for run in (first, second))
        assert taken == others and len({part for _, part in taken}) == 3
        assert [step for step, _ in taken] == [step for step in range(steps) for _ in range(len(taken) // steps)]
        assert kind == "joint" or first["epoch"] * saved / steps > 1
        assert all(run["repeated"] == [of for of in run["steps"] if of[0] >= saved] for run in (first, second))
        assert [key for key in first["state"] if not torch.equal(first["state"][key], second["state"][key])] == []
        assert first["tokens"] == second["tokens"] > 0
