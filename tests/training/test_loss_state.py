"""LossStateCallback: names, state, clipping."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import DatasetDict
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
    first, second = (LossStateCallback({name: ccp(seed + i) for i, name in enumerate(names)}) for seed in (0, 2))
    state = first.state_dict()
    second.load_state_dict(state)
    for name, tensor in second.state_dict().items():
        assert torch.equal(tensor, state[name]) and not tensor.requires_grad
    loss = ccp()
    callback = LossStateCallback([MultipleNegativesRankingLoss(loss.model), loss])
    assert callback.losses == {"1.CCPLoss": loss}
    for other, kind in ((state, KeyError), ({}, RuntimeError)):
        with pytest.raises(kind):
            callback.load_state_dict(other)


def test_gradients_of_the_losses_are_clipped(tmp_path: Path) -> None:
    loss = ccp()
    encoder = loss.model[0].embedding.weight.grad.clone()
    for limit in (1e9, 0.0, 0.1):
        before = torch.cat([p.grad.flatten() for p in loss.owned_parameters()])
        args = arguments(tmp_path, max_grad_norm=limit)
        LossStateCallback(loss).on_pre_optimizer_step(args, TrainerState(), TrainerControl())
        after = torch.cat([p.grad.flatten() for p in loss.owned_parameters()])
        torch.testing.assert_close(after, before if limit != 0.1 else 0.1 * before / before.norm(), rtol=1e-4, atol=0)
        assert torch.equal(loss.model[0].embedding.weight.grad, encoder)


def test_what_cannot_hold_parameters_of_losses_is_refused() -> None:
    def start(loss: Any, **changed: Any) -> None:
        fields = {"fsdp": None, "deepspeed_plugin": None, "fp16": False, "world_size": 2, **changed}
        args: Any = SimpleNamespace(**fields)
        LossStateCallback({"windows": loss}).on_init_end(args, TrainerState(), TrainerControl())

    for change in ({"fsdp": "full"}, {"deepspeed_plugin": object()}, {"fp16": True}):
        with pytest.raises(ValueError, match="windows"):
            start(ccp(), **change)
        start(SemanticContrastiveLoss(tiny.static()), **change)
    start(ccp(), fp16=True, world_size=1)


def windows_or_rows(dataset: Any, *given: Any, **options: Any) -> Any:
    return (Windows() if "document" in dataset.column_names else Rows())(dataset, *given, **options)


def test_the_hosts_own_trainer_keeps_the_state_by_the_callback(tmp_path: Path) -> None:
    model = tiny.transformer()
    losses = {"ccp": CCPLoss(model, bank_size=8), "pairs": SemanticContrastiveLoss(model)}
    options: dict[str, Any] = {"max_steps": 4, "save_steps": 4, "per_device_train_batch_size": 4, "use_cpu": True}
    options |= {"multi_dataset_batch_sampler": InterleavedBatchSampler, "batch_sampler": windows_or_rows}
    args = SentenceTransformerTrainingArguments(str(tmp_path), report_to="none", **options)
    SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=DatasetDict(ccp=losses["ccp"].select(tiny.documents()), pairs=tiny.pairs()),
        loss=losses,
        data_collator=CrossLingualDataCollator(model.preprocess),
        callbacks=[LossStateCallback(losses)],
    ).train()
    assert losses["ccp"].state_is_kept and (tmp_path / "checkpoint-4" / LOSS_STATE_FILE).is_file()
