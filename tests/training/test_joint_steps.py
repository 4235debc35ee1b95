"""Every optimizer step is on the gradient of the summed loss, whatever the Trainer does around it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import DatasetDict
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.utils.data import BatchSampler, ConcatDataset, SequentialSampler
from transformers import TrainerCallback

from st_xlret.losses import SemanticContrastiveLoss
from st_xlret.training.joint_steps import JointTrainer, RoundBatchSampler
from tests import tiny
from tests.training.ir_runs import ir_run
from tests.training.runs import arguments

PARTS = ["semantic", "language", "retrieval"]


class Gradients(TrainerCallback):
    """Gradients and weights before each optimizer step."""

    def __init__(self, model: SentenceTransformer) -> None:
        self.model = model
        self.steps: list[dict[str, Tensor]] = []
        self.weights: list[dict[str, Tensor]] = []

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        parameters = dict(self.model.named_parameters())
        self.steps.append({name: p.grad.clone() for name, p in parameters.items() if p.grad is not None})
        self.weights.append({name: p.detach().clone() for name, p in parameters.items()})


def naive_gradients(trainer: JointTrainer, weights: dict[str, Tensor], batches: list[dict[str, Any]]) -> dict:
    """Of the sum of all losses on these batches, in one backward pass."""
    trainer.model.load_state_dict(weights, strict=False)
    trainer.model.zero_grad()
    total: Any = 0.0
    for batch in batches:
        features, labels = trainer.collect_features({k: v for k, v in batch.items() if k != "dataset_name"})
        total = total + trainer.loss[batch["dataset_name"]](features, labels)
    total.backward()
    return {name: p.grad for name, p in trainer.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("two_encoders", [False, True])
@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_gradients_are_those_of_the_summed_loss(make: Any, two_encoders: bool, tmp_path: Path) -> None:
    trainer, _ = ir_run(tmp_path, model=make(), two_encoders=two_encoders, max_steps=3, max_grad_norm=0.0)
    recorded = Gradients(trainer.model)
    trainer.add_callback(recorded)
    trainer.train()
    batches = list(trainer.get_train_dataloader())
    assert len(recorded.steps) == 3
    for step, (gradients, weights) in enumerate(zip(recorded.steps, recorded.weights, strict=True)):
        own = batches[3 * step : 3 * step + 3]
        assert [batch["dataset_name"] for batch in own] == PARTS
        expected = naive_gradients(trainer, weights, own)
        assert expected.keys() == gradients.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-7, msg=name)


def test_rounds_are_averaged_where_several_make_a_step(tmp_path: Path) -> None:
    trainer, _ = ir_run(
        tmp_path, model=tiny.transformer(), max_steps=3, max_grad_norm=0.0, gradient_accumulation_steps=2
    )
    assert trainer.args.gradient_accumulation_steps == 6
    recorded = Gradients(trainer.model)
    trainer.add_callback(recorded)
    trainer.train()
    # An epoch has five rounds: its third step is on a single one, and counts as much.
    batches = list(trainer.get_train_dataloader())
    for step, share in ((0, slice(0, 6)), (1, slice(6, 12)), (2, slice(12, 15))):
        own = batches[share]
        expected = naive_gradients(trainer, recorded.weights[step], own)
        for name, gradient in recorded.steps[step].items():
            torch.testing.assert_close(gradient, 3 * expected[name] / len(own), rtol=1e-4, atol=1e-7, msg=name)


def test_each_part_is_logged_and_the_loss_is_their_sum(tmp_path: Path) -> None:
    trainer, _ = ir_run(tmp_path, max_steps=4, logging_strategy="steps", logging_steps=2)
    trainer.train()
    lines = [line for line in trainer.state.log_history if "loss" in line]
    assert [line["step"] for line in lines] == [2, 4]
    for line in lines:
        assert line["loss"] == pytest.approx(sum(line[f"loss_{part}"] for part in PARTS), abs=2e-4)


def test_a_step_is_a_round_and_an_epoch_one_of_the_last_dataset(tmp_path: Path) -> None:
    trainer, recorder = ir_run(tmp_path, max_steps=-1, num_train_epochs=2)
    trainer.train()
    # 20 questions in batches of 4.
    assert trainer.state.global_step == 10 and trainer.state.epoch == 2
    assert [(step, name) for step, name, _ in recorder.steps] == [(i // 3, PARTS[i % 3]) for i in range(30)]


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_resumed_run_repeats_the_uninterrupted_one(rounds: int, tmp_path: Path) -> None:
    steps = {"max_steps": 8, "save_strategy": "steps", "save_steps": 4, "gradient_accumulation_steps": rounds}
    whole, recorded = ir_run(tmp_path, **steps)
    whole.train()
    resumed, repeated = ir_run(tmp_path, seed=7, **steps)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert repeated.steps == [entry for entry in recorded.steps if entry[0] >= 4] and len(repeated.steps) >= 12
    expected = whole.model.state_dict()
    for name, tensor in resumed.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    assert whole.state.epoch is not None and whole.state.epoch > 1


def test_mixed_precision(tmp_path: Path) -> None:
    exact, expected = ir_run(tmp_path, model=tiny.transformer(), max_steps=2)
    exact.train()
    trainer, recorder = ir_run(tmp_path, model=tiny.transformer(), max_steps=2, bf16=True)
    trainer.train()
    for (_, name, value), (_, _, other) in zip(recorder.steps, expected.steps, strict=True):
        assert value == pytest.approx(other, rel=0.1, abs=0.02), name


def test_one_part_alone_is_the_hosts_trainer(tmp_path: Path) -> None:
    trainer, recorder = ir_run(tmp_path, parts=("retrieval",), max_steps=5)
    trainer.train()
    assert trainer.args.gradient_accumulation_steps == 1
    assert Counter(name for _, name, _ in recorder.steps) == {"retrieval": 5}


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_the_losses_on_translations_act_on_the_encoder_of_passages_alone(make: Any, tmp_path: Path) -> None:
    trainer, _ = ir_run(tmp_path, model=make(), two_encoders=True, max_steps=1)
    sides = trainer.model[0].sub_modules
    for batch in list(trainer.get_train_dataloader())[:3]:
        trainer.model.zero_grad()
        name = batch["dataset_name"]
        trainer.compute_loss(trainer.model, batch).backward()
        query = any(p.grad is not None and p.grad.any() for p in sides["query"].parameters())
        passage = any(p.grad is not None and p.grad.any() for p in sides["document"].parameters())
        assert (query, passage) == (name == "retrieval", True), name


def test_without_other_sentences_the_language_loss_takes_pairs_alone(tmp_path: Path) -> None:
    trainer, recorder = ir_run(tmp_path, others=False, max_steps=2)
    trainer.train()
    assert [name for _, name, _ in recorder.steps] == PARTS * 2
    assert "other" not in trainer.train_dataset["language"].column_names


def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path) -> None:
    trainer, _ = ir_run(tmp_path, max_steps=2)
    loss = trainer.loss["retrieval"]
    computed = loss.compute_loss_from_embeddings
    loss.compute_loss_from_embeddings = lambda *args: computed(*args) * float("nan")
    with pytest.raises(FloatingPointError, match=r"'retrieval' is nan at step 1.*batch of en"):
        trainer.train()


def test_the_arguments_given_stay_as_they_were(tmp_path: Path) -> None:
    model, args = tiny.static(), arguments(tmp_path, gradient_accumulation_steps=2)
    datasets = DatasetDict({"a": tiny.pairs(4), "b": tiny.pairs(4)})
    losses = {name: SemanticContrastiveLoss(model) for name in datasets}
    trainer = JointTrainer(model, args, datasets, losses)
    assert (args.gradient_accumulation_steps, trainer.args.gradient_accumulation_steps) == (2, 4)
    assert args.multi_dataset_batch_sampler is not RoundBatchSampler


def test_a_single_dataset_is_refused() -> None:
    with pytest.raises(ValueError, match="takes a dictionary of datasets, got Dataset"):
        JointTrainer(tiny.static(), None, tiny.pairs(4), None)
    with pytest.raises(ValueError, match="takes a dictionary of datasets, got dict"):
        JointTrainer(tiny.static(), None, {}, None)


def test_rounds_go_on_where_a_dataset_runs_out() -> None:
    samplers = [BatchSampler(SequentialSampler(range(n)), size, True) for n, size in ((2, 1), (6, 3), (12, 2))]
    sampler = RoundBatchSampler(ConcatDataset([range(2), range(6), range(12)]), samplers)
    batches = list(sampler)
    assert len(batches) == len(sampler) == 18
    assert [batch[0] for batch in batches[::3]] == [0, 1, 0, 1, 0, 1]
    assert [batch[0] for batch in batches[1::3]] == [2, 5, 2, 5, 2, 5]
    assert [row for batch in batches[2::3] for row in batch] == list(range(8, 20))


def test_a_dataset_smaller_than_its_batch() -> None:
    samplers = [BatchSampler(SequentialSampler(range(1)), 2, True), BatchSampler(SequentialSampler(range(4)), 2, True)]
    with pytest.raises(ValueError, match="gives no batch at all"):
        list(RoundBatchSampler(ConcatDataset([range(1), range(4)]), samplers))
