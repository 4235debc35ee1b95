"""Fine-tuning for retrieval on two ranks gives what one rank gives at double batch: batches, loss, steps and epochs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer

from st_xlret import CrossLingualDataCollator
from st_xlret.modules.two_encoders import freeze_unused, router_mapping, with_two_encoders
from tests import tiny
from tests.distributed.workers import Result, run_on_two_ranks
from tests.training.runs import arguments
from training_scripts.train_retriever import RetrieverArguments, build_batches, build_loss

pytestmark = pytest.mark.distributed
RUNS: dict[str, dict[str, Any]] = {
    "shared": {"language_mixing": 0.5},
    "cached": {"mini_batch_size": 3, "similarity": "dot", "temperature": 1.0},
    "two encoders": {"two_encoders": True},
}


def questions(count: int = 34) -> Dataset:
    dice = random.Random(5)
    rows = [{name: tiny.sentence(dice, 5) for name in ("query", "positive", "negative_1")} for _ in range(count)]
    # Pairs of questions have the same passage.
    return Dataset.from_list(
        [row | {"positive": rows[i // 2]["positive"], "language": ("en", "fr")[i % 2]} for i, row in enumerate(rows)]
    )


def run(rank: int, ranks: int, folder: Path, **options: Any) -> Result:
    # Ranks start from different weights: rank 0's are to win.
    model = tiny.transformer(seed=rank)
    method = RetrieverArguments(**options)
    changed: dict[str, Any] = {"batch_sampler": build_batches(method), "num_train_epochs": 2, "max_grad_norm": 0}
    if method.two_encoders:
        model = with_two_encoders(model)
        freeze_unused(model)
        changed["ddp_find_unused_parameters"] = False
    if ranks > 1:
        changed["ddp_backend"] = "gloo"
    data = questions()
    losses: list[float] = []
    loss = build_loss(model, method)
    loss.register_forward_hook(lambda module, inputs, value: losses.append(value.item()))
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments(folder, per_device_train_batch_size=8 // ranks, learning_rate=1e-3, **changed),
        train_dataset=data,
        loss=loss,
        data_collator=CrossLingualDataCollator(
            model.preprocess, router_mapping=router_mapping(model, {"questions": data}).get("questions", {})
        ),
    )
    trainer.train()
    weights = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items() if ".pooler." not in name}
    return {"losses": losses, "weights": weights}


def work(rank: int, ranks: int, folder: Path) -> Result:
    return {name: run(rank, ranks, folder / name, **options) for name, options in RUNS.items()}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Result, Result]:
    """Of one rank, and of each of two."""
    folder = tmp_path_factory.mktemp("ranks")
    first, second = run_on_two_ranks(work, folder)
    return work(0, 1, folder), first, second


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
