"""Arguments of the host: honoured, or refused by name before the first step."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from datasets import IterableDataset
from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from st_xlret.losses import SemanticContrastiveLoss
from st_xlret.training import CrossLingualTrainer, CrossLingualTrainingArguments
from tests import tiny
from tests.training.runs import arguments

REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"auto_find_batch_size": True}, 1, "auto_find_batch_size"),
    ({"train_sampling_strategy": "group_by_length"}, 1, "train_sampling_strategy"),
    ({"accelerator_config": {"split_batches": True}}, 2, "split_batches"),
    ({"accelerator_config": {"dispatch_batches": True}}, 2, "dispatch_batches"),
    ({"joint": True, "multi_dataset_batch_sampler": "round_robin"}, 1, "with joint"),
    ({"multi_dataset_batch_sampler": "round_robin"}, 2, "round_robin"),
]


def make_trainer(args: CrossLingualTrainingArguments, **options: Any) -> CrossLingualTrainer:
    model = tiny.static()
    loss = SemanticContrastiveLoss(model)
    return CrossLingualTrainer(model, args, tiny.pairs(16), loss=loss, **options)


@pytest.mark.parametrize(("options", "processes", "said"), REFUSED)
def test_what_batches_and_schedules_do_not_obey_is_refused_by_name(
    options: dict[str, Any],
    processes: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    args = arguments(tmp_path, **options)
    monkeypatch.setattr(CrossLingualTrainingArguments, "world_size", processes)
    with pytest.raises(ValueError, match=said):
        make_trainer(args)


def test_drops_are_refused_of_a_schedule_that_is_no_function_of_the_step(tmp_path: Path) -> None:
    schedule = {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch"}
    trainer = make_trainer(
        arguments(tmp_path, lr_drops=[0.5], **schedule), eval_dataset=tiny.pairs(4)
    )
    with pytest.raises(ValueError, match="lr_scheduler_type"):
        trainer.create_optimizer_and_scheduler(4)


@pytest.mark.parametrize("schedule", ["linear", "constant", "cosine", "polynomial"])
def test_rates_of_schedules_by_the_step_drop(schedule: str, tmp_path: Path) -> None:
    args = arguments(tmp_path, lr_drops=[0.5], lr_scheduler_type=schedule, max_steps=4)
    trainer = make_trainer(args)
    trainer.create_optimizer_and_scheduler(4)
    plain = make_trainer(arguments(tmp_path, lr_scheduler_type=schedule, max_steps=4))
    plain.create_optimizer_and_scheduler(4)
    factors = []
    for step in range(4):
        rate = plain.lr_scheduler.lr_lambdas[0](step)
        factors.append(trainer.lr_scheduler.lr_lambdas[0](step) / rate)
    assert factors == pytest.approx([1, 1, 0.1, 0.1])


def batches_of(folder: Path, **options: Any) -> list[list[int]]:
    loader = make_trainer(arguments(folder, **options)).get_train_dataloader()
    return [batch["source_text_id"].tolist() for batch in loader]


@pytest.mark.parametrize("sampler", [None, "no_duplicates"])
def test_the_seed_of_the_data_is_that_of_batches(sampler: str | None, tmp_path: Path) -> None:
    first = batches_of(tmp_path, batch_sampler=sampler, data_seed=3)
    assert batches_of(tmp_path, batch_sampler=sampler, data_seed=3, seed=7) == first
    assert batches_of(tmp_path, batch_sampler=sampler, data_seed=4) != first


def test_streams_in_several_processes_are_not_dispatched(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny.static()
    stream = tiny.pairs(16).select_columns(["source", "target"]).to_iterable_dataset()
    args = arguments(tmp_path, max_steps=1)
    monkeypatch.setattr(CrossLingualTrainingArguments, "world_size", 2)
    with pytest.raises(ValueError, match='"dispatch_batches": False'):
        CrossLingualTrainer(model, args, stream, loss=MultipleNegativesRankingLoss(model))


def test_a_stream_without_features_is_refused_with_the_hosts_way_out(tmp_path: Path) -> None:
    model = tiny.static()
    model.prompts = {"query": "sun ", "document": ""}
    rows = tiny.pairs(8).select_columns(["source", "target"]).to_list()
    stream = IterableDataset.from_generator(lambda: iter(rows))
    loss = MultipleNegativesRankingLoss(model)
    with pytest.raises(ValueError, match="must have Features"):
        CrossLingualTrainer(model, arguments(tmp_path, max_steps=1), stream, loss=loss)


@dataclass
class OwnArguments(SentenceTransformerTrainingArguments):
    """Arguments of a program, which reads a field of its own."""

    project_name: str = "none"


def test_a_subclass_of_the_hosts_arguments_trains_and_keeps_its_fields(tmp_path: Path) -> None:
    args = OwnArguments(
        str(tmp_path),
        project_name="mine",
        max_steps=1,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
    )
    model = tiny.static()
    loss = SemanticContrastiveLoss(model)
    trainer = CrossLingualTrainer(model, args, tiny.pairs(16), loss=loss)
    assert trainer.train().global_step == 1
    assert trainer.args.project_name == "mine"  # type: ignore[attr-defined]
    assert trainer.args.lora_rank is None
