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
from st_xlret.training.loss_state import name_losses
from tests import tiny
from tests.training.runs import arguments, interleaved_run


def ccp(seed: int = 0) -> CCPLoss:
    model = tiny.static(seed=seed)
    loss = CCPLoss(model, bank=LanguageMemoryBank(8, 4))
    loss([tiny.features(model, tiny.window_rows(3, seed=seed))]).backward()
    return loss


def test_names() -> None:
    loss = ccp()
    host = MultipleNegativesRankingLoss(loss.model)
    assert name_losses(loss) == {"0.CCPLoss": loss}
    assert name_losses([host, loss]) == {"1.CCPLoss": loss}
    assert name_losses({"documents": loss, "pairs": host}) == {"documents": loss}


def test_state_goes_from_one_callback_to_another() -> None:
    names = ("documents/en", "documents/fr")
    first = LossStateCallback(dict(zip(names, (ccp(0), ccp(1)), strict=True)))
    second = LossStateCallback(dict(zip(names, (ccp(2), ccp(3)), strict=True)))
    state = first.state_dict()
    assert all(not tensor.requires_grad for tensor in state.values())
    second.load_state_dict(state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in second.state_dict().items())


def test_a_state_of_other_losses_is_refused() -> None:
    with pytest.raises(ValueError, match="losses that this run does not have.*documents/"):
        LossStateCallback({"sentences": ccp()}).load_state_dict(LossStateCallback({"documents": ccp()}).state_dict())
    with pytest.raises(ValueError, match="missing"):
        LossStateCallback(ccp()).load_state_dict({})


def test_losses_that_own_nothing_are_saved_and_resumed(tmp_path: Path) -> None:
    callback = LossStateCallback(SemanticContrastiveLoss(tiny.static()))
    args, state = arguments(tmp_path), TrainerState(global_step=5)
    (tmp_path / "checkpoint-5").mkdir()
    callback.on_save(args, state, TrainerControl())
    assert [path.name for path in (tmp_path / "checkpoint-5").iterdir()] == [LOSS_STATE_FILE]
    callback.on_train_begin(args, state, TrainerControl())


def test_nothing_is_written_where_there_is_no_checkpoint(tmp_path: Path) -> None:
    LossStateCallback(ccp()).on_save(arguments(tmp_path), TrainerState(global_step=5), TrainerControl())
    assert not list(tmp_path.iterdir())


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


def test_the_optimizer_trains_what_the_losses_own(tmp_path: Path) -> None:
    trainer, recorder = interleaved_run(tmp_path, max_steps=12)
    before = {name: loss.owned_state() for name, loss in trainer.loss.items()}
    before = {name: {k: v.clone() for k, v in state.items()} for name, state in before.items()}
    trainer.train()
    assert {name for _, name, _ in recorder.steps} == {"ccp", "mlm", "pairs"}
    for name, parameter in ("ccp", "head.linear_out.weight"), ("mlm", "lm_head.bias"):
        assert not torch.equal(trainer.loss[name].owned_state()[parameter], before[name][parameter])


@pytest.mark.parametrize("kind", ["FSDP", "DeepSpeed", "fp16 in several processes"])
def test_what_cannot_hold_parameters_of_losses_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    args: Any = SimpleNamespace(fsdp=None, deepspeed_plugin=None, fp16=False, world_size=2)
    changed = {"FSDP": {"fsdp": "full"}, "DeepSpeed": {"deepspeed_plugin": object()}}.get(kind, {"fp16": True})
    vars(args).update(changed)
    losses = {"windows": ccp(), "pairs": SemanticContrastiveLoss(tiny.static())}
    with pytest.raises(ValueError, match=rf"{kind}.*\['windows'\].*DDP"):
        LossStateCallback(losses).on_init_end(args, TrainerState(), TrainerControl())
    LossStateCallback(losses["pairs"]).on_init_end(args, TrainerState(), TrainerControl())
    args = SimpleNamespace(fsdp=None, deepspeed_plugin=None, fp16=True, world_size=1)
    LossStateCallback(losses).on_init_end(args, TrainerState(), TrainerControl())
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ValueError, match="FSDP"):
        LossStateCallback(losses).on_init_end(args, TrainerState(), TrainerControl())


def windows_or_rows(dataset: Any, *given: Any, **options: Any) -> Any:
    return (Windows() if "document" in dataset.column_names else Rows())(dataset, *given, **options)


@pytest.mark.parametrize("prompts", ["wind ", {"sentence": "wind "}, {"ccp": {"sentence": "wind "}}])
def test_the_hosts_own_trainer_keeps_state_and_prompts_by_the_callback(tmp_path: Path, prompts: Any) -> None:
    model = tiny.transformer()
    losses = {"ccp": CCPLoss(model, bank_size=8), "pairs": SemanticContrastiveLoss(model)}
    args = SentenceTransformerTrainingArguments(
        str(tmp_path),
        max_steps=4,
        save_steps=4,
        prompts=prompts,
        per_device_train_batch_size=4,
        multi_dataset_batch_sampler=InterleavedBatchSampler,
        batch_sampler=windows_or_rows,
        report_to="none",
        use_cpu=True,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=DatasetDict(ccp=losses["ccp"].select(tiny.documents()), pairs=tiny.pairs()),
        loss=losses,
        data_collator=CrossLingualDataCollator(model.preprocess),
        callbacks=[LossStateCallback(losses)],
    )
    read: dict[str, set[str]] = {}

    def watch(texts: list[str], **options: Any) -> Any:
        read.setdefault(str(options.get("prompt")), set()).update(texts)
        return model.preprocess(texts, **options)

    trainer.data_collator.preprocess_fn = watch
    trainer.train()
    assert losses["ccp"].state_is_kept and (tmp_path / "checkpoint-4" / LOSS_STATE_FILE).is_file()
    assert read.get("wind ") and (len(read) > 1) == isinstance(prompts, dict)
