"""Two ranks with batches of 4 take the steps of one rank with batches of 8.

A run can go on with another number of ranks.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from st_xlret.batches import Rows
from st_xlret.losses import RetrievalContrastiveLoss
from st_xlret.modules import with_two_encoders
from tests import tiny
from tests.distributed.workers import Result
from tests.training.runs import KINDS, questions, run_of, system_of, trainer_of

pytestmark = [pytest.mark.distributed, pytest.mark.slow]
GLOBAL_BATCH = 8
STEPS = {"ccp": (4, 7), "msm": (2, 3), "ml-ctl": (2, 3), "joint": (2, 3), "retriever": (2, 3)}
"""When there is a checkpoint, and when the run ends."""


def retriever(model: Any) -> tuple[dict[str, Any], dict[str, Dataset]]:
    """Two encoders in micro-batches; pairs of questions have the same passage."""
    rows = questions().to_list()
    of_two = [
        {"positive": rows[i // 2]["positive"], "language": ("en", "fr")[i % 2]}
        for i in range(len(rows))
    ]
    rows = [row | changed for row, changed in zip(rows, of_two, strict=True)]
    options: dict[str, Any] = {"temperature": 1.0, "similarity": "dot", "mini_batch_num_tokens": 24}
    loss = RetrievalContrastiveLoss(with_two_encoders(model), batches=Rows(1.0, 0.5), **options)
    return {"retriever": loss}, {"retriever": Dataset.from_list(rows)}


def run(
    kind: str, ranks: int, folder: Path, *, rank: int = 0, resume_from: Path | None = None
) -> Result:
    """Losses of every step, and what the run ends with."""
    # Ranks start from different weights: rank 0's are to win. Without dropout, which every rank
    # draws by itself.
    model = tiny.transformer(seed=rank)
    # Of the joint losses, two do not use the encoder of queries.
    losses, datasets = (
        retriever(model)
        if kind == "retriever"
        else system_of(kind, model, two_encoders=kind == "joint")
    )
    # In double precision, so that what remains is a fault and no rounding.
    for loss in losses.values():
        loss.double()
    options: dict[str, Any] = {
        "per_device_train_batch_size": GLOBAL_BATCH // ranks,
        "learning_rate": 1e-3,
    }
    checkpoint, end = STEPS[kind]
    options |= {
        "max_steps": end,
        "save_strategy": "steps",
        "save_steps": checkpoint,
        "joint": kind == "joint",
    }
    options |= {"ddp_backend": "gloo"} if ranks > 1 else {}
    trainer, recorder = trainer_of(folder, losses, datasets, **options)
    trainer.train(resume_from_checkpoint=str(resume_from) if resume_from else None)
    owned = {
        f"{name}/{key}": tensor
        for name, loss in losses.items()
        for key, tensor in loss.owned_state().items()
    }
    state = {
        key: tensor for key, tensor in trainer.model.state_dict().items() if ".pooler." not in key
    }
    return {
        "steps": [(step, name) for step, name, _ in recorder.steps],
        "losses": torch.tensor([value for *_, value in recorder.steps], dtype=torch.float64),
        "state": {key: tensor.clone() for key, tensor in (state | owned).items()},
    }


def check(single: Result, ranks: list[Result], first_step: int = 0) -> None:
    """Two ranks did what one does from a step on, and ended with the same."""
    expected = [i for i, (step, _) in enumerate(single["steps"]) if step >= first_step]
    assert expected and all(
        rank["steps"] == [single["steps"][i] for i in expected] for rank in ranks
    )
    # The loss of masked words is that of each rank's own words, weighted such that the mean is that
    # of all.
    mean = torch.stack([rank["losses"] for rank in ranks]).mean(0)
    torch.testing.assert_close(mean, single["losses"][expected], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(ranks[0]["state"], single["state"], rtol=1e-5, atol=1e-7)
    assert all(
        torch.equal(ranks[0]["state"][name], tensor) for name, tensor in ranks[-1]["state"].items()
    )


def work(rank: int, ranks: int, folder: Path) -> Result:
    """Each kind; on two ranks also from the middle of one rank's run, and exactly repeated."""
    results: Result = {
        kind: run(kind, ranks, folder / f"{ranks}-{kind}", rank=rank) for kind in STEPS
    }
    for kind in KINDS if ranks == 2 else ():
        before = folder / f"1-{kind}" / f"checkpoint-{STEPS[kind][0]}"
        results[f"{kind} resumed"] = run(
            kind, 2, folder / f"1-{kind}-on-2", rank=rank, resume_from=before
        )
    return {
        **results,
        "folder": str(folder),
        "repeated": repeat(rank, folder / "repeated") if ranks == 2 else None,
    }


def repeat(rank: int, folder: Path) -> Result:
    """A run with dropout, and once more from its checkpoint, which lies in its second epoch."""
    options = {"max_steps": 23, "save_strategy": "steps", "save_steps": 20, "ddp_backend": "gloo"}
    trainer, recorder = run_of("ccp", folder, seed=rank, **options)
    resumed, repeated = run_of("ccp", folder, seed=5 + rank, **options)
    trainer.train()
    resumed.train(resume_from_checkpoint=str(folder / "checkpoint-20"))
    state = trainer.state
    return {
        "epoch": state.epoch,
        "tokens": state.num_input_tokens_seen,
        "runs": [recorder.steps, repeated.steps],
    }


@pytest.mark.parametrize("kind", STEPS)
def test_losses_weights_and_resume(results: tuple[Result, Result, Result], kind: str) -> None:
    single, *ranks = results
    check(single[kind], [rank[kind] for rank in ranks])
    if kind in KINDS:
        step, folder = STEPS[kind][0], Path(single["folder"])
        check(single[kind], [rank[f"{kind} resumed"] for rank in ranks], step)
        before = folder / f"2-{kind}" / f"checkpoint-{step}"
        check(single[kind], [run(kind, 1, folder / f"2-{kind}-on-1", resume_from=before)], step)
    # They were runs worth repeating: the head has learnt statistics, all losses had steps.
    variance = single["ccp"]["state"]["ccp/head.norm.running_var"]
    assert not torch.equal(variance, torch.ones_like(variance))
    assert {name for _, name in single["joint"]["steps"]} == {"semantic", "language", "retrieval"}


def test_two_ranks_resume_exactly(results: tuple[Result, Result, Result]) -> None:
    ranks = [result["repeated"] for result in results[1:]]
    for rank in ranks:
        first, again = rank["runs"]
        assert again and again == [step for step in first if step[0] >= 20]
        assert [part for _, part, _ in first] == [part for _, part, _ in ranks[0]["runs"][0]]
    assert ranks[0]["epoch"] * 20 / 23 > 1 and ranks[0]["tokens"] == ranks[1]["tokens"] > 0
