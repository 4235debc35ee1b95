"""Runs of every kind: a resumed run repeats the whole one, whatever the host does around losses."""

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
from torch import Tensor
from transformers import TrainerControl, TrainerState

from st_xlret.batches import CrossLingualDataCollator, InterleavedBatchSampler, Rows
from st_xlret.losses import CCPLoss, CZNCELoss, MaskedLMLoss, SemanticContrastiveLoss
from st_xlret.modules import LanguageMemoryBank
from st_xlret.training import LOSS_STATE_FILE, CrossLingualTrainer, LossStateCallback
from tests import tiny
from tests.training.runs import (
    ALONE,
    KINDS,
    Recorder,
    arguments,
    changed,
    run_of,
    state_of,
    system_of,
)


def trained(kind: str, folder: Path, **options: Any) -> tuple[Any, Recorder]:
    trainer, recorder = run_of(kind, folder, **options)
    trainer.train()
    return trainer, recorder


def values_of(recorder: Recorder) -> list[tuple[str, float]]:
    return [(name, value) for _, name, value in recorder.steps]


OTHERS_RESUMED: list[Any] = [
    ("ccp", 24, {"scope": "per_language", "gradient_accumulation_steps": 2}),
    ("msm", 4, {"gradient_accumulation_steps": 2}),
    ("ml-ctl", 6, {}),
    *[(kind, 4, {}) for kind in ALONE],
]
RESUMED: list[Any] = [
    ("ccp", 36, {}),
    ("joint", 4, {"gradient_accumulation_steps": 2}),
    *[pytest.param(*each, marks=pytest.mark.slow) for each in OTHERS_RESUMED],
]


