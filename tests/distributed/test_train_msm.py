"""A run of MSM on two ranks: no rank waits for another, and both end with the same encoder and document encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformerTrainer

from st_xlret import InterleavedBatches, LossMonitorCallback, LossStateCallback, TokenCountCallback
from tests import tiny
from tests.distributed.workers import Result, run_on_two_ranks
from tests.training.runs import Recorder, arguments
from training_scripts.studies import train_msm_ablation
from training_scripts.train_msm import build_batches, build_collator, build_datasets

pytestmark = pytest.mark.distributed
RUNS: dict[str, dict[str, Any]] = {
    "alternate": {"pairs": tiny.pairs},
    # Micro-batches, of which the ranks have different numbers, and a second loss in every step.
    "sum": {"sum_mlm": True, "mini_batch_size": 3, "document_encoder": "separate"},
}


def work(rank: int, ranks: int, folder: Path) -> Result:
    return {name: run(rank, folder / name, **options) for name, options in RUNS.items()}


def run(rank: int, folder: Path, *, pairs: Any = None, **options: Any) -> Result:
    # Ranks start from different weights: rank 0's are to win.
    model = tiny.transformer(dropout=0.1, seed=rank)
    method = train_msm_ablation.AblationArguments(block_sentences=4, negatives=16, **options)
    datasets = build_datasets(model, tiny.documents(16, 5), None if pairs is None else pairs(), method)
    losses: Any = train_msm_ablation.build_losses(model, datasets, method)
    batches = {"batch_sampler": build_batches(method), "multi_dataset_batch_sampler": InterleavedBatches()}
    trainer: Any = SentenceTransformerTrainer(
        model=model,
        args=arguments(folder, per_device_train_batch_size=2, max_steps=6, ddp_backend="gloo", **batches),
        train_dataset=datasets,
        loss=losses,
        data_collator=build_collator(model, method, 0.0),
        callbacks=[LossStateCallback(losses), LossMonitorCallback(losses), TokenCountCallback(losses)],
    )
    recorder = Recorder(trainer.loss)
    trainer.callback_handler.callbacks.insert(0, recorder)
    first = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trainer.train()
    owned = {f"{name}/{k}": v for name, loss in trainer.loss.items() for k, v in loss.owned_state().items()}
    return {
        "steps": recorder.steps,
        "tokens": trainer.state.num_input_tokens_seen,
        "first": first,
        "encoder": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "owned": {name: tensor.clone() for name, tensor in owned.items()},
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """Of each rank."""
    return run_on_two_ranks(work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize(("name", "losses"), [("alternate", {"msm", "mlm", "pairs"}), ("sum", {"msm"})])
def test_both_ranks_take_the_same_steps_and_learn_the_same(results: list[Result], name: str, losses: set[str]) -> None:
    first, second = (result[name] for result in results)
    taken = [[(step, loss) for step, loss, _ in rank["steps"]] for rank in (first, second)]
    assert taken[0] == taken[1] and [step for step, _ in taken[0]] == list(range(6))
    assert {loss for _, loss in taken[0]} == losses
    assert all(torch.tensor(value).isfinite() for rank in (first, second) for _, _, value in rank["steps"])
    # Of both ranks, which read different sentences.
    assert first["tokens"] == second["tokens"] > 2 * 6 * 8 * 3
    for part in ("encoder", "owned"):
        for key, tensor in first[part].items():
            assert torch.equal(tensor, second[part][key]), key
    assert any("document_encoders" in key for key in first["owned"])
    assert any(not torch.equal(tensor, first["encoder"][key]) for key, tensor in first["first"].items())
    assert any(not torch.equal(tensor, second["first"][key]) for key, tensor in first["first"].items())
