"""Runs of every kind: what the host does around the losses changes nothing, and a resumed run repeats the whole one."""

import json
import re
from collections import Counter
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

from st_xlret.batches import CrossLingualDataCollator, InterleavedBatchSampler, Rows
from st_xlret.losses import CCPLoss, CZNCELoss, MaskedLMLoss, SemanticContrastiveLoss
from st_xlret.modules import LanguageMemoryBank
from st_xlret.training import LOSS_STATE_FILE, CrossLingualTrainer, LossStateCallback
from tests import tiny
from tests.training.runs import KINDS, Recorder, arguments, changed, run_of, state_of


def trained(kind: str, folder: Path, **options: Any) -> tuple[Any, Recorder]:
    trainer, recorder = run_of(kind, folder, **options)
    trainer.train()
    return trainer, recorder


def values(recorder: Recorder) -> list[tuple[str, float]]:
    return [(name, value) for _, name, value in recorder.steps]


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
    resumed, repeated = run_of(kind, tmp_path / "another folder", seed=7, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{steps // 2}"))
    next_steps = [entry for entry in recorded.steps if entry[0] >= steps // 2]
    assert repeated.steps == next_steps and next_steps
    for name, loss in whole.loss.items():
        assert not changed(state_of(loss), resumed.loss[name])
    resumed.args.max_steps = 1
    resumed.train()
    assert resumed.loss_state.resume_from is None
    if kind == "ccp":
        # It was a run worth repeating: all three losses, several epochs, a bank that was filled more than once.
        counts = Counter(name for _, name, _ in next_steps)
        assert len(counts) == 3 and min(counts.values()) > 1 and whole.state.epoch > 1  # type: ignore[operator]
        assert len(whole.loss["ccp"].bank) >= 22


def test_a_checkpoint_is_a_plain_model_and_the_losses_state_beside_it(tmp_path: Path) -> None:
    trained("ccp", tmp_path, max_steps=2, save_strategy="steps", save_steps=2)
    checkpoint = tmp_path / "checkpoint-2"
    modules = json.loads((checkpoint / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    with safe_open(checkpoint / LOSS_STATE_FILE, "pt") as file:
        names = set(file.keys())
    assert {
        "ccp/bank.keys",
        "ccp/head.toggle",
        "ccp/head.norm.running_mean",
        "mlm/lm_head.bias",
    } <= names
    assert not [name for name in names if "/model." in name or name.startswith("pairs/")]
    assert not list(checkpoint.glob(".*"))
    (checkpoint / LOSS_STATE_FILE).unlink()
    with pytest.raises(FileNotFoundError, match=r"checkpoint-2.loss_state.safetensors"):
        run_of("ccp", tmp_path, max_steps=4)[0].train(resume_from_checkpoint=str(checkpoint))


# What the host's Trainer does around the losses


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_accumulation_and_checkpointing(kind: str, tmp_path: Path) -> None:
    # Weights that stay as they are: the batches of a step are then those of two steps of the plain run.
    fixed: dict[str, Any] = {"learning_rate": 0.0, "max_grad_norm": 0.0}
    _, plain = trained(kind, tmp_path, max_steps=4, **fixed)
    _, twice = trained(kind, tmp_path, max_steps=2, gradient_accumulation_steps=2, **fixed)
    assert values(twice) == values(plain) and len(values(plain)) == 4 * (
        3 if kind == "joint" else 1
    )
    for step, accumulated in enumerate(twice.gradients):
        pair = plain.gradients[2 * step : 2 * step + 2]
        assert accumulated.keys() == pair[0].keys() | pair[1].keys()
        for key, gradient in accumulated.items():
            mean: Any = sum(gradients[key] for gradients in pair if key in gradients) / 2
            torch.testing.assert_close(
                gradient, mean, rtol=1e-5, atol=1e-7, msg=lambda m, k=key: f"{k}: {m}"
            )
    checkpointing, again = trained(
        kind, tmp_path, max_steps=4, gradient_checkpointing=True, **fixed
    )
    assert checkpointing.model[0].auto_model.is_gradient_checkpointing
    assert [value for _, value in values(again)] == pytest.approx(
        [value for _, value in values(plain)], rel=1e-4
    )
    torch.testing.assert_close(again.gradients, plain.gradients, rtol=1e-2, atol=1e-4)


def test_workers_of_the_data_loader_draw_the_same_batches(tmp_path: Path) -> None:
    read: list[list[list[int]]] = []
    for workers, persistent in ((0, False), (2, False), (2, True)):
        options = {"dataloader_num_workers": workers, "dataloader_persistent_workers": persistent}
        loader = run_of("ml-ctl", tmp_path, **options)[0].get_train_dataloader()
        read.append([])
        for epoch in (0, 1):  # workers that stay meet the next one
            loader.set_epoch(epoch)
            read[-1] += [batch["source_text_id"].tolist() for batch in loader]
    assert (
        read[0] == read[1] == read[2]
        and len({str(batch) for batch in read[0]}) == len(read[0]) == 8
    )


# The callback that keeps what the losses own


def ccp(seed: int = 0) -> CCPLoss:
    model = tiny.static(seed=seed)
    loss = CCPLoss(model, bank=LanguageMemoryBank(8, 4))
    loss([tiny.features(model, tiny.window_rows(3, seed=seed))]).backward()
    return loss


def test_state_goes_from_one_callback_to_another_of_the_same_losses() -> None:
    names = ("documents/en", "documents/fr")
    first, second = (
        LossStateCallback({name: ccp(seed + i) for i, name in enumerate(names)}) for seed in (0, 2)
    )
    state = first.state_dict()
    second.load_state_dict(state)
    for name, tensor in second.state_dict().items():
        assert torch.equal(tensor, state[name]) and not tensor.requires_grad
    loss = ccp()
    callback = LossStateCallback([MultipleNegativesRankingLoss(loss.model), loss])
    assert callback.losses == {"1.CCPLoss": loss}


@pytest.mark.parametrize("saved", [{}, {"first": ccp}, {"ccp": ccp, "first": ccp}])
def test_the_state_of_losses_with_other_names_is_refused_and_all_names_are_listed(
    saved: dict[str, Any],
) -> None:
    losses = {name: make() for name, make in saved.items()}
    state = LossStateCallback(losses).state_dict()
    pairs = SemanticContrastiveLoss(tiny.static())  # it owns nothing
    callback = LossStateCallback({"ccp": ccp(), "pairs": pairs})
    names = re.escape(str(sorted(saved)))
    with pytest.raises(ValueError, match=rf"named {names}, .* \['ccp'\]"):
        callback.load_state_dict(state)


def test_a_callback_that_is_given_is_the_one_of_the_trainer(tmp_path: Path) -> None:
    def run(folder: Path, **options: Any) -> CrossLingualTrainer:
        loss = ccp()
        callback = LossStateCallback(loss, options={"kind": "mine"})
        args = arguments(folder, max_steps=2, save_strategy="steps", save_steps=1, **options)
        return CrossLingualTrainer(
            loss.model, args, {"ccp": tiny.documents()}, loss={"ccp": loss}, callbacks=[callback]
        )

    run(tmp_path).train()
    with safe_open(tmp_path / "checkpoint-1" / LOSS_STATE_FILE, "pt") as file:
        assert json.loads(file.metadata()["options"]) == {"kind": "mine"}
    run(tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))


def test_two_callbacks_of_one_run_are_refused(tmp_path: Path) -> None:
    loss = ccp()
    callbacks = [LossStateCallback(loss), LossStateCallback(loss)]
    args = arguments(tmp_path, max_steps=1)
    rows = loss.select(tiny.documents())
    with pytest.raises(ValueError, match="LossStateCallback"):
        CrossLingualTrainer(loss.model, args, rows, loss=loss, callbacks=callbacks)
    trainer = CrossLingualTrainer(loss.model, args, rows, loss=loss)
    trainer.add_callback(callbacks[0])
    with pytest.raises(ValueError, match="two LossStateCallbacks keep"):
        trainer.train()
    of_host = SentenceTransformerTrainer(
        loss.model, args, rows, loss=loss, callbacks=list(callbacks)
    )
    with pytest.raises(ValueError, match="two LossStateCallbacks keep"):
        of_host.train()


def test_gradients_of_the_losses_are_clipped(tmp_path: Path) -> None:
    loss = ccp()
    encoder = loss.model[0].embedding.weight.grad.clone()
    for limit in (1e9, 0.0, 0.1):
        before = torch.cat([p.grad.flatten() for p in loss.owned_parameters()])
        args = arguments(tmp_path, max_grad_norm=limit)
        LossStateCallback(loss).on_pre_optimizer_step(args, TrainerState(), TrainerControl())
        after = torch.cat([p.grad.flatten() for p in loss.owned_parameters()])
        torch.testing.assert_close(
            after, before if limit != 0.1 else 0.1 * before / before.norm(), rtol=1e-4, atol=0
        )
        assert torch.equal(loss.model[0].embedding.weight.grad, encoder)


def test_what_cannot_hold_parameters_of_losses_is_refused() -> None:
    owner, other = (
        LossStateCallback({"windows": ccp()}),
        LossStateCallback(SemanticContrastiveLoss(tiny.static())),
    )
    fields = {"fsdp": None, "deepspeed_plugin": None, "fp16": False, "world_size": 2}
    for change in ({"fsdp": "full"}, {"deepspeed_plugin": object()}, {"fp16": True}):
        args: Any = SimpleNamespace(**(fields | change))
        with pytest.raises(ValueError, match="windows"):
            owner.on_init_end(args, TrainerState())
        other.on_init_end(args, TrainerState())
    args.world_size = 1  # in fp16
    owner.on_init_end(args, TrainerState())


def test_the_hosts_own_trainer_keeps_the_state_by_the_callback_with_torch_compile_too(
    tmp_path: Path,
) -> None:
    model = tiny.transformer()
    losses = {
        "both": CZNCELoss(model, mlm=MaskedLMLoss(model)),
        "pairs": SemanticContrastiveLoss(model),
    }
    options: dict[str, Any] = {
        "max_steps": 4,
        "save_steps": 4,
        "use_cpu": True,
        "report_to": "none",
    }
    options |= {"torch_compile": True, "torch_compile_backend": "eager"}
    options |= {"multi_dataset_batch_sampler": InterleavedBatchSampler, "batch_sampler": Rows()}
    SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(str(tmp_path), **options),
        train_dataset=DatasetDict(both=tiny.pairs(), pairs=tiny.pairs()),
        loss=losses,
        data_collator=CrossLingualDataCollator(model.preprocess),
        callbacks=[LossStateCallback(losses)],
    ).train()
    with safe_open(tmp_path / "checkpoint-4" / LOSS_STATE_FILE, "pt") as file:
        assert "both/mlm.lm_head.bias" in file.keys()  # noqa: SIM118