@pytest.mark.parametrize(("kind", "steps", "options"), RESUMED)
def test_a_resumed_run_repeats_the_uninterrupted_one(
    kind: str,
    steps: int,
    options: dict[str, Any],
    tmp_path: Path,
) -> None:
    half = steps // 2
    options = {"max_steps": steps, "save_strategy": "steps", "save_steps": half, **options}
    whole, recorded = trained(kind, tmp_path, **options)
    resumed, repeated = run_of(kind, tmp_path / "another folder", seed=7, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{half}"))
    next_steps = [entry for entry in recorded.steps if entry[0] >= half]
    assert next_steps
    assert repeated.steps == next_steps
    for name, loss in whole.loss.items():
        assert not changed(state_of(loss), resumed.loss[name])
    if kind == "ccp":
        # It was a run worth repeating: all three losses, several epochs, a bank that was filled
        # more than once.
        counts = Counter(name for _, name, _ in next_steps)
        assert len(counts) == 3
        assert min(counts.values()) > 1
        assert whole.state.epoch > 1
        assert len(whole.loss["ccp"].bank) >= 22


@pytest.mark.slow
def test_a_training_after_a_resumed_one_begins_anew(tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    trainer, _ = trained("ml-ctl", tmp_path, **options)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    trainer.args.max_steps = 1
    trainer.train()
    assert trainer.loss_state.resume_from is None


def test_the_callback_of_the_user_says_where_its_state_lies(tmp_path: Path) -> None:
    trained("ccp", tmp_path / "run", max_steps=1, save_strategy="steps", save_steps=1)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    state = tmp_path / "run" / "checkpoint-1" / LOSS_STATE_FILE
    state.rename(moved / LOSS_STATE_FILE)
    system = system_of("ccp", tiny.transformer())
    callback = LossStateCallback(system.losses, resume_from=moved)
    trainer = CrossLingualTrainer(
        system.losses["ccp"].model,
        arguments(tmp_path / "run", max_steps=2),
        system.datasets,
        loss=system.losses,
        callbacks=[callback],
    )
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 2
    assert callback.resume_from == moved


def test_a_checkpoint_is_a_plain_model_and_the_losses_state_beside_it(tmp_path: Path) -> None:
    trained("ccp", tmp_path, max_steps=2, save_strategy="steps", save_steps=2)
    checkpoint = tmp_path / "checkpoint-2"
    for module in json.loads((checkpoint / "modules.json").read_text()):
        assert module["type"].startswith("sentence_transformers.")
    with safe_open(checkpoint / LOSS_STATE_FILE, "pt") as file:
        names = set(file.keys())
    expected = {"ccp/bank.keys", "ccp/head.toggle", "ccp/head.norm.running_mean"}
    assert expected | {"mlm/lm_head.bias"} <= names
    assert [name for name in names if "/model." in name or name.startswith("pairs/")] == []
    assert list(checkpoint.glob(".*")) == []
    (checkpoint / LOSS_STATE_FILE).unlink()
    resumed, _ = run_of("ccp", tmp_path, max_steps=4)
    with pytest.raises(FileNotFoundError, match=r"checkpoint-2.loss_state.safetensors"):
        resumed.train(resume_from_checkpoint=str(checkpoint))


# What the host's Trainer does around the losses

FIXED: dict[str, Any] = {"learning_rate": 0.0, "max_grad_norm": 0.0}
"""Weights stay as they are: the batches of a step are those of two steps of the plain run."""


def mean_of(first: dict[str, Tensor], second: dict[str, Tensor]) -> dict[str, Tensor]:
    mean = {}
    for name in first.keys() | second.keys():
        parts = [part[name] for part in (first, second) if name in part]
        mean[name] = torch.stack(parts).sum(0) / 2
    return mean


@pytest.mark.parametrize("kind", KINDS)
def test_accumulated_gradients_are_the_mean_of_those_of_the_batches(
    kind: str,
    tmp_path: Path,
) -> None:
    _, plain = trained(kind, tmp_path, max_steps=4, **FIXED)
    _, twice = trained(kind, tmp_path, max_steps=2, gradient_accumulation_steps=2, **FIXED)
    losses_of_step = 3 if kind == "joint" else 1
    assert len(plain.steps) == 4 * losses_of_step
    assert values_of(twice) == values_of(plain)
    for step, accumulated in enumerate(twice.gradients):
        expected = mean_of(plain.gradients[2 * step], plain.gradients[2 * step + 1])
        torch.testing.assert_close(accumulated, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_checkpointing_changes_nothing(kind: str, tmp_path: Path) -> None:
    _, plain = trained(kind, tmp_path, max_steps=4, **FIXED)
    trainer, again = trained(kind, tmp_path, max_steps=4, gradient_checkpointing=True, **FIXED)
    assert trainer.model[0].auto_model.is_gradient_checkpointing
    expected = [value for _, value in values_of(plain)]
    assert [value for _, value in values_of(again)] == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(again.gradients, plain.gradients, rtol=1e-2, atol=1e-4)


def batches_of_two_epochs(folder: Path, *, workers: int, persistent: bool) -> list[list[int]]:
    trainer, _ = run_of(
        "ml-ctl",
        folder,
        dataloader_num_workers=workers,
        dataloader_persistent_workers=persistent,
    )
    loader: Any = trainer.get_train_dataloader()
    batches = []
    for epoch in (0, 1):  # workers that stay meet the next one
        loader.set_epoch(epoch)
        for batch in loader:
            batches.append(batch["source_text_id"].tolist())
    return batches


def test_workers_of_the_data_loader_draw_the_same_batches(tmp_path: Path) -> None:
    expected = batches_of_two_epochs(tmp_path, workers=0, persistent=False)
    assert len(expected) == len(set(map(str, expected))) == 8
    assert batches_of_two_epochs(tmp_path, workers=2, persistent=False) == expected
    assert batches_of_two_epochs(tmp_path, workers=2, persistent=True) == expected


# The callback that keeps what the losses own


def ccp(seed: int = 0) -> CCPLoss:
    model = tiny.static(seed=seed)
    loss = CCPLoss(model, bank=LanguageMemoryBank(8, 4))
    loss([tiny.features(model, tiny.window_rows(3, seed=seed))]).backward()
    return loss


def test_state_goes_from_one_callback_to_another_of_the_same_losses() -> None:
    first = LossStateCallback({"documents/en": ccp(0), "documents/fr": ccp(1)})
    second = LossStateCallback({"documents/en": ccp(2), "documents/fr": ccp(3)})
    state = first.state_dict()
    second.load_state_dict(state)
    loaded = second.state_dict()
    assert loaded.keys() == state.keys()
    for name, tensor in loaded.items():
        assert torch.equal(tensor, state[name])
        assert not tensor.requires_grad


def test_losses_without_names_have_those_of_their_classes() -> None:
    loss = ccp()
    callback = LossStateCallback([MultipleNegativesRankingLoss(loss.model), loss])
    assert callback.losses == {"1.CCPLoss": loss}


@pytest.mark.parametrize("saved", [[], ["first"], ["ccp", "first"]])
def test_the_state_of_losses_with_other_names_is_refused_and_all_names_are_listed(
    saved: list[str],
) -> None:
    state = LossStateCallback({name: ccp() for name in saved}).state_dict()
    pairs = SemanticContrastiveLoss(tiny.static())  # it owns nothing
    callback = LossStateCallback({"ccp": ccp(), "pairs": pairs})
    names = re.escape(str(saved))
    with pytest.raises(ValueError, match=rf"named {names}, .* \['ccp'\]"):
        callback.load_state_dict(state)


def test_a_callback_that_is_given_is_the_one_of_the_trainer(tmp_path: Path) -> None:
    def run() -> CrossLingualTrainer:
        loss = ccp()
        callback = LossStateCallback(loss, options={"kind": "mine"})
        args = arguments(tmp_path, max_steps=2, save_strategy="steps", save_steps=1)
        return CrossLingualTrainer(
            loss.model,
            args,
            {"ccp": tiny.documents()},
            loss={"ccp": loss},
            callbacks=[callback],
        )

    run().train()
    with safe_open(tmp_path / "checkpoint-1" / LOSS_STATE_FILE, "pt") as file:
        assert json.loads(file.metadata()["options"]) == {"kind": "mine"}
    run().train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))


def test_two_callbacks_of_one_run_are_refused(tmp_path: Path) -> None:
    loss = ccp()
    callbacks = [LossStateCallback(loss), LossStateCallback(loss)]
    args = arguments(tmp_path, max_steps=1)
    rows = loss.select(tiny.documents())
    given = CrossLingualTrainer(loss.model, args, rows, loss=loss, callbacks=[*callbacks])
    added = CrossLingualTrainer(loss.model, args, rows, loss=loss)
    added.add_callback(callbacks[0])
    of_host = SentenceTransformerTrainer(loss.model, args, rows, loss=loss, callbacks=callbacks)
    for start in (given.train, added.train, of_host.train):
        with pytest.raises(ValueError, match="two LossStateCallbacks keep"):
            start()


@pytest.mark.parametrize("limit", [1e9, 0.0, 0.1])
def test_gradients_of_the_losses_are_clipped(limit: float, tmp_path: Path) -> None:
    loss = ccp()
    of_encoder = loss.model[0].embedding.weight.grad.clone()
    before = torch.cat([weight.grad.flatten() for weight in loss.owned_parameters()])
    args = arguments(tmp_path, max_grad_norm=limit)
    LossStateCallback(loss).on_pre_optimizer_step(args, TrainerState(), TrainerControl())
    after = torch.cat([weight.grad.flatten() for weight in loss.owned_parameters()])
    expected = 0.1 * before / before.norm() if limit == 0.1 else before
    torch.testing.assert_close(after, expected, rtol=1e-4, atol=0)
    assert torch.equal(loss.model[0].embedding.weight.grad, of_encoder)


UNFIT: list[dict[str, Any]] = [
    {"fsdp": "full"},
    {"deepspeed_plugin": object()},
    {"fp16": True},
]


@pytest.mark.parametrize("options", UNFIT)
def test_what_cannot_hold_parameters_of_losses_is_refused(options: dict[str, Any]) -> None:
    fields = {"fsdp": None, "deepspeed_plugin": None, "fp16": False, "world_size": 2}
    args: Any = SimpleNamespace(**{**fields, **options})
    owner = LossStateCallback({"windows": ccp()})
    with pytest.raises(ValueError, match="windows"):
        owner.on_init_end(args, TrainerState())
    other = LossStateCallback(SemanticContrastiveLoss(tiny.static()))
    other.on_init_end(args, TrainerState())


def test_fp16_in_one_process_holds_parameters_of_losses() -> None:
    args: Any = SimpleNamespace(fsdp=None, deepspeed_plugin=None, fp16=True, world_size=1)
    LossStateCallback({"windows": ccp()}).on_init_end(args, TrainerState())


@pytest.mark.slow
def test_the_hosts_own_trainer_keeps_the_state_by_the_callback_with_torch_compile_too(
    tmp_path: Path,
) -> None:
    model = tiny.transformer()
    losses = {
        "both": CZNCELoss(model, mlm=MaskedLMLoss(model)),
        "pairs": SemanticContrastiveLoss(model),
    }
    args = SentenceTransformerTrainingArguments(
        str(tmp_path),
        max_steps=4,
        save_steps=4,
        use_cpu=True,
        report_to="none",
        torch_compile=True,
        torch_compile_backend="eager",
        multi_dataset_batch_sampler=InterleavedBatchSampler,
        batch_sampler=Rows(),
    )
    SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=DatasetDict(both=tiny.pairs(), pairs=tiny.pairs()),
        loss=losses,
        data_collator=CrossLingualDataCollator(model.preprocess),
        callbacks=[LossStateCallback(losses)],
    ).train()
    with safe_open(tmp_path / "checkpoint-4" / LOSS_STATE_FILE, "pt") as file:
        names = list(file.keys())
    assert "both/mlm.lm_head.bias" in names
