"""Trainer runs on two ranks: no rank waits for another, and both end with the same, whatever they started from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from st_xlret.losses import MaskedLMLoss, MSMLoss
from tests import tiny
from tests.distributed.workers import Result, run_on_two_ranks
from tests.training.runs import interleaved_run, trainer_of

pytestmark = pytest.mark.distributed


def work(rank: int, ranks: int, folder: Path) -> Result:
    """Three data sets in turn, and once more from the checkpoint in the second epoch; masked sentences and words."""
    steps = {"max_steps": 24, "save_strategy": "steps", "save_steps": 20, "ddp_backend": "gloo"}
    # Ranks start from different weights: rank 0's are to win.
    alternate, recorder = interleaved_run(folder / "run", seed=rank, **steps)
    resumed, repeated = interleaved_run(folder / "run", seed=5 + rank, **steps)
    first = state_of(alternate)
    alternate.train()
    resumed.train(resume_from_checkpoint=str(folder / "run" / "checkpoint-20"))
    # Micro-batches, of which the ranks have different numbers, and a second loss in every step.
    model = tiny.transformer(dropout=0.1, seed=rank)
    options: dict[str, Any] = {"num_negatives": 16, "mini_batch_size": 3, "batches": {"block_size": 4}}
    rows = [row for row in tiny.documents(48, 8) if row["position"] < 3 + row["document"] % 6]
    msm = MSMLoss(model, mlm=MaskedLMLoss(model), **options)
    summed, sums = trainer_of(
        folder / "msm", {"msm": msm}, {"msm": tiny.documents().from_list(rows)}, max_steps=6, ddp_backend="gloo"
    )
    summed.train()
    return {
        "epoch": alternate.state.epoch,
        "steps": recorder.steps,
        "repeated": repeated.steps,
        "first": first,
        "last": state_of(alternate),
        "sums": sums.steps,
        "tokens": summed.state.num_input_tokens_seen,
        "msm": state_of(summed),
    }


def state_of(trainer: Any) -> Result:
    """Encoder and what the losses own."""
    owned = {
        f"{name}/{key}": tensor for name, loss in trainer.loss.items() for key, tensor in loss.owned_state().items()
    }
    return {name: tensor.clone() for name, tensor in (trainer.model.state_dict() | owned).items()}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """Of each rank."""
    return run_on_two_ranks(work, tmp_path_factory.mktemp("ranks"))


def taken(steps: list[tuple[int, str, float]]) -> list[tuple[int, str]]:
    return [(step, name) for step, name, _ in steps]


def test_a_run_over_three_data_sets_and_its_resume(results: list[Result]) -> None:
    first, second = results
    assert taken(first["steps"]) == taken(second["steps"])
    assert [step for step, _ in taken(first["steps"])] == list(range(24))
    assert {name for _, name in taken(first["steps"])} == {"ccp", "mlm", "pairs"}
    # The checkpoint lies in the second epoch, of which the resumed run repeats the batches.
    assert first["epoch"] > 20 / 24 * first["epoch"] > 1
    for rank in results:
        assert rank["repeated"] == rank["steps"][20:]


@pytest.mark.parametrize("run", ["last", "msm"])
def test_both_ranks_end_with_the_same(results: list[Result], run: str) -> None:
    first, second = (result[run] for result in results)
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    if run == "last":
        assert len(first["ccp/bank.keys"]) == 22
        for rank in results:
            assert any(not torch.equal(tensor, rank["first"][name]) for name, tensor in first.items())


def test_masked_sentences_of_blocks_of_different_sizes(results: list[Result]) -> None:
    first, second = results
    assert taken(first["sums"]) == taken(second["sums"]) == [(step, "msm") for step in range(6)]
    assert all(torch.tensor(value).isfinite() for rank in results for _, _, value in rank["sums"])
    # Of both ranks, which read different sentences.
    assert first["tokens"] == second["tokens"] > 2 * 6 * 4 * 3
    assert any("document_encoder" in name for name in first["msm"])
