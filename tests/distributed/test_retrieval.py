"""Retrieval on two ranks: the loss is that of one rank at double batch, and no rank waits for another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests import tiny
from tests.distributed.workers import Result, run_on_two_ranks, share, train
from tests.losses.routers import columns
from tests.losses.test_retrieval_contrastive import COLUMNS, rows
from tests.training import runs

pytestmark = pytest.mark.distributed


def retrieval_steps(rank: int, ranks: int, folder: Path) -> Result:
    """Three steps of the loss, with passages that stand on both ranks."""
    from st_xlret.losses.retrieval_contrastive import RetrievalContrastiveLoss

    model = tiny.transformer()
    batches = []
    for step in range(3):
        batch = rows(8, seed=step)
        batch[6]["positive"] = batch[1]["positive"]
        batches.append(columns(model, share(batch, rank, ranks), COLUMNS))
    return train(RetrievalContrastiveLoss(model), model, batches, ranks)


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


def both(rank: int, ranks: int, folder: Path) -> Result:
    result: Result = {"loss": retrieval_steps(rank, ranks, folder)}
    return result if ranks == 1 else {**result, "run": joint_run(rank, ranks, folder)}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Result, Result]:
    """Of one rank, and of each of two."""
    folder = tmp_path_factory.mktemp("ranks")
    first, second = run_on_two_ranks(both, folder)
    return both(0, 1, folder), first, second


def test_values_and_gradients_of_the_loss(results: tuple[Result, Result, Result]) -> None:
    single, *ranks = (result["loss"] for result in results)
    torch.testing.assert_close(torch.stack(ranks[0]["losses"]), torch.stack(single["losses"]))
    gradients = [key for key in single if "gradient of" in key]
    assert any("word_embeddings" in key for key in gradients)
    for key in gradients:
        for rank in ranks:
            torch.testing.assert_close(rank[key], single[key], rtol=1e-5, atol=1e-7, msg=key)


def test_a_joint_run_of_two_encoders_and_its_resume(results: tuple[Result, Result, Result]) -> None:
    first, second = (result["run"] for result in results[1:])
    names = [[(step, name) for step, name, _ in run["steps"]] for run in (first, second)]
    expected = [(step, part) for step in range(6) for part in ("semantic", "language", "retrieval")]
    assert names[0] == names[1] == expected
    # The query encoder, which two parts of three do not use, is the same on both ranks.
    assert any("query" in name for name in first["encoder"])
    for name, tensor in first["encoder"].items():
        assert torch.equal(tensor, second["encoder"][name]), name
    for run in (first, second):
        assert run["repeated"] == run["steps"][12:]
