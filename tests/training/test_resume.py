"""A resumed run repeats the uninterrupted one."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.training import LOSS_STATE_FILE
from tests.training.runs import run_of


def final_state(trainer: Any) -> dict[str, Tensor]:
    owned = {f"{name}/{k}": v for name, loss in trainer.loss.items() for k, v in loss.owned_state().items()}
    return {k: v.clone() for k, v in (trainer.model.state_dict() | owned).items()}


@pytest.mark.parametrize(
    ("kind", "steps", "options"),
    [
        ("ccp", 44, {}),
        ("ccp", 24, {"scope": "per_language", "gradient_accumulation_steps": 2}),
        ("msm", 8, {"gradient_accumulation_steps": 2}),
        ("ml-ctl", 8, {}),
        ("joint", 6, {}),
        ("joint", 4, {"gradient_accumulation_steps": 2}),
    ],
)
def test_a_resumed_run_repeats_the_uninterrupted_one(
    kind: str, steps: int, options: dict[str, Any], tmp_path: Path
) -> None:
    options = {"max_steps": steps, "save_strategy": "steps", "save_steps": steps // 2, **options}
    whole, recorded = run_of(kind, tmp_path, **options)
    whole.train()
    resumed, repeated = run_of(kind, tmp_path, seed=7, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{steps // 2}"))
    next_steps = [entry for entry in recorded.steps if entry[0] >= steps // 2]
    assert repeated.steps == next_steps and next_steps
    expected = final_state(whole)
    for name, tensor in final_state(resumed).items():
        assert torch.equal(tensor, expected[name]), name
    if kind == "ccp":
        # It was a run worth repeating: all three losses, several epochs, a bank that was filled more than once.
        counts = Counter(name for _, name, _ in next_steps)
        assert len(counts) == 3 and min(counts.values()) > 2 and whole.state.epoch > 1  # type: ignore[operator]
        assert len(whole.loss["ccp"].bank) >= 22


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    run_of("ccp", folder, max_steps=2, save_strategy="steps", save_steps=2)[0].train()
    return folder / "checkpoint-2"


def test_a_checkpoint_is_a_plain_model_and_the_losses_state_beside_it(checkpoint: Path) -> None:
    modules = json.loads((checkpoint / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    assert SentenceTransformer(str(checkpoint), device="cpu").encode(["sun moon"]).shape == (1, 32)
    with safe_open(checkpoint / LOSS_STATE_FILE, "pt") as file:
        names = set(file.keys())
    assert {"ccp/bank.keys", "ccp/head.toggle", "ccp/head.norm.running_mean", "mlm/lm_head.bias"} <= names
    assert not [name for name in names if "/model." in name or name.startswith("pairs/")]
    assert not list(checkpoint.glob(".*"))


def test_the_checkpoint_may_be_in_another_folder_but_has_its_loss_state(checkpoint: Path, tmp_path: Path) -> None:
    trainer, recorder = run_of("ccp", tmp_path, max_steps=4)
    trainer.train(resume_from_checkpoint=str(checkpoint))
    assert len(recorder.steps) == 2
    shutil.copytree(checkpoint, tmp_path / "checkpoint-2", ignore=shutil.ignore_patterns(LOSS_STATE_FILE))
    with pytest.raises(FileNotFoundError, match=r"checkpoint-2.loss_state.safetensors"):
        run_of("ccp", tmp_path, max_steps=4)[0].train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
