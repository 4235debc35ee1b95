"""LossStateCallback: names, state, clipping."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import DatasetDict
from safetensors import safe_open
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import TrainerControl, TrainerState

from st_xlret.batches import CrossLingualDataCollator, InterleavedBatchSampler, Rows, Windows
from st_xlret.losses import CCPLoss, SemanticContrastiveLoss
from st_xlret.modules import LanguageMemoryBank
from st_xlret.training import LOSS_STATE_FILE, LossStateCallback
from tests import tiny
from tests.training.runs import arguments


def ccp(seed: int = 0) -> CCPLoss:
    model = tiny.static(seed=seed)
    loss = CCPLoss(model, bank=LanguageMemoryBank(8, 4))
    loss([tiny.features(model, tiny.window_rows(3, seed=seed))]).backward()
    return loss


def test_state_goes_from_one_callback_to_another_of_the_same_losses() -> None:
    names = ("documents/en", "documents/fr")
    first = LossStateCallback(dict(zip(names, (ccp(0), ccp(1)), strict=True)))
    second = LossStateCallback(dict(zip(names, (ccp(2), ccp(3)), strict=True)))
    state = first.state_dict()
    assert all(not tensor.requires_grad for tensor in state.values())
    second.load_state_dict(state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in second.state_dict().items())
    loss = ccp()
    callback = LossStateCallback([MultipleNegativesRankingLoss(loss.model), loss])
    assert callback.losses == {"1.CCPLoss": loss}
    for other, message in ((state, "documents"), ({}, "fit")):
        with pytest.raises(ValueError, match=message):
            callback.load_state_dict(other)


def test_losses_that_own_nothing_are_saved_and_resumed(tmp_path: Path) -> None:
    callback = LossStateCallback(SemanticContrastiveLoss(tiny.static()), options={"seed": 3})
    args, state = arguments(tmp_path), TrainerState(global_step=5)
    callback.on_save(args, state, TrainerControl())
    assert not list(tmp_path.iterdir()), "there is no checkpoint"
    (tmp_path / "checkpoint-5").mkdir()
    callback.on_save(args, state, TrainerControl())
    assert [path.name for path in (tmp_path / "checkpoint-5").iterdir()] == [LOSS_STATE_FILE]
    with safe_open(tmp_path / "checkpoint-5" / LOSS_STATE_FILE, "pt") as file:
        assert json.loads(file.metadata()["options"]) == {"seed": 3}
    callback.on_train_begin(args, state, TrainerControl())


@pytest.mark.parametrize("limit, clipped", [(0.1, True), (0.0, False), (1e9, False)])
def test_gradients_of_the_losses_are_clipped(tmp_path: Path, limit: float, clipped: bool) -> None:
    loss = ccp()
    before = [p.grad.clone() for p in loss.owned_parameters()]
    encoder = loss.model[0].embedding.weight.grad.clone()
    args = arguments(tmp_path, max_grad_norm=limit)
    LossStateCallback(loss).on_pre_optimizer_step(args, TrainerState(), TrainerControl())
    norm = torch.stack([p.grad.norm() for p in loss.owned_parameters()]).norm()
    expected = limit if clipped else torch.stack([gradient.norm() for gradient in before]).norm()
    assert norm == pytest.approx(float(expected), rel=1e-4)
    assert torch.equal(loss.model[0].embedding.weight.grad, encoder)


@pytest.mark.parametrize("change", [{"fsdp": "full"}, {"deepspeed_plugin": object()}, {"fp16": True}])
def test_what_cannot_hold_parameters_of_losses_is_refused(change: dict[str, Any]) -> None:
    def start(loss: Any, **changed: Any) -> None:
        fields = {"fsdp": None, "deepspeed_plugin": None, "fp16": False, "world_size": 2, **changed}
        args: Any = SimpleNamespace(**fields)
        LossStateCallback({"windows": loss}).on_init_end(args, TrainerState(), TrainerControl())

    with pytest.raises(ValueError, match="windows"):
        start(ccp(), **change)
    start(SemanticContrastiveLoss(tiny.static()), **change)
    start(ccp(), fp16=True, world_size=1)


def windows_or_rows(dataset: Any, *given: Any, **options: Any) -> Any:
    return (Windows() if "document" in dataset.column_names else Rows())(dataset, *given, **options)


def test_the_hosts_own_trainer_keeps_the_state_by_the_callback(tmp_path: Path) -> None:
    model = tiny.transformer()
    losses = {"ccp": CCPLoss(model, bank_size=8), "pairs": SemanticContrastiveLoss(model)}
    args = SentenceTransformerTrainingArguments(
        str(tmp_path),
        max_steps=4,
        save_steps=4,
        per_device_train_batch_size=4,
        multi_dataset_batch_sampler=InterleavedBatchSampler,
        batch_sampler=windows_or_rows,
        report_to="none",
        use_cpu=True,
    )
    SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=DatasetDict(ccp=losses["ccp"].select(tiny.documents()), pairs=tiny.pairs()),
        loss=losses,
        data_collator=CrossLingualDataCollator(model.preprocess),
        callbacks=[LossStateCallback(losses)],
    ).train()
    assert losses["ccp"].state_is_kept and (tmp_path / "checkpoint-4" / LOSS_STATE_FILE).is_file()
