"""LossStateCallback: names, state, clipping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import TrainerControl, TrainerState

from st_xlret.losses import CCPLoss, SemanticContrastiveLoss
from st_xlret.modules import AsymmetricBNHead, LanguageMemoryBank
from st_xlret.training import LOSS_STATE_FILE, LossStateCallback
from st_xlret.training.loss_state_callback import average_gradients, name_losses, unique_parameters
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
    with pytest.raises(TypeError, match="expected loss modules, got str"):
        name_losses(["ccp"])


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


def test_a_shared_head_counts_once() -> None:
    model, head = tiny.static(), AsymmetricBNHead(8)
    assert len(unique_parameters([CCPLoss(model, head), CCPLoss(model, head)])) == len(list(head.parameters()))
    average_gradients([])


def test_the_optimizer_trains_what_the_losses_own(tmp_path: Path) -> None:
    trainer, recorder = interleaved_run(tmp_path, max_steps=12)
    before = {name: loss.owned_state() for name, loss in trainer.loss.items()}
    before = {name: {k: v.clone() for k, v in state.items()} for name, state in before.items()}
    trainer.train()
    assert {name for _, name, _ in recorder.steps} == {"ccp", "mlm", "pairs"}
    for name, parameter in ("ccp", "head.linear_out.weight"), ("mlm", "lm_head.bias"):
        assert not torch.equal(trainer.loss[name].owned_state()[parameter], before[name][parameter])


@pytest.mark.parametrize("prompts", ["wind ", {"sentence": "wind "}, {"ccp": {"sentence": "wind "}}])
def test_prompts_of_the_training_arguments_reach_the_texts(tmp_path: Path, prompts: Any) -> None:
    trainer, _ = interleaved_run(tmp_path, max_steps=8, prompts=prompts)
    read: dict[str, set[str]] = {}
    model, preprocess = trainer.model, trainer.data_collator.preprocess_fn
    assert preprocess == model.preprocess

    def watch(texts: list[str], **options: Any) -> Any:
        read.setdefault(str(options.get("prompt")), set()).update(texts)
        return preprocess(texts, **options)

    trainer.data_collator.preprocess_fn = watch
    trainer.train()
    assert read.get("wind ")
    assert ("None" in read) == isinstance(prompts, dict)


@pytest.mark.parametrize("kind", ["fsdp", "deepspeed"])
def test_sharding_is_refused_for_losses_with_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    args = arguments(tmp_path)
    monkeypatch.setattr(args, "fsdp" if kind == "fsdp" else "deepspeed_plugin", object())
    losses = {"windows": ccp(), "pairs": SemanticContrastiveLoss(tiny.static())}
    with pytest.raises(ValueError, match=rf"(?i){kind}.*\['windows'\].*--{kind}.*DDP"):
        LossStateCallback(losses).on_init_end(args, TrainerState(), TrainerControl())
    LossStateCallback(losses["pairs"]).on_init_end(args, TrainerState(), TrainerControl())


def test_sharding_by_the_launcher_is_refused_before_the_optimizer_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = arguments(tmp_path)
    with monkeypatch.context() as patch:
        patch.setenv("ACCELERATE_USE_FSDP", "true")
        patch.setattr("tests.training.runs.arguments", lambda *_, **__: args)
        with pytest.raises(ValueError, match="FSDP"):
            interleaved_run(tmp_path)
    interleaved_run(tmp_path)
