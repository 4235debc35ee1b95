"""Runs of every kind: what the host does around the losses changes nothing, and a resumed run repeats the whole one."""

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
from tests.training.runs import KINDS, Recorder, run_of, state_of


def trained(kind: str, folder: Path, **changed: Any) -> tuple[Any, Recorder]:
    trainer, recorder = run_of(kind, folder, **changed)
    trainer.train()
    return trainer, recorder


def values(recorder: Recorder) -> list[tuple[str, float]]:
    return [(name, value) for _, name, value in recorder.steps]


def final_state(trainer: Any) -> dict[str, Tensor]:
    return {f"{name}/{key}": weight for name, loss in trainer.loss.items() for key, weight in state_of(loss).items()}


@pytest.mark.parametrize(
    ("kind", "steps", "options"),
    [
        ("ccp", 36, {}),
        ("ccp", 24, {"scope": "per_language", "gradient_accumulation_steps": 2}),
        ("msm", 4, {"gradient_accumulation_steps": 2}),
        ("ml-ctl", 6, {}),
        ("joint", 4, {"gradient_accumulation_steps": 2}),
    ],
)
def test_a_resumed_run_repeats_the_uninterrupted_one(
    kind: str, steps: int, options: dict[str, Any], tmp_path: Path
) -> None:
    options = {"max_steps": steps, "save_strategy": "steps", "save_steps": steps // 2, **options}
    whole, recorded = trained(kind, tmp_path, **options)
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
        assert len(counts) == 3 and min(counts.values()) > 1 and whole.state.epoch > 1  # type: ignore[operator]
        assert len(whole.loss["ccp"].bank) >= 22


def test_a_checkpoint_is_a_plain_model_and_the_losses_state_beside_it(tmp_path: Path) -> None:
    trained("ccp", tmp_path / "run", max_steps=2, save_strategy="steps", save_steps=2)
    checkpoint = tmp_path / "run" / "checkpoint-2"
    modules = json.loads((checkpoint / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    assert SentenceTransformer(str(checkpoint), device="cpu").encode(["sun moon"]).shape == (1, 32)
    with safe_open(checkpoint / LOSS_STATE_FILE, "pt") as file:
        names = set(file.keys())
    assert {"ccp/bank.keys", "ccp/head.toggle", "ccp/head.norm.running_mean", "mlm/lm_head.bias"} <= names
    assert not [name for name in names if "/model." in name or name.startswith("pairs/")]
    assert not list(checkpoint.glob(".*"))
    # It is resumed from another folder too, but not without the state of the losses.
    trainer, recorder = run_of("ccp", tmp_path, max_steps=4)
    trainer.train(resume_from_checkpoint=str(checkpoint))
    assert len(recorder.steps) == 2
    shutil.copytree(checkpoint, tmp_path / "checkpoint-2", ignore=shutil.ignore_patterns(LOSS_STATE_FILE))
    with pytest.raises(FileNotFoundError, match=r"checkpoint-2.loss_state.safetensors"):
        run_of("ccp", tmp_path, max_steps=4)[0].train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


# What the host's Trainer does around the losses


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_accumulation(kind: str, tmp_path: Path) -> None:
    # Weights that stay as they are: the batches of a step are then those of two steps of the plain run.
    fixed: dict[str, Any] = {"learning_rate": 0.0, "max_grad_norm": 0.0}
    _, plain = trained(kind, tmp_path / "plain", max_steps=4, **fixed)
    _, twice = trained(kind, tmp_path / "accumulated", max_steps=2, gradient_accumulation_steps=2, **fixed)
    assert values(twice) == values(plain) and len(values(plain)) == 4 * (3 if kind == "joint" else 1)
    for step, accumulated in enumerate(twice.gradients):
        first, second = plain.gradients[2 * step : 2 * step + 2]
        assert accumulated.keys() == first.keys() | second.keys()
        for key, gradient in accumulated.items():
            zero = torch.zeros_like(gradient)
            mean = (first.get(key, zero) + second.get(key, zero)) / 2
            torch.testing.assert_close(gradient, mean, rtol=1e-5, atol=1e-7, msg=lambda m, k=key: f"{k}: {m}")


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_checkpointing(kind: str, tmp_path: Path) -> None:
    plain, expected = trained(kind, tmp_path / "plain", max_steps=3)
    checkpointing, recorder = trained(kind, tmp_path / "checkpointing", max_steps=3, gradient_checkpointing=True)
    layers = [trainer.model[0].auto_model for trainer in (checkpointing, plain)]
    assert [each.is_gradient_checkpointing for each in layers] == [True, False]
    for (name, value), (other_name, other) in zip(values(recorder), values(expected), strict=True):
        assert name == other_name and value == pytest.approx(other, rel=1e-4, abs=1e-5)
    for gradients, others in zip(recorder.gradients, expected.gradients, strict=True):
        torch.testing.assert_close(gradients, others, rtol=1e-2, atol=1e-4)


def test_workers_of_the_data_loader_draw_the_same_batches(tmp_path: Path) -> None:
    read: list[list[list[int]]] = []
    losses = []
    for workers, persistent in ((0, False), (2, False), (2, True)):
        options = {"dataloader_num_workers": workers, "dataloader_persistent_workers": persistent}
        trainer, recorder = run_of("ml-ctl", tmp_path, max_steps=6, **options)
        read.append([])
        trainer.loss["words"].register_forward_pre_hook(
            lambda _, inputs, of_run=read[-1]: of_run.extend(column["text_id"].tolist() for column in inputs[0])
        )
        trainer.train()
        losses.append(values(recorder))
    # More than one pass over the words: workers that stay meet the next one.
    assert trainer.state.epoch > 1
    assert read[0] == read[1] == read[2] and len(read[0]) == 12
    # Workers that stay draw one random number fewer per epoch, which dropout and masked words then see.
    assert losses[0] == losses[1]
