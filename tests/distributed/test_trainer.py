"""A Trainer run on two ranks: no rank waits for another, and both own the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.distributed.workers import run_on_two_ranks, trainer_run_and_resume

pytestmark = pytest.mark.distributed


def test_a_run_over_three_datasets_and_its_resume(tmp_path: Path) -> None:
    first, second = run_on_two_ranks(trainer_run_and_resume, tmp_path)
    assert first["world"] == second["world"] == 2

    names = [[(step, name) for step, name, _ in result["steps"]] for result in (first, second)]
    assert names[0] == names[1] and [step for step, _ in names[0]] == list(range(24))
    assert {name for _, name in names[0]} == {"ccp", "mlm", "pairs"}

    for part in ("owned", "encoder"):
        for name, tensor in first[part].items():
            assert torch.equal(tensor, second[part][name]), name
    assert first["owned"]["ccp/bank.count"].item() == 22

    # The checkpoint lies in the second epoch, of which the resumed run repeats the batches.
    assert first["epoch"] > 20 / 24 * first["epoch"] > 1
    for result in (first, second):
        assert result["repeated"] == result["steps"][20:]
