"""A resumed run repeats the uninterrupted one."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.training import LOSS_STATE_FILE
from tests.training.runs import RUNS, interleaved_run

STEPS = {"max_steps": 100, "save_strategy": "steps", "save_steps": 50}


def final_state(trainer) -> dict[str, Tensor]:
    owned = {f"{name}/{k}": v for name, loss in trainer.loss.items() for k, v in loss.owned_state().items()}
    return {k: v.clone() for k, v in (trainer.model.state_dict() | owned).items()}


@pytest.mark.parametrize(
    "scope, options",
    [
        ("total", {}),
        ("per_language", {"gradient_accumulation_steps": 2, "max_steps": 50, "save_steps": 25}),
    ],
)
def test_the_next_losses_after_a_resume_are_equal(tmp_path: Path, scope: str, options: dict[str, int]) -> None:
    steps = {**STEPS, **options}
    whole, recorded = interleaved_run(tmp_path, seed=0, scope=scope, **steps)
    whole.train()
    next_steps = [entry for entry in recorded.steps if entry[0] >= steps["save_steps"]]
    checkpoint = tmp_path / f"checkpoint-{steps['save_steps']}"

    resumed, repeated = interleaved_run(tmp_path, seed=7, scope=scope, **steps)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert repeated.steps == next_steps
    expected = final_state(whole)
    for name, tensor in final_state(resumed).items():
        assert torch.equal(tensor, expected[name]), name

    # It was a run worth repeating: all three losses, several epochs, a bank that was filled more than once.
    assert min(Counter(name for _, name, _ in next_steps).values()) > 3
    assert whole.state.epoch is not None and whole.state.epoch > 1
    assert len(whole.loss["ccp"].bank) == (22 if scope == "total" else 44)
    if scope == "total":
        check_the_checkpoint(checkpoint)


def check_the_checkpoint(checkpoint: Path) -> None:
    """A plain Sentence Transformers model, and the losses' state as plain tensors beside it."""
    modules = json.loads((checkpoint / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    model = SentenceTransformer(str(checkpoint), device="cpu")
    assert model.encode(["sun moon"]).shape == (1, 32)
    with safe_open(checkpoint / LOSS_STATE_FILE, "pt") as file:
        names = set(file.keys())
    assert {"ccp/bank.keys", "ccp/head.toggle", "ccp/head.norm.running_mean", "mlm/lm_head.bias"} <= names
    assert not [name for name in names if "/model." in name or name.startswith("pairs/")]
    assert not list(checkpoint.glob(".*"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    interleaved_run(folder, max_steps=2, save_strategy="steps", save_steps=2)[0].train()
    return folder / "checkpoint-2"


def test_a_checkpoint_without_loss_state_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoint, tmp_path / "checkpoint-2", ignore=shutil.ignore_patterns(LOSS_STATE_FILE))
    trainer, _ = interleaved_run(tmp_path, max_steps=4)
    with pytest.raises(FileNotFoundError, match=r"checkpoint-2.loss_state.safetensors"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_the_checkpoint_may_be_in_another_folder(checkpoint: Path, tmp_path: Path) -> None:
    trainer, recorder = interleaved_run(tmp_path, max_steps=4)
    trainer.train(resume_from_checkpoint=str(checkpoint))
    assert len(recorder.steps) == 2


@pytest.mark.parametrize(("name", "rounds"), [("msm", 2), ("ml-ctl", 1), ("joint", 1), ("joint", 2)])
def test_a_resumed_run_of_every_kind_repeats_the_uninterrupted_one(name: str, rounds: int, tmp_path: Path) -> None:
    steps = {"max_steps": 8, "save_strategy": "steps", "save_steps": 4, "gradient_accumulation_steps": rounds}
    whole, recorded = RUNS[name](tmp_path, **steps)
    whole.train()
    resumed, repeated = RUNS[name](tmp_path, seed=7, **steps)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert repeated.steps == [entry for entry in recorded.steps if entry[0] >= 4] and len(repeated.steps) >= 4 * rounds
    expected = final_state(whole)
    for key, tensor in final_state(resumed).items():
        assert torch.equal(tensor, expected[key]), key
