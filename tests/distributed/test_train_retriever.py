"""Fine-tuning for retrieval on two ranks gives what one rank gives at double batch: batches, loss, steps and epochs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from st_xlret.batches import Rows
from st_xlret.losses import RetrievalContrastiveLoss
from st_xlret.modules import with_two_encoders
from st_xlret.training import CrossLingualTrainer
from tests import tiny
from tests.distributed.workers import Result
from tests.training.runs import arguments

pytestmark = pytest.mark.distributed
RUNS = ["cached", "two encoders"]


def questions(count: int = 34) -> Dataset:
    dice = random.Random(5)
    rows = [{name: tiny.sentence(dice, 5) for name in ("query", "positive", "negative_1")} for _ in range(count)]
    # Pairs of questions have the same passage.
    return Dataset.from_list(
        [row | {"positive": rows[i // 2]["positive"], "language": ("en", "fr")[i % 2]} for i, row in enumerate(rows)]
    )


def run(rank: int, ranks: int, folder: Path, name: str) -> Result:
    # Ranks start from different weights: rank 0's are to win.
    model = tiny.transformer(seed=rank)
    model = with_two_encoders(model) if name == "two encoders" else model
    options: dict[str, Any] = {"cached": {"temperature": 1.0, "similarity": "dot"}}.get(name, {})
    loss = RetrievalContrastiveLoss(model, batches=Rows(1.0, 0.5), mini_batch_num_tokens=24, **options)
    losses: list[float] = []
    loss.register_forward_hook(lambda module, inputs, value: losses.append(value.item()))
    changed: dict[str, Any] = {"ddp_backend": "gloo"} if ranks > 1 else {}
    args = arguments(
        folder,
        per_device_train_batch_size=8 // ranks,
        learning_rate=1e-3,
        num_train_epochs=2,
        max_grad_norm=0,
        **changed,
    )
    trainer = CrossLingualTrainer(model, args, questions(), loss=loss)
    trainer.train()
    weights = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items() if ".pooler." not in name}
    return {"losses": losses, "weights": weights}


def work(rank: int, ranks: int, folder: Path) -> Result:
    return {name: run(rank, ranks, folder / name, name) for name in RUNS}


@pytest.mark.parametrize("name", RUNS)
def test_two_ranks_are_one_at_double_batch(results: tuple[Result, Result, Result], name: str) -> None:
    single, first, second = (result[name] for result in results)
    # The loss of a batch is the mean of the ranks' own questions.
    both = torch.tensor([first["losses"], second["losses"]]).mean(0)
    assert len(single["losses"]) == 8
    torch.testing.assert_close(both, torch.tensor(single["losses"]), rtol=1e-4, atol=1e-5)
    for key, tensor in single["weights"].items():
        assert torch.equal(first["weights"][key], second["weights"][key]), key
        torch.testing.assert_close(first["weights"][key], tensor, rtol=1e-3, atol=2e-5, msg=key)
