"""A joint run of two encoders on two ranks: no rank waits for another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.distributed.workers import Result, run_on_two_ranks
from tests.training import runs

pytestmark = pytest.mark.distributed


def joint_run(rank: int, ranks: int, folder: Path) -> Result:
    """A joint run of two encoders, and once more from its checkpoint."""
    steps = {"max_steps": 6, "save_strategy": "steps", "save_steps": 4, "ddp_backend": "gloo"}
    trainer, recorder = runs.joint_run(folder / "run", two_encoders=True, seed=rank, **steps)
    trainer.train()
    resumed, repeated = runs.joint_run(folder / "run", two_encoders=True, seed=5 + rank, **steps)
    resumed.train(resume_from_checkpoint=str(folder / "run" / "checkpoint-4"))
    return {
        "steps": recorder.steps,
        "repeated": repeated.steps,
        "encoder": {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()},
    }


def test_a_joint_run_of_two_encoders_and_its_resume(tmp_path: Path) -> None:
    first, second = run_on_two_ranks(joint_run, tmp_path)
    names = [[(step, name) for step, name, _ in run["steps"]] for run in (first, second)]
    expected = [(step, part) for step in range(6) for part in ("semantic", "language", "retrieval")]
    assert names[0] == names[1] == expected
    # The query encoder, which two parts of three do not use, is the same on both ranks.
    assert any("query" in name for name in first["encoder"])
    for name, tensor in first["encoder"].items():
        assert torch.equal(tensor, second["encoder"][name]), name
    for run in (first, second):
        assert run["repeated"] == run["steps"][12:]
